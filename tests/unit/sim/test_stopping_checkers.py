"""StoppedMeansStopped: what may be deleted, what may not, and what has to be still."""

from __future__ import annotations

from uuid import UUID

from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionEpoch, PartitionIndex, TopicId
from tidelog.metadata import MetadataImage, PartitionImage
from tidelog.metadata.image import TopicImage
from tidelog.replica import ReplicaId
from tidelog.sim.checkers.stopping import BrokerView, StoppedMeansStopped

A, B = BrokerId(1), BrokerId(2)
TOPIC = TopicId(UUID(int=1))
LOG = ReplicaId(TOPIC, PartitionIndex(0))
NONE: frozenset[ReplicaId] = frozenset()


def image(*replicas: BrokerId, isr: tuple[BrokerId, ...] = (), leader_epoch: int = 0) -> MetadataImage:
    """The topic with these replicas; none: there is no such topic."""
    state = PartitionImage(replicas, isr, None, LeaderEpoch(leader_epoch), PartitionEpoch(0))
    topic = TopicImage("t", TOPIC, (state,))
    return MetadataImage(
        topics_by_name={"t": topic} if replicas else {},
        topics_by_id={TOPIC: topic} if replicas else {},
        last_offset=Offset(leader_epoch),
    )


def look(
    checker: StoppedMeansStopped,
    applied: MetadataImage,
    *,
    held: bool = True,
    stopped: bool = False,
    serving: bool = False,
    latest: MetadataImage | None = None,
) -> list[str]:
    logs = frozenset({LOG})
    view = BrokerView(A, logs if held else NONE, logs if stopped else NONE, logs if serving else NONE, applied, "A")
    return [str(one) for one in checker.check([view], applied if latest is None else latest)]


def test_a_replica_that_the_metadata_assigns_is_not_deleted() -> None:
    checker = StoppedMeansStopped()
    assert look(checker, image(A, B, leader_epoch=3)) == []
    assert look(checker, image(A, B, leader_epoch=3), held=False) == [
        "StoppedMeansStopped: A deleted t-0, which the metadata assigns to it in leader epoch 3"
    ]
    assert look(checker, image(A, B, leader_epoch=3), held=False) == [], "it is told once"


def test_one_that_is_assigned_elsewhere_or_whose_topic_is_gone_is() -> None:
    for applied in (image(B), image()):
        checker = StoppedMeansStopped()
        look(checker, image(A, B))
        assert look(checker, applied, held=False) == []


def test_what_its_broker_has_not_heard_of_yet_counts_for_nothing() -> None:
    checker = StoppedMeansStopped()
    look(checker, image(A, B))
    told = look(checker, image(A, B), held=False, latest=image(B))
    assert told == ["StoppedMeansStopped: A deleted t-0, which the metadata assigns to it in leader epoch 0"]


def test_a_replica_that_was_added_again_unheard_has_nothing_to_lose_until_it_is_in_sync() -> None:
    for isr, is_broken in (((B,), False), ((A, B), True)):
        checker = StoppedMeansStopped()
        look(checker, image(A, B))
        told = look(checker, image(B), held=False, latest=image(A, B, isr=isr, leader_epoch=2))
        assert told == (["StoppedMeansStopped: A deleted t-0, of which it is in sync"] if is_broken else [])


def test_what_was_told_to_stop_serves_no_more() -> None:
    checker = StoppedMeansStopped()
    assert look(checker, image(A), stopped=True) == []
    assert look(checker, image(A), serving=True) == []
    assert look(checker, image(A), stopped=True, serving=True) == [
        "StoppedMeansStopped: A was told to stop t-0, and serves on"
    ]
