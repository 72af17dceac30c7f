"""Which elections are unclean, and who ordered them."""

from __future__ import annotations

from uuid import UUID

import pytest

from tidelog.base.ids import BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicPartition
from tidelog.controller import ConfigChange, ConfigsToAlter, ControllerSettings, ControllerState, ElectionType
from tidelog.controller.unclean_elections import BY_OPERATOR, BY_SETTING, UncleanElection
from tidelog.controller.values import ConfigOperation
from tidelog.journal import Decision
from tidelog.metadata import ResourceKey, ResourceType
from tidelog.metadata.records import PartitionRecord, RegisterBrokerRecord, TopicRecord
from tidelog.metadata.records.topics import PartitionChangeRecord

TOPIC = TopicId(UUID(int=7))
FLIGHTS = TopicPartition("flights", PartitionIndex(0))
ONE, TWO = BrokerId(1), BrokerId(2)
EXPECTED = UncleanElection(FLIGHTS, TWO, LeaderEpoch(4), (ONE,), BY_OPERATOR)


def leaderless(
    *, isr: tuple[int, ...] = (), eligible: tuple[int, ...] = (), known: tuple[int, ...] = ()
) -> ControllerState:
    """A partition that nobody leads, on brokers 1, which is fenced, and 2."""
    state = ControllerState(ControllerSettings())
    for broker in (1, 2):
        state.apply(
            RegisterBrokerRecord(
                broker_id=broker,
                broker_epoch=broker,
                incarnation_id=UUID(int=broker),
                end_points=[],
                features=[],
                fenced=broker == 1,
            )
        )
    state.apply(TopicRecord(name="flights", topic_id=TOPIC))
    state.apply(
        PartitionRecord(
            topic_id=TOPIC,
            partition_id=0,
            replicas=[1, 2],
            isr=list(isr),
            leader=-1,
            leader_epoch=3,
            eligible_leader_replicas=list(eligible),
            last_known_elr=list(known),
        )
    )
    state.unclean_elections = []
    assert state.clone().unclean_elections is None, "what is not committed is nobody's business"
    return state


def run(state: ControllerState, decision: Decision[object]) -> list[UncleanElection]:
    for record in decision.records:
        state.apply(record)
    assert state.unclean_elections is not None
    return state.unclean_elections


@pytest.mark.parametrize("standing", [{"isr": (1,)}, {"eligible": (1,)}, {"known": (1,)}])
def test_an_operator_has_one_elected_that_was_not_in_sync(standing: dict[str, tuple[int, ...]]) -> None:
    state = leaderless(**standing)
    assert run(state, state.decide_elect_leaders(ElectionType.UNCLEAN, [FLIGHTS])) == [EXPECTED]


def test_the_setting_does_it_by_itself() -> None:
    state = leaderless(eligible=(1,))
    change = ConfigChange("unclean.leader.election.enable", ConfigOperation.SET, "true")
    resource = ResourceKey(ResourceType.TOPIC, "flights")
    found = run(state, state.decide_alter_configs([ConfigsToAlter(resource, (change,))]))
    assert found == [EXPECTED._replace(ordered_by=BY_SETTING)]
    assert BY_SETTING == "unclean.leader.election.enable=true"


def test_an_operator_gets_a_clean_election_where_there_can_be_one() -> None:
    state = leaderless(eligible=(1, 2))
    assert run(state, state.decide_elect_leaders(ElectionType.UNCLEAN, [FLIGHTS])) == []


def test_a_leader_that_lost_power_and_leads_again_was_not_elected_uncleanly() -> None:
    """The metadata says of it, too, from which leader epoch on committed records may be missing."""
    state = leaderless(isr=(2,))
    again = PartitionChangeRecord(topic_id=TOPIC, partition_id=0, leader=2, unclean_epoch=4)
    assert run(state, Decision((again,), None)) == []


def test_broker_0_is_elected_uncleanly_as_any_other_one() -> None:
    state = leaderless(isr=(1,))
    state.apply(PartitionChangeRecord(topic_id=TOPIC, partition_id=0, replicas=[1, 0]))
    elected = PartitionChangeRecord(topic_id=TOPIC, partition_id=0, leader=0, isr=[0], unclean_epoch=4)
    assert run(state, Decision((elected,), None)) == [EXPECTED._replace(leader=BrokerId(0))]


def test_an_election_that_loses_nothing_is_not_unclean_whoever_wins_it() -> None:
    state = leaderless(isr=(1,))
    clean = PartitionChangeRecord(topic_id=TOPIC, partition_id=0, leader=2, isr=[1, 2])
    assert run(state, Decision((clean,), None)) == []
