"""ElectLeaders: in the partitions that are named, or in all; and settings that change who may lead."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest

from tidelog.base.errors import Code
from tidelog.base.ids import BrokerEpoch, BrokerId, Offset, PartitionIndex, TopicId, TopicPartition
from tidelog.controller import (
    BrokerSessions,
    ConfigChange,
    ConfigsToAlter,
    ControllerSettings,
    ControllerState,
    ElectionType,
    Heartbeat,
)
from tidelog.journal import Decision
from tidelog.metadata import PartitionImage, ResourceKey, ResourceType
from tidelog.metadata.records import ConfigRecord, PartitionRecord, RegisterBrokerRecord, TopicRecord

ONE, TWO, THREE = (BrokerId(number) for number in (1, 2, 3))
OFFSETS = "__consumer_offsets"


def cluster(*active: BrokerId, log_dirs: Mapping[BrokerId, list[UUID]] | None = None) -> ControllerState:
    """Brokers of which only some are active, without topics."""
    state = ControllerState(ControllerSettings())
    for broker in (ONE, TWO, THREE):
        state.apply(
            RegisterBrokerRecord(
                broker_id=broker,
                incarnation_id=UUID(int=broker),
                broker_epoch=broker,
                end_points=[],
                features=[],
                fenced=broker not in active,
                log_dirs=(log_dirs or {}).get(broker, []),
            )
        )
    return state


def add(
    state: ControllerState,
    name: str,
    *,
    leader: int = -1,
    isr: tuple[int, ...] = (),
    eligible: tuple[int, ...] = (),
    known: tuple[int, ...] = (),
    directories: tuple[UUID, ...] = (),
) -> None:
    topic_id = TopicId(UUID(int=100 + len(state.metadata.topics_by_id)))
    state.apply(TopicRecord(name=name, topic_id=topic_id))
    state.apply(
        PartitionRecord(
            partition_id=0,
            topic_id=topic_id,
            replicas=[1, 2, 3],
            isr=list(isr),
            leader=leader,
            leader_epoch=3,
            partition_epoch=4,
            eligible_leader_replicas=list(eligible),
            last_known_elr=list(known),
            directories=list(directories),
        )
    )


def run(state: ControllerState, decision: Decision[object]) -> None:
    for record in decision.records:
        state.apply(record)


def partition(state: ControllerState, name: str) -> PartitionImage:
    return state.metadata.topics_by_name[name].partitions[0]


def named(name: str, index: int = 0) -> TopicPartition:
    return TopicPartition(name, PartitionIndex(index))


def test_the_preferred_leaders_of_all_topics() -> None:
    state = cluster(ONE, TWO)
    add(state, "moves", leader=2, isr=(1, 2))
    add(state, "stays", leader=1, isr=(1, 2))
    add(state, "cannot", leader=2, isr=(2,))
    decision = state.decide_elect_leaders(ElectionType.PREFERRED)
    assert [(one.topic_partition.topic, one.code) for one in decision.reply] == [
        ("moves", Code.NONE),
        ("cannot", Code.PREFERRED_LEADER_NOT_AVAILABLE),
    ]
    run(state, decision)
    assert (partition(state, "moves").leader, partition(state, "moves").leader_epoch) == (1, 4)


def test_of_named_partitions_each_is_answered() -> None:
    state = cluster(ONE, TWO)
    add(state, "stays", leader=1, isr=(1, 2))
    asked = [named("stays"), named("none"), named("stays", 1), named("stays", -1), named("stays")]
    decision = state.decide_elect_leaders(ElectionType.UNCLEAN, asked)
    assert [one.code for one in decision.reply] == [
        Code.ELECTION_NOT_NEEDED,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert decision.records == ()


def test_of_all_partitions_those_that_went_meanwhile_are_left_out_of_the_answer() -> None:
    gone = TopicPartition("gone", PartitionIndex(0))
    state = ControllerState(ControllerSettings())
    (named,) = state.decide_elect_leaders(ElectionType.PREFERRED, [gone]).reply
    assert named.code is Code.UNKNOWN_TOPIC_OR_PARTITION
    assert state.decide_elect_leaders(ElectionType.PREFERRED, [gone], is_of_all=True).reply == ()


def test_an_unclean_election_of_all_topics_leaves_the_internal_ones_out() -> None:
    state = cluster(TWO)
    add(state, "lost")
    add(state, OFFSETS)
    decision = state.decide_elect_leaders(ElectionType.UNCLEAN)
    assert [one.topic_partition.topic for one in decision.reply] == ["lost"]
    run(state, decision)
    assert (partition(state, "lost").leader, partition(state, "lost").is_recovering) == (2, True)
    assert partition(state, OFFSETS).leader is None
    run(state, state.decide_elect_leaders(ElectionType.UNCLEAN, [named(OFFSETS)]))
    assert (partition(state, OFFSETS).leader, partition(state, OFFSETS).is_recovering) == (2, True), "it was named"


def test_preferred_leaders_of_internal_topics_lead_again_as_any() -> None:
    state = cluster(ONE, TWO)
    add(state, OFFSETS, leader=2, isr=(1, 2))
    assert [one.code for one in state.decide_elect_leaders(ElectionType.PREFERRED).reply] == [Code.NONE]


def test_who_commits_alone_leaves_nobody_else_eligible() -> None:
    """The setting and its consequence are one batch: no leader goes by the one without the other."""
    state = cluster(ONE, TWO)
    for name in ("t", "other"):
        add(state, name, leader=1, isr=(1,), eligible=(2,))
        state.apply(ConfigRecord(resource_type=2, resource_name=name, name="min.insync.replicas", value="2"))
    change = ConfigsToAlter(ResourceKey(ResourceType.TOPIC, "t"), [ConfigChange("min.insync.replicas", 0, "1")])
    decision = state.decide_alter_configs([change])
    assert len(decision.records) == 2
    run(state, decision)
    assert partition(state, "t").eligible_leader_replicas == ()
    assert (partition(state, "t").isr, partition(state, "t").leader_epoch) == ((1,), 3)
    assert partition(state, "other").eligible_leader_replicas == (2,)


def test_what_all_brokers_share_changes_who_is_eligible_too() -> None:
    state = cluster(ONE, TWO)
    add(state, "t", leader=1, isr=(1,), eligible=(2,))
    add(state, "once", leader=1, isr=(1,), known=(2,))
    add(state, "settled", leader=1, isr=(1, 2))
    everywhere = ResourceKey(ResourceType.BROKER, "")
    state.apply(ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2"))
    unrelated = ConfigsToAlter(everywhere, [ConfigChange("log.retention.ms", 0, "77000000")])
    assert len(state.decide_alter_configs([unrelated]).records) == 1
    decision = state.decide_alter_configs([ConfigsToAlter(everywhere, [ConfigChange("min.insync.replicas", 1)])])
    assert len(decision.records) == 3, "nothing is said of a partition where nobody else was eligible"
    run(state, decision)
    assert partition(state, "t").eligible_leader_replicas == ()
    assert partition(state, "once").last_known_eligible_leader_replicas == ()


# Elections that a setting allows.

UNCLEAN = "unclean.leader.election.enable"
ALL_BROKERS = ResourceKey(ResourceType.BROKER, "")


def allow(state: ControllerState, resource: ResourceKey, text: str | None = "true") -> None:
    change = ConfigChange(UNCLEAN, 1 if text is None else 0, text)
    decision = state.decide_alter_configs([ConfigsToAlter(resource, [change])])
    assert [one.code for one in decision.reply] == [Code.NONE]
    run(state, decision)


def topic(name: str) -> ResourceKey:
    return ResourceKey(ResourceType.TOPIC, name)


def test_allowing_it_elects_where_nobody_leads() -> None:
    state = cluster(TWO)
    add(state, "a", eligible=(1,), known=(3,))
    add(state, "b", eligible=(1,))
    allow(state, topic("a"))
    assert (partition(state, "a").leader, partition(state, "a").isr) == (TWO, (TWO,))
    assert partition(state, "a").is_recovering, "so everybody knows that records may be gone"
    assert partition(state, "a").eligible_leader_replicas == ()
    assert partition(state, "b").leader is None
    allow(state, ALL_BROKERS)
    assert partition(state, "b").leader == TWO


def test_internal_topics_are_elected_uncleanly_by_their_own_setting_alone() -> None:
    state = cluster(TWO)
    add(state, OFFSETS, eligible=(1,))
    allow(state, ALL_BROKERS)
    assert partition(state, OFFSETS).leader is None
    allow(state, topic(OFFSETS))
    assert partition(state, OFFSETS).leader == TWO


def test_a_topic_may_be_left_out() -> None:
    state = cluster(TWO)
    add(state, "a", eligible=(1,))
    allow(state, topic("a"), "false")
    allow(state, ALL_BROKERS)
    assert partition(state, "a").leader is None
    allow(state, topic("a"), None)
    assert partition(state, "a").leader == TWO


def test_whoever_leads_when_it_is_allowed_leads_on() -> None:
    state = cluster(ONE, TWO)
    add(state, "a", leader=1, isr=(1, 2))
    before = partition(state, "a")
    allow(state, topic("a"))
    assert partition(state, "a") == before


def test_who_goes_is_followed_by_any_replica_if_it_is_allowed() -> None:
    state = cluster(ONE, TWO)
    add(state, "a", leader=1, isr=(1,))
    add(state, "b", leader=1, isr=(1,))
    allow(state, topic("a"))
    run(state, state.decide_fence_broker(ONE, BrokerEpoch(ONE)))
    state_of_a = partition(state, "a")
    assert (state_of_a.leader, state_of_a.isr, state_of_a.is_recovering) == (TWO, (TWO,), True)
    assert (state_of_a.leader_epoch, state_of_a.partition_epoch) == (4, 5)
    assert partition(state, "b").leader is None


def test_who_comes_leads_if_it_is_allowed() -> None:
    state = cluster()
    add(state, "a", eligible=(1,))
    allow(state, topic("a"))
    run(state, state.decide_unfence_broker(THREE, BrokerEpoch(THREE)))
    assert partition(state, "a").leader == THREE
    run(state, state.decide_unfence_broker(ONE, BrokerEpoch(ONE)))
    assert partition(state, "a").leader == THREE, "its log is the truth now"


def test_who_may_lead_without_a_loss_comes_first() -> None:
    state = cluster(ONE, TWO, THREE)
    add(state, "a", leader=1, isr=(1,), eligible=(3,))
    allow(state, ALL_BROKERS)
    state.apply(ConfigRecord(resource_type=2, resource_name="a", name="min.insync.replicas", value="2"))
    run(state, state.decide_fence_broker(ONE, BrokerEpoch(ONE)))
    assert (partition(state, "a").leader, partition(state, "a").is_recovering) == (THREE, False)


def test_a_controlled_shutdown_elects_nobody_uncleanly() -> None:
    state = cluster(ONE, TWO)
    add(state, "a", leader=1, isr=(1,))
    allow(state, topic("a"))
    sessions = BrokerSessions(state.metadata, end_offset=Offset(9), now_ms=0)
    going = Heartbeat(ONE, BrokerEpoch(ONE), Offset(8), wants_shut_down=True)
    decision = state.decide_heartbeat(going, sessions, next_offset=Offset(9), now_ms=0)
    assert decision.reply.should_shut_down, "there is nobody whom it could have waited for"
    run(state, decision)
    assert partition(state, "a").leader == TWO, "once it is gone, and only then"


LOST, LEFT, OTHER = UUID(int=10), UUID(int=11), UUID(int=20)


@pytest.mark.parametrize(
    ("directories", "leader"),
    [
        ((LOST, OTHER, OTHER), TWO),  # what lies there can be read by nobody
        ((LEFT, OTHER, OTHER), ONE),
        ((UUID(int=0), OTHER, OTHER), ONE),  # nobody has said where it lies
        ((), ONE),
    ],
)
def test_nobody_is_elected_whose_replica_lies_in_a_directory_that_failed(
    directories: tuple[UUID, ...], leader: BrokerId
) -> None:
    """It was the last that is known to have held everything: an unclean election asks for it first."""
    state = cluster(ONE, TWO, log_dirs={ONE: [LEFT], TWO: [OTHER], THREE: [OTHER]})
    add(state, "a", isr=(), eligible=(3,), known=(1,), directories=directories)
    run(state, state.decide_elect_leaders(ElectionType.UNCLEAN, [named("a")]))
    assert partition(state, "a").leader == leader


def test_a_preferred_leader_needs_its_directory() -> None:
    state = cluster(ONE, TWO, THREE, log_dirs={ONE: [LEFT], TWO: [OTHER], THREE: [OTHER]})
    add(state, "a", leader=2, isr=(1, 2, 3), directories=(LOST, OTHER, OTHER))
    [refused] = state.decide_elect_leaders(ElectionType.PREFERRED, [named("a")]).reply
    assert refused.code == Code.PREFERRED_LEADER_NOT_AVAILABLE


def test_a_clean_election_passes_over_who_lost_its_directory() -> None:
    state = cluster(ONE, TWO, THREE, log_dirs={ONE: [LEFT], TWO: [OTHER], THREE: [OTHER]})
    add(state, "a", leader=3, isr=(1, 2, 3), directories=(LOST, OTHER, OTHER))
    run(state, state.decide_fence_broker(THREE, BrokerEpoch(THREE)))
    assert partition(state, "a").leader == TWO
