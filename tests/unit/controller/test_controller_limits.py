"""What is beyond a limit of the metadata is refused, part by part, and what there is stays."""

from __future__ import annotations

from uuid import UUID

import pytest

from tidelog.base.errors import Code, KafkaError
from tidelog.base.principals import USER, Principal, Requester
from tidelog.controller import (
    ConfigChange,
    ConfigOperation,
    ConfigsToAlter,
    ControllerSettings,
    ControllerState,
    TopicToCreate,
    TopicToDelete,
    TopicToGrow,
)
from tidelog.controller.client_quotas import QuotasToAlter
from tidelog.controller.delegation_tokens import TokenToCreate
from tidelog.controller.scram_users import SaltedPassword, ScramUserChange
from tidelog.io.rng import SystemRng
from tidelog.metadata import ResourceKey, ResourceType
from tidelog.metadata.acls import Acl, AclOperation, AclPermission, AclResourceType, PatternType
from tidelog.metadata.configs import BrokerSettings
from tidelog.metadata.records.brokers import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from tidelog.metadata.records.cluster import FeatureLevelRecord
from tidelog.metadata.topic_names import INTERNAL_TOPICS

RNG = SystemRng()
ALICE = Requester(Principal(USER, "alice"), "h")
LIMITS = {
    "max.acls": "2",
    "max.client.quotas": "2",
    "max.scram.credentials": "2",
    "max.delegation.tokens": "2",
    "max.partitions": "10",
    "max.configured.resources": "2",
    "delegation.token.secret.key": "secret",
}


@pytest.fixture
def state() -> ControllerState:
    state = ControllerState(ControllerSettings(broker=BrokerSettings.of(LIMITS)))
    for record in (
        FeatureLevelRecord(name="metadata.version", feature_level=21),
        RegisterBrokerRecord(broker_id=1, incarnation_id=UUID(int=1), broker_epoch=1, end_points=[], features=[]),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=-1),
    ):
        state.apply(record)
    return state


def rule(number: int) -> Acl:
    return Acl(
        resource_type=AclResourceType.TOPIC,
        resource_name=f"topic-{number}",
        pattern_type=PatternType.LITERAL,
        principal="User:alice",
        host="*",
        operation=AclOperation.READ,
        permission=AclPermission.ALLOW,
    )


def test_rules(state: ControllerState) -> None:
    decision = state.decide_create_acls([rule(0), rule(0), rule(1), rule(2)], rng=RNG)
    codes = [None if one is None else one.code for one in decision.reply]
    assert codes == [None, None, None, Code.POLICY_VIOLATION]
    for record in decision.records:
        state.apply(record)
    assert len(state.metadata.acls) == 2
    assert state.decide_create_acls([rule(0)], rng=RNG).reply == (None,)
    (why,) = state.decide_create_acls([rule(2)], rng=RNG).reply
    assert "max.acls" in str(why)


def test_quotas(state: ControllerState) -> None:
    def to_alter(*users: str) -> list[QuotasToAlter]:
        return [QuotasToAlter((("user", user),), (("producer_byte_rate", 1.0),)) for user in users]

    decision = state.decide_alter_client_quotas(to_alter("a", "b", "c"))
    assert [one.code for one in decision.reply] == [Code.NONE, Code.NONE, Code.POLICY_VIOLATION]
    for record in decision.records:
        state.apply(record)
    assert [one.code for one in state.decide_alter_client_quotas(to_alter("a", "c")).reply] == [
        Code.NONE,
        Code.POLICY_VIOLATION,
    ]


def test_passwords(state: ControllerState) -> None:
    def change(user: str) -> ScramUserChange:
        return ScramUserChange(user, 1, SaltedPassword(b"salt", b"x" * 32, 4_096))

    decision = state.decide_alter_scram_users([change("a"), change("b"), change("c")])
    assert [one.code for one in decision.reply] == [Code.NONE, Code.NONE, Code.POLICY_VIOLATION]
    for record in decision.records:
        state.apply(record)
    removal = ScramUserChange("b", 1, None)
    assert [one.code for one in state.decide_alter_scram_users([change("a"), removal]).reply] == [Code.NONE] * 2


def test_tokens(state: ControllerState) -> None:
    for _ in range(2):
        for record in state.decide_create_token(ALICE, TokenToCreate(), rng=RNG, now_ms=0).records:
            state.apply(record)
    with pytest.raises(KafkaError, match=r"max\.delegation\.tokens") as refused:
        state.decide_create_token(ALICE, TokenToCreate(), rng=RNG, now_ms=0)
    assert refused.value.code == Code.POLICY_VIOLATION


def test_partitions(state: ControllerState) -> None:
    def create(*topics: TopicToCreate) -> list[Code]:
        decision = state.decide_create_topics(topics, rng=RNG)
        for record in decision.records:
            state.apply(record)
        return [one.code for one in decision.reply]

    assert create(TopicToCreate("a", 6), TopicToCreate("b", 5), TopicToCreate("c", 3)) == [
        Code.NONE,
        Code.POLICY_VIOLATION,
        Code.NONE,
    ]
    grown = state.decide_create_partitions([TopicToGrow("a", 8)], rng=RNG)
    assert [one.code for one in grown.reply] == [Code.POLICY_VIOLATION]
    grown = state.decide_create_partitions([TopicToGrow("a", 7)], rng=RNG)
    for record in grown.records:
        state.apply(record)
    assert create(TopicToCreate("d", 1)) == [Code.POLICY_VIOLATION]
    internal = sorted(INTERNAL_TOPICS)[0]
    assert create(TopicToCreate(internal, 1)) == [Code.NONE]
    for record in state.decide_delete_topics([TopicToDelete("a")]).records:
        state.apply(record)
    assert state.clone().decide_create_topics([TopicToCreate("d", 6)], rng=RNG).reply[0].code == Code.NONE
    assert create(TopicToCreate("d", 7)) == [Code.POLICY_VIOLATION]


def test_settings_of_groups(state: ControllerState) -> None:
    def to_alter(*groups: str, value: str = "50000") -> list[ConfigsToAlter]:
        change = ConfigChange("consumer.session.timeout.ms", ConfigOperation.SET, value)
        return [ConfigsToAlter(ResourceKey(ResourceType.GROUP, group), (change,)) for group in groups]

    decision = state.decide_alter_configs(to_alter("a", "b", "c"))
    assert [one.code for one in decision.reply] == [Code.NONE, Code.NONE, Code.POLICY_VIOLATION]
    for record in decision.records:
        state.apply(record)
    again = state.decide_alter_configs(to_alter("a", "c", value="51000"))
    assert [one.code for one in again.reply] == [Code.NONE, Code.POLICY_VIOLATION]
