"""Forwarded requests that come again, late: they must not undo what was asked and answered meanwhile."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from support.clients.token_client import OneNode, TokenClient, play
from tidelog.base.errors import Code
from tidelog.base.principals import Principal
from tidelog.metadata import ResourceType
from tidelog.security.principal_data import encode_principal
from tidelog.server.quorum import forwarded_attempts
from tidelog.server.quorum.controller import Controller
from tidelog.server.quorum.forwarded_attempts import Attempt, LatestAttempts
from tidelog.sim.node import CONTROLLER_PORT
from tidelog.wire import ConsistencyState, encode_request
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.api_44_incremental_alter_configs import (
    OPERATION_SET,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.wire.messages.api_58_envelope import EnvelopeRequest, EnvelopeResponse

KEY = "consumer.session.timeout.ms"
SENDER, ANOTHER, THIRD = UUID(int=7), UUID(int=8), UUID(int=9)


def change(value: int, attempt: Attempt | None, has_seen: ConsistencyState | None = None) -> EnvelopeRequest:
    """A client's change of a group's setting, as a broker forwards it."""
    resource = AlterConfigsResource(ResourceType.GROUP, "g", [AlterableConfig(KEY, OPERATION_SET, str(value))])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    pieces = encode_request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, 4, "the client", request, consistency_state=has_seen)
    sent = EnvelopeRequest(
        request_data=b"".join(pieces)[4:],  # type: ignore[arg-type]
        request_principal=encode_principal(Principal("User", "alice"), by_token=False),
        client_host_address=bytes((192, 0, 2, 7)),
    )
    if attempt is not None:
        sent.sender_id, sent.sender_generation, sent.leader_epoch = attempt
    return sent


def leading(one: OneNode) -> Controller:
    controller = one.node.active_controller
    assert controller is not None
    return controller


def epoch_of(one: OneNode) -> int:
    leader_epoch = leading(one).leader_epoch
    assert leader_epoch is not None
    return leader_epoch


async def code(broker: TokenClient, value: int, attempt: Attempt | None) -> int:
    answer: EnvelopeResponse = await broker.ask(change(value, attempt))
    return answer.error_code


def setting(one: OneNode) -> str | None:
    return one.node.image.group_configs("g").get(KEY)


def test_a_copy_that_comes_late_undoes_no_later_change() -> None:
    async def story(one: OneNode) -> None:
        led = epoch_of(one)
        async with one.client(port=CONTROLLER_PORT) as old, one.client(port=CONTROLLER_PORT) as new:
            assert await code(new, 45_026, Attempt(SENDER, 1, led)) == Code.NONE
            assert await code(new, 45_027, Attempt(ANOTHER, 0, led)) == Code.NONE
            assert await code(old, 45_026, Attempt(SENDER, 0, led)) == Code.NOT_CONTROLLER
            assert setting(one) == "45027"
            assert await code(new, 45_028, Attempt(SENDER, 1, led)) == Code.NONE
            assert setting(one) == "45028"

    play(story)


def test_what_was_sent_to_an_earlier_leader_is_sent_again() -> None:
    async def story(one: OneNode) -> None:
        led = epoch_of(one)
        async with one.client(port=CONTROLLER_PORT) as broker:
            assert await code(broker, 45_026, Attempt(SENDER, 0, led - 1)) == Code.NOT_CONTROLLER
            assert setting(one) is None
            assert await code(broker, 45_026, Attempt(SENDER, 0, led)) == Code.NONE
            assert await code(broker, 45_027, Attempt(SENDER, 0, led + 1)) == Code.NONE  # what deposes it comes yet
            assert setting(one) == "45027"

    play(story)


def test_a_broker_that_counts_nothing_is_answered() -> None:
    async def story(one: OneNode) -> None:
        async with one.client(port=CONTROLLER_PORT) as broker:
            assert await code(broker, 45_026, Attempt(SENDER, 5, epoch_of(one))) == Code.NONE
            assert await code(broker, 45_027, None) == Code.NONE
            assert setting(one) == "45027"

    play(story)


def test_a_copy_that_waited_here_is_refused_when_its_turn_comes() -> None:
    async def story(one: OneNode) -> None:
        led = epoch_of(one)
        async with one.client(port=CONTROLLER_PORT) as old, one.client(port=CONTROLLER_PORT) as new:
            has_seen = ConsistencyState(one.node.cluster_id, one.last_offset + 1)
            waiting = asyncio.ensure_future(old.ask(change(45_026, Attempt(SENDER, 0, led), has_seen)))
            await one.until(lambda: one.waiting)
            assert await code(new, 45_027, Attempt(SENDER, 1, led)) == Code.NONE
            assert (await waiting).error_code == Code.NOT_CONTROLLER
            assert setting(one) == "45027"

    play(story)


def test_so_many_senders_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarded_attempts, "SENDERS_MAX", 2)
    latest = LatestAttempts()
    for sender in (SENDER, ANOTHER, SENDER, THIRD):
        latest.check(Attempt(sender, 4, 1), 1)
    assert latest.generations == {SENDER: 4, THIRD: 4}
