"""The account of losses at the controller: what opens an entry, what is told for it, what closes and forgets it."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    ProducerId,
    TopicId,
    TopicPartition,
)
from tidelog.base.losses import PRODUCERS_MAX, Loss, LossCause, LossId, ReplicaFate, ReplicaLoss
from tidelog.controller import ControllerSettings, ControllerState, ElectionType, ToldLoss
from tidelog.metadata import MetadataImage
from tidelog.metadata.difference import records_between
from tidelog.metadata.draft import MetadataDraft
from tidelog.metadata.records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_record,
    encode_record,
)
from tidelog.wire.messages.losses import entry_of, loss_of

NOW_MS = 1_700_000_000_000
TOPIC = TopicId(UUID(int=7))
FLIGHTS = TopicPartition("flights", PartitionIndex(0))
AT_4 = LossId(TOPIC, PartitionIndex(0), LeaderEpoch(4))
CUT = ReplicaLoss(
    BrokerId(1),
    ReplicaFate.CUT,
    end_offset=Offset(40),
    cut_from=Offset(30),
    high_watermark=Offset(35),
    first_epoch=LeaderEpoch(2),
    last_epoch=LeaderEpoch(3),
    first_timestamp_ms=5,
    last_timestamp_ms=9,
    producer_ids=(ProducerId(77),),
    producer_count=1,
    kept_size_bytes=1000,
)


def led_by_nobody(partitions: int = 1, **settings: str) -> ControllerState:
    """Partitions whose replica in sync, broker 1, is away; broker 2 is there, broker 3 not."""
    state = ControllerState(ControllerSettings())
    for broker in (1, 2, 3):
        state.apply(
            RegisterBrokerRecord(
                broker_id=broker,
                broker_epoch=broker,
                incarnation_id=UUID(int=broker),
                end_points=[],
                features=[],
                fenced=broker != 2,
            )
        )
    state.apply(TopicRecord(name="flights", topic_id=TOPIC))
    for index in range(partitions):
        state.apply(
            PartitionRecord(
                topic_id=TOPIC,
                partition_id=index,
                replicas=[1, 2, 3],
                isr=[1],
                leader=-1,
                leader_epoch=3,
                partition_epoch=4,
            )
        )
    for name, value in settings.items():
        state.apply(ConfigRecord(resource_type=4, resource_name="", name=name.replace("_", "."), value=value))
    return state


def append(state: ControllerState, records: tuple[object, ...], now_ms: int = NOW_MS) -> None:
    """As the controller appends what was decided: through bytes."""
    for record in state.accounted(records, now_ms=now_ms):
        state.apply(decode_record(encode_record(record)))


def elect(state: ControllerState, index: int = 0, now_ms: int = NOW_MS) -> None:
    partition = TopicPartition("flights", PartitionIndex(index))
    append(state, state.decide_elect_leaders(ElectionType.UNCLEAN, [partition]).records, now_ms)


def losses(state: ControllerState) -> list[Loss]:
    return list(state.metadata.losses.values())


def tell(state: ControllerState, broker: int, replica: ReplicaLoss, loss_id: LossId = AT_4) -> None:
    told = [ToldLoss(loss_id, replica)]
    append(state, state.decide_tell_losses(BrokerId(broker), BrokerEpoch(broker), told, now_ms=NOW_MS + 1).records)


def test_an_unclean_election_opens_an_entry_in_its_own_batch() -> None:
    state = led_by_nobody()
    elect(state)
    (loss,) = losses(state)
    assert loss == Loss(
        *("flights", TOPIC, PartitionIndex(0), LeaderEpoch(4), LossCause.BY_OPERATOR, BrokerId(2), NOW_MS),
        (ReplicaLoss(BrokerId(1)), ReplicaLoss(BrokerId(2)), ReplicaLoss(BrokerId(3))),
    )
    assert (loss.name, loss.id, loss.is_open, loss.awaited, loss.lost_offsets) == (
        "flights-0@4",
        AT_4,
        True,
        (1, 2, 3),
        None,
    )


def test_the_setting_that_allows_it_is_named() -> None:
    state = led_by_nobody(unclean_leader_election_enable="true")
    elect(state)
    assert losses(state)[0].cause is LossCause.BY_SETTING


def test_a_leader_that_may_have_lost_its_own_records_opens_one() -> None:
    state = led_by_nobody()
    append(state, (PartitionChangeRecord(topic_id=TOPIC, partition_id=0, leader=1, unclean_epoch=4),))
    assert losses(state)[0].cause is LossCause.LOST_BY_LEADER


def test_a_clean_election_opens_none() -> None:
    state = led_by_nobody()
    append(state, (PartitionChangeRecord(topic_id=TOPIC, partition_id=0, leader=1),))
    assert losses(state) == []


def test_what_replicas_tell_closes_it() -> None:
    state = led_by_nobody()
    elect(state)
    tell(state, 2, ReplicaLoss(BrokerId(2), ReplicaFate.LED, Offset(30)))
    tell(state, 1, CUT)
    (loss,) = losses(state)
    assert loss.awaited == (3,)
    assert loss.lost_offsets == (30, 40)
    assert loss.is_of_committed
    assert loss.replica(BrokerId(1)) == replace(CUT, told_ms=NOW_MS + 1)
    assert (loss.replicas[0].cut_count, loss.replicas[0].committed_count) == (10, 5)
    tell(state, 3, ReplicaLoss(BrokerId(3), ReplicaFate.WHOLE, Offset(30)))
    (loss,) = losses(state)
    assert not loss.is_open
    assert [one.broker_id for one in loss.replicas] == [1, 2, 3]


def test_what_is_told_again_changes_nothing() -> None:
    state = led_by_nobody()
    elect(state)
    tell(state, 1, CUT)
    again = ToldLoss(AT_4, CUT)
    whole = ToldLoss(AT_4, ReplicaLoss(BrokerId(1), ReplicaFate.WHOLE, Offset(30)))
    assert state.decide_tell_losses(BrokerId(1), BrokerEpoch(1), [again, whole], now_ms=NOW_MS + 9).records == ()


def test_a_replica_that_is_cut_in_two_steps_lost_both() -> None:
    state = led_by_nobody()
    elect(state)
    tell(state, 1, CUT)
    tell(
        state,
        1,
        replace(CUT, end_offset=Offset(30), cut_from=Offset(20), first_epoch=LeaderEpoch(1), kept_size_bytes=500),
    )
    (loss,) = losses(state)
    row = loss.replicas[0]
    assert (row.cut_from, row.end_offset, row.first_epoch, row.last_epoch) == (20, 40, 1, 3)
    assert (row.high_watermark, row.kept_size_bytes) == (35, 1500)


def test_what_was_cut_without_an_entry_opens_one() -> None:
    state = led_by_nobody()
    tell(state, 1, CUT, AT_4._replace(leader_epoch=LeaderEpoch(3)))
    (loss,) = losses(state)
    assert (loss.cause, loss.is_open, loss.lost_offsets) == (LossCause.FOUND, False, (30, 40))
    tell(
        state,
        3,
        ReplicaLoss(BrokerId(3), ReplicaFate.WHOLE, Offset(30)),
        LossId(TOPIC, PartitionIndex(0), LeaderEpoch(9)),
    )
    tell(state, 1, CUT, LossId(TopicId(UUID(int=8)), PartitionIndex(0), LeaderEpoch(9)))
    assert len(losses(state)) == 1


def test_another_incarnation_of_a_broker_tells_nothing() -> None:
    state = led_by_nobody()
    with pytest.raises(KafkaError) as refused:
        state.decide_tell_losses(BrokerId(1), BrokerEpoch(9), [ToldLoss(AT_4, CUT)], now_ms=NOW_MS)
    assert refused.value.code is Code.STALE_BROKER_EPOCH


def test_who_holds_the_partition_no_more_is_awaited_no_more() -> None:
    state = led_by_nobody()
    elect(state)
    tell(state, 2, ReplicaLoss(BrokerId(2), ReplicaFate.LED, Offset(30)))
    append(state, (PartitionChangeRecord(topic_id=TOPIC, partition_id=0, replicas=[2, 3], leader=2),))
    (loss,) = losses(state)
    assert loss.awaited == (3,)
    assert loss.replicas[0].fate is ReplicaFate.LEFT
    append(state, (RemoveTopicRecord(topic_id=TOPIC),))
    (loss,) = losses(state)
    assert not loss.is_open
    assert loss.topic == "flights"


def test_an_operator_acknowledges_it() -> None:
    state = led_by_nobody()
    elect(state)
    unknown = AT_4._replace(leader_epoch=LeaderEpoch(5))
    decision = state.decide_acknowledge_losses([AT_4, unknown], "replayed from the source", now_ms=NOW_MS + 5)
    assert decision.reply == (True, False)
    append(state, decision.records)
    (loss,) = losses(state)
    assert (loss.acknowledged_ms, loss.note, loss.is_open) == (NOW_MS + 5, "replayed from the source", True)


def test_the_account_is_bounded_by_count_and_those_that_are_closed_go_first() -> None:
    state = led_by_nobody(4, losses_retained_max="2")
    elect(state, 0)
    elect(state, 1)
    for broker, fate in ((1, ReplicaFate.WHOLE), (2, ReplicaFate.LED), (3, ReplicaFate.WHOLE)):
        tell(state, broker, ReplicaLoss(BrokerId(broker), fate), LossId(TOPIC, PartitionIndex(1), LeaderEpoch(4)))
    elect(state, 2)
    assert [loss.partition for loss in losses(state)] == [0, 2]
    elect(state, 3)
    assert [loss.partition for loss in losses(state)] == [2, 3]


def test_the_account_is_bounded_by_age() -> None:
    state = led_by_nobody(2, losses_retention_ms="1000")
    elect(state, 0)
    elect(state, 1, NOW_MS + 1001)
    assert [loss.partition for loss in losses(state)] == [1]


def test_a_snapshot_holds_it_and_takes_back_what_it_does_not_hold() -> None:
    state = led_by_nobody(2)
    elect(state, 0)
    tell(state, 1, CUT)
    image = state.metadata.image(Offset(9))
    draft = MetadataDraft(MetadataImage.empty())
    for record in records_between(MetadataImage.empty(), image):
        draft.apply(decode_record(encode_record(record)))
    assert draft.image(Offset(9)).losses == image.losses
    for record in records_between(image, replace(image, losses={})):
        draft.apply(decode_record(encode_record(record)))
    assert draft.losses == {}


def test_what_a_newer_release_says_is_taken_for_the_vaguest() -> None:
    entry = entry_of(Loss("flights", *AT_4, LossCause.BY_SETTING, None, NOW_MS, (CUT,)))
    entry.cause, entry.replicas[0].fate = 99, 99
    loss = loss_of(entry)
    assert (loss.cause, loss.replicas[0].fate) == (LossCause.FOUND, ReplicaFate.AWAITED)


@pytest.mark.parametrize(
    ("loss_id", "replica"),
    [
        (AT_4, CUT),  # no such epoch yet
        (AT_4._replace(partition=PartitionIndex(9), leader_epoch=LeaderEpoch(3)), CUT),
        (AT_4._replace(partition=PartitionIndex(-1), leader_epoch=LeaderEpoch(3)), CUT),
        (AT_4._replace(leader_epoch=LeaderEpoch(-3)), CUT),
        (AT_4._replace(leader_epoch=LeaderEpoch(3)), replace(CUT, cut_from=Offset(40))),
        (AT_4._replace(leader_epoch=LeaderEpoch(3)), replace(CUT, cut_from=None)),
        (AT_4._replace(leader_epoch=LeaderEpoch(3)), replace(CUT, fate=ReplicaFate.AWAITED)),
        (AT_4._replace(leader_epoch=LeaderEpoch(3)), replace(CUT, fate=ReplicaFate.LEFT)),
    ],
)
def test_what_makes_no_sense_is_not_noted(loss_id: LossId, replica: ReplicaLoss) -> None:
    state = led_by_nobody()
    tell(state, 1, replica, loss_id)
    assert losses(state) == []


def test_more_producers_than_are_named_are_counted() -> None:
    state = led_by_nobody()
    elect(state)
    many = tuple(map(ProducerId, range(1_000)))
    tell(state, 1, replace(CUT, producer_ids=many, producer_count=1_000))
    row = losses(state)[0].replicas[0]
    assert (len(row.producer_ids), row.producer_count) == (PRODUCERS_MAX, 1_000)


def test_a_partition_with_one_replica_has_nobody_who_could_tell() -> None:
    state = led_by_nobody()
    append(state, (PartitionChangeRecord(topic_id=TOPIC, partition_id=0, replicas=[1], isr=[1]),))
    append(state, (PartitionChangeRecord(topic_id=TOPIC, partition_id=0, leader=1, unclean_epoch=4),))
    assert losses(state) == []
