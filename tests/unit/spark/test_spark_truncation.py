from __future__ import annotations

import json
from typing import TypeVar

import pytest

from support.fixtures.toy_cluster import ToyCluster, ToyPartition
from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicPartition
from tidelog.client.core.positions import Questions
from tidelog.spark.offsets import LINEAGE_LENGTH_MAX, Loss, ReadPosition
from tidelog.spark.truncation import (
    CannotTellError,
    OnTruncation,
    PartitionFacts,
    StreamTruncatedError,
    examine,
    place,
    resume_offset,
)

R = TypeVar("R")
T0 = TopicPartition("t", PartitionIndex(0))


def answered(partition: ToyPartition, question: Questions[R]) -> tuple[R, int]:
    """What a question comes to, and how many epochs it asked for."""
    asked = 0
    try:
        epoch = next(question)
        while True:
            asked += 1
            epoch = question.send(partition.end_of(epoch))
    except StopIteration as stop:
        return stop.value, asked


def facts_of(partition: ToyPartition) -> PartitionFacts:
    return PartitionFacts(
        LeaderEpoch(partition.leader_epoch), Offset(partition.log_start_offset), Offset(len(partition.log))
    )


def position_at(partition: ToyPartition, offset: int, after: ReadPosition | None = None) -> ReadPosition:
    return answered(partition, place(Offset(offset), facts_of(partition), after))[0]


def loss_at(partition: ToyPartition, position: ReadPosition) -> Loss | None:
    return answered(partition, examine(position, facts_of(partition)))[0]


@pytest.fixture
def log() -> ToyPartition:
    """Epoch 0 at 0 to 3, 2 at 4 to 5, 5 at 6 to 9, and 7, in which nothing was written."""
    partition = ToyCluster(t=1)["t", 0]
    partition.append(4)
    for epoch, count in ((2, 2), (5, 4), (7, 0)):
        partition.leader_epoch = epoch
        partition.append(count)
    return partition


def test_a_position_has_the_epoch_of_the_record_before_it(log: ToyPartition) -> None:
    assert position_at(log, 0) == ReadPosition(Offset(0))
    epochs = [position_at(log, offset).leader_epoch for offset in range(1, 11)]
    assert epochs == [record.leader_epoch for record in log.log]


def test_a_position_remembers_its_lineage(log: ToyPartition) -> None:
    assert position_at(log, 3).lineage == ()
    assert position_at(log, 9).lineage == ((0, 0), (2, 4), (5, 6))
    middle = position_at(log, 5)
    assert position_at(log, 10, middle) == position_at(log, 10)
    assert position_at(log, 5, middle) is middle


def test_a_lineage_has_a_limit() -> None:
    partition = ToyCluster(t=1)["t", 0]
    for epoch in range(40):
        partition.leader_epoch = epoch
        partition.append(1)
    position = ReadPosition(Offset(0))
    for offset in range(1, 41):
        position = position_at(partition, offset, position)
        assert len(position.lineage) <= LINEAGE_LENGTH_MAX
    assert position.lineage == ((32, 0), *((epoch, epoch) for epoch in range(33, 40)))
    assert position == position_at(partition, 40)
    whole, _ = answered(partition, place(Offset(40), facts_of(partition), epochs_max=None))
    assert whole.lineage == tuple((epoch, epoch) for epoch in range(40))


def test_nothing_is_asked_while_the_leader_stays(log: ToyPartition) -> None:
    log.append(3)
    position = position_at(log, 12)
    assert answered(log, place(Offset(13), facts_of(log), position)) == (position._replace(offset=Offset(13)), 0)


def test_at_the_log_start_there_is_no_record_to_ask_for(log: ToyPartition) -> None:
    log.retain_from(5)
    assert position_at(log, 5) == ReadPosition(Offset(5), LeaderEpoch(7), unread=True)
    assert position_at(log, 6) == ReadPosition(Offset(6), LeaderEpoch(2))
    assert position_at(log, 7).lineage == ((2, 0), (5, 6))


def test_what_is_still_there_is_no_loss(log: ToyPartition) -> None:
    positions = [position_at(log, offset) for offset in range(11)]
    log.elect(log.leader)
    log.append(5)
    assert [loss_at(log, position) for position in positions] == [None] * 11


def test_a_log_cut_short_is_truncated_however_far_it_has_grown_since(log: ToyPartition) -> None:
    position = position_at(log, 10)
    log.truncate(8)
    assert loss_at(log, position) == Loss("truncated", position, Offset(8))
    log.append(100)
    assert loss_at(log, position) == Loss("truncated", position, Offset(8))
    assert loss_at(log, position_at(log, 8)) is None


def test_records_replaced_by_older_ones_are_truncated_though_the_ends_look_well() -> None:
    # Read 0@0 1@2 2@2. The new leader has epoch 1 at 0 to 5, and answers (1, 6): not below the position, 3.
    partition = ToyCluster(t=1)["t", 0]
    partition.append(1)
    partition.replicate()
    partition.leader_epoch = 2
    partition.append(2)
    read = position_at(partition, 3)
    assert read == ReadPosition(
        Offset(3), LeaderEpoch(2), lineage=((LeaderEpoch(0), Offset(0)), (LeaderEpoch(2), Offset(1)))
    )
    partition.leader, partition.leader_epoch = 1, 1
    partition.append(5)
    partition.leader_epoch = 3
    partition.append(2)
    assert partition.end_of(LeaderEpoch(2)) == (1, 6)
    assert loss_at(partition, read) == Loss("truncated", read, Offset(1))


