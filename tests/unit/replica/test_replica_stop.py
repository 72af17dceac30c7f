"""StopReplica: what is late does nothing, and files go only when the broker's own metadata agrees."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    TopicId,
    TopicPartition,
)
from tidelog.metadata import PartitionImage
from tidelog.metadata.image import MetadataImage, TopicImage
from tidelog.replica.stop import (
    METADATA_AHEAD_MAX,
    HeldReplica,
    ReplicaId,
    StopOrder,
    StoppedReplicas,
    StopReady,
    check_metadata_offset,
    check_stop_order,
    check_stop_request,
)

US, OTHER = BrokerId(1), BrokerId(2)
PARTITION = TopicPartition("a", PartitionIndex(0))
OLD, NEW = TopicId(UUID(int=1)), TopicId(UUID(int=2))
REPLICA = ReplicaId(OLD, PartitionIndex(0))
EPOCH = LeaderEpoch(5)
NOTHING = StopReady((), (), ())


def image(offset: int, *, epoch: int | None, replicas: tuple[BrokerId, ...] = (US, OTHER)) -> MetadataImage:
    """Topic `OLD` at an offset of the metadata log; without an epoch it does not exist."""
    if epoch is None:
        return MetadataImage(last_offset=Offset(offset))
    state = PartitionImage(replicas, replicas, replicas[0], LeaderEpoch(epoch), PartitionEpoch(epoch))
    topic = TopicImage("a", OLD, (state,))
    return MetadataImage({"a": topic}, {OLD: topic}, last_offset=Offset(offset))


def order(
    *, epoch: int | None = 5, topic_id: TopicId | None = OLD, deletes: bool = True, offset: int | None = 20
) -> StopOrder:
    return StopOrder(
        PARTITION,
        topic_id,
        None if epoch is None else LeaderEpoch(epoch),
        deletes,
        None if offset is None else Offset(offset),
    )


@pytest.mark.parametrize(
    ("controller_epoch", "broker_epoch", "code"),
    [
        (7, 3, None),
        (8, 3, None),
        (6, 3, Code.STALE_CONTROLLER_EPOCH),
        (7, 2, Code.STALE_BROKER_EPOCH),
        (6, 2, Code.STALE_CONTROLLER_EPOCH),
        (7, 4, None),
        (7, None, Code.STALE_BROKER_EPOCH),
    ],
)
def test_the_epochs_of_controller_and_broker_come_first(
    controller_epoch: int, broker_epoch: int | None, code: Code | None
) -> None:
    found = None
    try:
        check_stop_request(
            sent_controller_epoch=ControllerEpoch(controller_epoch),
            controller_epoch=ControllerEpoch(7),
            sent_broker_epoch=None if broker_epoch is None else BrokerEpoch(broker_epoch),
            broker_epoch=BrokerEpoch(3),
        )
    except KafkaError as error:
        found = error.code
    assert found == code


def test_any_controller_is_the_first_that_is_heard_of() -> None:
    check_stop_request(
        sent_controller_epoch=ControllerEpoch(0),
        controller_epoch=None,
        sent_broker_epoch=BrokerEpoch(3),
        broker_epoch=BrokerEpoch(3),
    )


@pytest.mark.parametrize("offset", [None, 0, 99, 100, 99 + METADATA_AHEAD_MAX])
def test_an_order_may_be_ahead_of_the_metadata(offset: int | None) -> None:
    check_metadata_offset(None if offset is None else Offset(offset), Offset(100))


@pytest.mark.parametrize("offset", [100 + METADATA_AHEAD_MAX, (1 << 63) - 1])
def test_an_order_is_not_of_a_record_that_no_controller_can_have_written(offset: int) -> None:
    with pytest.raises(KafkaError, match="heard of it up to 100") as refused:
        check_metadata_offset(Offset(offset), Offset(100))
    assert refused.value.code == Code.INVALID_REQUEST


@pytest.mark.parametrize(
    ("sent", "held", "code"),
    [
        (order(epoch=4), HeldReplica(OLD, EPOCH), Code.STALE_CONTROLLER_EPOCH),
        (order(epoch=5), HeldReplica(OLD, EPOCH), None),
        (order(epoch=6), HeldReplica(OLD, EPOCH), None),
        (order(epoch=4, topic_id=None), HeldReplica(OLD, EPOCH), Code.STALE_CONTROLLER_EPOCH),
        (order(epoch=5, topic_id=None), HeldReplica(OLD, EPOCH), None),
        (order(epoch=9), HeldReplica(NEW, EPOCH), Code.INCONSISTENT_TOPIC_ID),
        (order(epoch=None), HeldReplica(OLD, EPOCH), None),
        (order(epoch=None), HeldReplica(NEW, EPOCH), Code.INCONSISTENT_TOPIC_ID),
        (order(epoch=None, topic_id=None), HeldReplica(OLD, EPOCH), Code.STALE_CONTROLLER_EPOCH),
        (order(epoch=None, deletes=False), HeldReplica(OLD, EPOCH), Code.STALE_CONTROLLER_EPOCH),
        (order(epoch=0), HeldReplica(OLD, None), None),
        (order(epoch=None), HeldReplica(OLD, None), None),
        (order(epoch=None), HeldReplica(NEW, None), Code.INCONSISTENT_TOPIC_ID),
        (order(epoch=6, offset=None), HeldReplica(OLD, None), Code.STALE_CONTROLLER_EPOCH),
        (order(epoch=None, offset=None), HeldReplica(OLD, None), Code.STALE_CONTROLLER_EPOCH),
    ],
)
def test_which_orders_are_overtaken(sent: StopOrder, held: HeldReplica, code: Code | None) -> None:
    stopped = StoppedReplicas(US)
    before = stopped.canonical_key()
    if code is None:
        check_stop_order(sent, held)
        return
    with pytest.raises(KafkaError) as refused:
        stopped.on_order(sent, held, image(10, epoch=5))
    assert refused.value.code is code
    assert stopped.canonical_key() == before
    assert stopped.take_ready() == NOTHING


def test_it_stops_at_once_and_is_deleted_when_the_metadata_agrees() -> None:
    stopped = StoppedReplicas(US)
    stopped.on_order(order(epoch=6), HeldReplica(OLD, EPOCH), image(10, epoch=5))
    assert stopped.take_ready() == StopReady((REPLICA,), (), ())
    assert stopped.is_stopped(REPLICA)
    stopped.on_image(image(19, epoch=None))
    assert stopped.take_ready() == NOTHING, "what was applied is older than the order"
    stopped.on_image(image(20, epoch=6, replicas=(OTHER,)))
    assert stopped.take_ready() == StopReady((), (REPLICA,), ())
    assert not stopped.is_stopped(REPLICA)
    stopped.on_image(image(21, epoch=None))
    assert stopped.take_ready() == NOTHING


def test_an_order_that_an_assignment_overtook_deletes_nothing() -> None:
    stopped = StoppedReplicas(US)
    stopped.on_order(order(epoch=6), HeldReplica(OLD, EPOCH), image(10, epoch=5))
    stopped.on_image(image(25, epoch=7))
    assert stopped.take_ready() == StopReady((REPLICA,), (), (REPLICA,))
    stopped.on_order(order(epoch=7), HeldReplica(OLD, LeaderEpoch(7)), image(25, epoch=7))
    assert stopped.take_ready() == StopReady((REPLICA,), (), (REPLICA,)), "the metadata is the truth"


def test_who_stops_without_deletion_keeps_the_files() -> None:
    stopped = StoppedReplicas(US)
    stopped.on_order(order(deletes=False), HeldReplica(OLD, EPOCH), image(30, epoch=6, replicas=(OTHER,)))
    assert stopped.take_ready() == StopReady((REPLICA,), (), ())
    assert not stopped.is_stopped(REPLICA)


def test_without_an_offset_only_a_newer_assignment_lifts_the_order() -> None:
    stopped = StoppedReplicas(US)
    stopped.on_order(order(offset=None), HeldReplica(OLD, EPOCH), image(10, epoch=5))
    assert stopped.take_ready() == StopReady((REPLICA,), (), ())
    stopped.on_image(image(11, epoch=5))
    assert stopped.take_ready() == NOTHING
    stopped.on_image(image(12, epoch=6))
    assert stopped.take_ready() == StopReady((), (), (REPLICA,))
    stopped.on_order(order(epoch=None, offset=None), HeldReplica(OLD, EPOCH), image(12, epoch=6))
    stopped.on_image(image(13, epoch=7))
    assert stopped.is_stopped(REPLICA), "a topic id that is deleted never comes back"
    stopped.on_image(image(14, epoch=None))
    assert stopped.take_ready() == StopReady((REPLICA,), (REPLICA,), ())


def test_without_an_offset_what_is_assigned_to_others_alone_goes() -> None:
    stopped = StoppedReplicas(US)
    stopped.on_order(order(offset=None), HeldReplica(OLD, EPOCH), image(10, epoch=5, replicas=(OTHER,)))
    assert stopped.take_ready() == StopReady((REPLICA,), (REPLICA,), ())


@pytest.mark.parametrize("epoch", [6, None])
def test_without_an_offset_nothing_goes_before_the_metadata_is_as_new_as_the_order(epoch: int | None) -> None:
    stopped = StoppedReplicas(US)
    lagging = image(10, epoch=5, replicas=(OTHER,))  # we may be among its replicas again by now
    stopped.on_order(order(epoch=epoch, offset=None), HeldReplica(OLD, EPOCH), lagging)
    assert stopped.take_ready() == StopReady((REPLICA,), (), ())
    stopped.on_image(image(20, epoch=None if epoch is None else 6, replicas=(OTHER,)))
    assert stopped.take_ready() == StopReady((), (REPLICA,), ())


def test_before_any_metadata_nothing_is_deleted() -> None:
    stopped = StoppedReplicas(US)
    stopped.on_order(order(), HeldReplica(OLD, None), MetadataImage())
    assert stopped.take_ready() == StopReady((REPLICA,), (), ())
    assert stopped.is_stopped(REPLICA)


@pytest.mark.parametrize("epochs", [(None, 6), (6, None)])
def test_who_is_deleted_for_good_is_not_brought_back_by_another_order(epochs: tuple[int | None, int | None]) -> None:
    stopped = StoppedReplicas(US)
    for epoch in epochs:
        stopped.on_order(order(epoch=epoch, offset=None), HeldReplica(OLD, EPOCH), image(10, epoch=5))
    stopped.on_image(image(11, epoch=7))
    assert stopped.is_stopped(REPLICA)


@pytest.mark.parametrize("deletions", [(True, False), (False, True)])
def test_one_of_two_orders_to_delete_is_enough(deletions: tuple[bool, bool]) -> None:
    stopped = StoppedReplicas(US)
    for deletes in deletions:
        stopped.on_order(order(deletes=deletes), HeldReplica(OLD, EPOCH), image(10, epoch=5))
    stopped.on_image(image(20, epoch=None))
    assert stopped.take_ready() == StopReady((REPLICA,), (REPLICA,), ())


def test_a_second_order_joins_the_first() -> None:
    stopped = StoppedReplicas(US)
    held, applied = HeldReplica(OLD, EPOCH), image(10, epoch=5)
    stopped.on_order(order(epoch=5, deletes=False, offset=30), held, applied)
    stopped.on_order(order(epoch=6, deletes=True, offset=20), held, applied)
    assert stopped.take_ready() == StopReady((REPLICA,), (), ())
    stopped.on_image(image(25, epoch=None))
    assert stopped.is_stopped(REPLICA)
    stopped.on_image(image(30, epoch=None))
    assert stopped.take_ready() == StopReady((), (REPLICA,), ())


def test_of_two_orders_the_newer_epoch_counts() -> None:
    stopped = StoppedReplicas(US)
    held, applied = HeldReplica(OLD, EPOCH), image(10, epoch=5)
    stopped.on_order(order(epoch=7, offset=None), held, applied)
    stopped.on_order(order(epoch=6, offset=None), held, applied)
    stopped.on_image(image(11, epoch=7))
    assert stopped.is_stopped(REPLICA)
    stopped.on_image(image(12, epoch=8))
    assert not stopped.is_stopped(REPLICA)


def test_a_partition_that_the_topic_lacks_is_assigned_to_nobody() -> None:
    stopped = StoppedReplicas(US)
    second = replace(order(), topic_partition=TopicPartition("a", PartitionIndex(1)))
    stopped.on_order(second, HeldReplica(OLD, None), image(20, epoch=5))
    replica = ReplicaId(OLD, PartitionIndex(1))
    assert stopped.take_ready() == StopReady((replica,), (replica,), ())


def test_what_is_not_here_needs_no_stop() -> None:
    stopped = StoppedReplicas(US)
    stopped.on_order(order(), None, image(10, epoch=5))
    assert stopped.take_ready() == NOTHING
    assert not stopped.is_stopped(REPLICA)


def test_a_stray_log_of_an_unknown_topic_is_deleted_by_its_id() -> None:
    stopped = StoppedReplicas(US)
    stopped.on_order(order(epoch=None), HeldReplica(OLD, None), image(20, epoch=None))
    assert stopped.take_ready() == StopReady((REPLICA,), (REPLICA,), ())


def test_a_copy_goes_its_own_way() -> None:
    stopped = StoppedReplicas(US)
    stopped.on_order(order(epoch=6), HeldReplica(OLD, EPOCH), image(10, epoch=5))
    copy = stopped.clone()
    assert copy.canonical_key() == stopped.canonical_key()
    copy.on_image(image(20, epoch=None))
    assert copy.canonical_key() != stopped.canonical_key()
    assert stopped.is_stopped(REPLICA)


def test_what_no_metadata_bears_out_in_time_is_as_if_it_had_never_been_ordered() -> None:
    machine = StoppedReplicas(US)
    known = image(10, epoch=5)
    machine.on_order(order(offset=1 << 60), HeldReplica(OLD, EPOCH), known)
    assert machine.take_ready() == StopReady((REPLICA,), (), ())
    assert set(machine.stopped) == {REPLICA}
    machine.on_metadata_timeout(REPLICA, known)
    assert machine.take_ready() == StopReady((), (), (REPLICA,))
    machine.on_metadata_timeout(REPLICA, known)
    assert machine.take_ready() == StopReady((), (), ())
    assert not machine.stopped
    machine.on_order(order(epoch=None, offset=1 << 60), HeldReplica(OLD, EPOCH), known)
    machine.on_metadata_timeout(REPLICA, image(11, epoch=None))
    assert machine.take_ready() == StopReady((REPLICA,), (), ())
