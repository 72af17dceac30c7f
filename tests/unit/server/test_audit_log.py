"""Who changed what, and who was refused: told once, in few lines, without secrets."""

from __future__ import annotations

import logging

import pytest

from tidelog.base.principals import Principal, Requester
from tidelog.server.api.apis import APIS
from tidelog.server.api.audit_log import CHANGES, REFUSALS_PER_SECOND_MAX, REPEATED_MS_MIN, AuditLog
from tidelog.wire.api import ApiKey, api
from tidelog.wire.messages.api_19_create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.wire.messages.api_30_create_acls import AclCreation, CreateAclsRequest

ALICE = Requester(Principal("User", "alice"), "10.0.0.7")
PRODUCE = api(ApiKey.PRODUCE)


class Clock:
    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms

    def wall_ms(self) -> int:
        return self.ms


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_refusal_is_told_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidelog.audit")
    clock = Clock()
    audit = AuditLog(clock)
    for _ in range(3):
        audit.on_denied(PRODUCE, "alice needs an ACL")
    assert lines(caplog) == ["denied Produce: alice needs an ACL"]
    clock.ms += REPEATED_MS_MIN
    audit.on_denied(PRODUCE, "alice needs an ACL")
    assert len(caplog.records) == 2


def test_whoever_asks_for_everything_does_not_fill_the_disk(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidelog.audit")
    clock = Clock()
    audit = AuditLog(clock)
    for number in range(5_000):
        audit.on_denied(PRODUCE, f"topic {number}")
    assert len(caplog.records) == REFUSALS_PER_SECOND_MAX
    clock.ms += 1_000
    audit.on_denied(PRODUCE, "one more")
    assert lines(caplog)[-1] == f"denied Produce: one more (and {5_000 - REFUSALS_PER_SECOND_MAX} more refusals before)"


def test_a_change_names_what_it_is_about(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidelog.audit")
    audit = AuditLog(Clock())
    topics = CreateTopicsRequest(topics=[CreatableTopic(f"t{n}", 1, 1) for n in range(12)])
    audit.on_allowed(api(ApiKey.CREATE_TOPICS), ALICE, topics, APIS[ApiKey.CREATE_TOPICS].division)
    acls = CreateAclsRequest(creations=[AclCreation(2, "orders", 3, "User:bob", "*", 3, 3)])
    audit.on_allowed(api(ApiKey.CREATE_ACLS), ALICE, acls, APIS[ApiKey.CREATE_ACLS].division)
    names = ", ".join(f"t{n}" for n in range(10))
    assert lines(caplog) == [
        f"User:alice at 10.0.0.7 asks for CreateTopics: {names}, and 2 more",
        "User:alice at 10.0.0.7 asks for CreateAcls: User:bob/orders",
    ]


def test_every_change_is_an_api_that_is_served() -> None:
    assert APIS.keys() >= CHANGES