def test_without_a_lineage_the_place_cannot_be_told() -> None:
    partition = ToyCluster(t=1)["t", 0]
    partition.leader_epoch = 2
    partition.append(9)
    read = ReadPosition(Offset(9), LeaderEpoch(5))
    partition.truncate(6)
    assert loss_at(partition, read) == Loss("truncated", read, None)


def test_retention_is_a_loss_of_its_own(log: ToyPartition) -> None:
    position = position_at(log, 5)
    log.retain_from(7)
    assert loss_at(log, position) == Loss("retention", position, Offset(7))
    assert loss_at(log, position_at(log, 7)) is None


def test_an_empty_epoch_that_another_replica_never_saw_is_no_loss(log: ToyPartition) -> None:
    log.retain_from(10)
    position = position_at(log, 10)
    assert position.unread
    # The other replica was not told of epoch 7, in which nothing was written.
    log.lineages[log.leader].truncate_from_end(Offset(10))
    log.lineages[log.leader].assign(LeaderEpoch(5), Offset(6))
    log.elect(log.leader)
    log.append(1)
    assert loss_at(log, position) is None


def test_a_position_without_an_epoch_is_held_against_the_end_of_the_log(log: ToyPartition) -> None:
    assert loss_at(log, ReadPosition(Offset(10))) is None
    assert loss_at(log, ReadPosition(Offset(11))) == Loss("truncated", ReadPosition(Offset(11)), Offset(10))


def test_brokers_that_tell_no_epochs_are_believed() -> None:
    facts = PartitionFacts(None, Offset(0), Offset(5))
    with pytest.raises(StopIteration) as stop:
        next(examine(ReadPosition(Offset(3), LeaderEpoch(1)), facts))
    assert stop.value.value is None
    with pytest.raises(StopIteration) as stop:
        next(place(Offset(3), facts))
    assert stop.value.value == ReadPosition(Offset(3))


def test_a_leader_that_cannot_tell_is_asked_again() -> None:
    question = examine(ReadPosition(Offset(3), LeaderEpoch(1)), PartitionFacts(LeaderEpoch(1), Offset(0), Offset(5)))
    assert next(question) == 1
    with pytest.raises(CannotTellError) as error:
        question.send(None)
    assert error.value.retriable


def test_a_leader_younger_than_the_record_lost_it() -> None:
    partition = ToyCluster(t=1)["t", 0]
    partition.append(5)
    read = ReadPosition(Offset(9), LeaderEpoch(4), lineage=((LeaderEpoch(0), Offset(0)), (LeaderEpoch(4), Offset(3))))
    assert loss_at(partition, read) == Loss("truncated", read, Offset(3))


@pytest.mark.parametrize(
    ("cause", "resume", "policy", "goes_to"),
    [
        ("truncated", 50, OnTruncation.REWIND, 50),
        ("truncated", 10, OnTruncation.REWIND, 20),
        ("truncated", None, OnTruncation.REWIND, 20),
        ("truncated", 50, OnTruncation.EARLIEST, 20),
        ("truncated", 50, OnTruncation.LATEST, 90),
        ("retention", 20, OnTruncation.REWIND, 20),
        ("retention", 20, OnTruncation.LATEST, 90),
        ("recreated", None, OnTruncation.REWIND, 20),
    ],
)
def test_policies(cause: str, resume: int | None, policy: OnTruncation, goes_to: int) -> None:
    loss = Loss(cause, ReadPosition(Offset(60), LeaderEpoch(1)), None if resume is None else Offset(resume))
    facts = PartitionFacts(LeaderEpoch(3), Offset(20), Offset(90))
    assert resume_offset(loss, policy, facts) == goes_to
    assert resume_offset(loss, policy, None) is None


def test_the_error_can_be_read_by_a_program_and_by_a_person() -> None:
    loss = Loss("truncated", ReadPosition(Offset(60), LeaderEpoch(1)), Offset(50), "AAAAAAAAAAAAAAAAAAAAAQ")
    error = StreamTruncatedError({T0: loss}, {T0: PartitionFacts(LeaderEpoch(3), Offset(20), Offset(90))})
    tagged, _, words = str(error).partition("\n")
    assert json.loads(tagged.removeprefix("[LOG_TRUNCATION]")) == {
        "losses": [
            {
                "cause": "truncated",
                "divergentOffset": 50,
                "leaderEpoch": 1,
                "logStartOffset": 20,
                "offset": 60,
                "partition": 0,
                "topic": "t",
                "topicId": "AAAAAAAAAAAAAAAAAAAAAQ",
            }
        ],
        "v": 1,
    }
    assert words.startswith("t-0 was truncated")
    assert "onTruncation=rewind" in words
