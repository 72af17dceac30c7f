"""Idempotent producers: duplicates, gaps, epochs; open transactions; and what a restart remembers."""

from __future__ import annotations

import pytest

from support.fixtures.logs import DIRECTORY, NOW_MS, append, make_batch, open_log, values_of
from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.log import AppendResult, Log
from tidelog.records import end_transaction_batch

INT32_MAX = 2**31 - 1


def send(log: Log, *values: str, sequence: int, producer: int = 9, epoch: int = 0, **settings: bool) -> AppendResult:
    return append(log, *values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **settings)


def refusal_of(log: Log, *values: str, sequence: int, epoch: int = 0) -> Code:
    before = values_of(log)
    with pytest.raises(KafkaError) as refused:
        send(log, *values, sequence=sequence, epoch=epoch)
    assert values_of(log) == before
    return refused.value.code


def end_transaction(log: Log, producer: int, *, epoch: int = 0, committed: bool = True) -> AppendResult:
    marker = end_transaction_batch(
        committed=committed, producer_id=producer, producer_epoch=epoch, coordinator_epoch=5, timestamp_ms=NOW_MS
    )
    return log.append_as_leader(bytearray(marker), leader_epoch=LeaderEpoch(0), now_ms=NOW_MS, origin="coordinator")


def test_a_duplicate_is_answered_with_the_originals_offsets() -> None:
    log = open_log(MemoryDisk())
    append(log, "x")
    originals = [send(log, "a", "b", sequence=0), send(log, "c", sequence=2), send(log, "d", "e", sequence=3)]
    for values, sequence, original in zip((("a", "b"), ("c",), ("d", "e")), (0, 2, 3), originals, strict=True):
        again = send(log, *values, sequence=sequence)
        assert again.is_duplicate
        assert again[:4] == original[:4]
    assert values_of(log) == list("xabcde")


def test_the_last_five_batches_are_remembered() -> None:
    log = open_log(MemoryDisk())
    for sequence in range(7):
        send(log, "a", sequence=sequence)
    for sequence in (2, 3, 4, 5, 6):
        assert send(log, "a", sequence=sequence).is_duplicate
    for sequence in (0, 1):
        assert refusal_of(log, "a", sequence=sequence) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_is_out_of_order() -> None:
    log = open_log(MemoryDisk())
    send(log, "a", "b", sequence=0)
    assert refusal_of(log, "c", sequence=3) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal_of(log, "c", sequence=1) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal_of(log, "a", sequence=0) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER  # the same start, another end
    assert send(log, "c", sequence=2).first_offset == 2


def test_a_producer_that_is_not_known_may_start_anywhere() -> None:
    log = open_log(MemoryDisk())
    assert not send(log, "a", sequence=17).is_duplicate
    assert refusal_of(log, "b", sequence=17 + 2) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_producer_epoch_starts_with_0_and_fences_the_old_one() -> None:
    log = open_log(MemoryDisk())
    send(log, "a", sequence=0)
    assert refusal_of(log, "b", sequence=1, epoch=1) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(log, "b", sequence=0, epoch=1)
    assert refusal_of(log, "c", sequence=1, epoch=0) == Code.INVALID_PRODUCER_EPOCH
    assert refusal_of(log, "a", sequence=0, epoch=0) == Code.INVALID_PRODUCER_EPOCH
    assert send(log, "b", sequence=0, epoch=1).is_duplicate


def test_sequences_wrap_to_0() -> None:
    log = open_log(MemoryDisk())
    send(log, "a", "b", sequence=INT32_MAX - 1)
    send(log, "c", sequence=0)
    assert send(log, "a", "b", sequence=INT32_MAX - 1).is_duplicate
    other = open_log(MemoryDisk())
    send(other, "a", "b", "c", sequence=INT32_MAX - 1)  # wraps within the batch: its last sequence is 0
    assert refusal_of(other, "d", sequence=0) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(other, "d", sequence=1)


def request(*batches: tuple[str, int]) -> bytearray:
    return bytearray(
        b"".join(
            make_batch(value, producer_id=9, producer_epoch=0, base_sequence=sequence) for value, sequence in batches
        )
    )


def test_batches_of_one_request_are_checked_in_order() -> None:
    log = open_log(MemoryDisk())
    log.append_as_leader(request(("a", 0), ("b", 1), ("c", 2)), leader_epoch=LeaderEpoch(0), now_ms=NOW_MS)
    again = log.append_as_leader(request(("b", 1), ("c", 2)), leader_epoch=LeaderEpoch(0), now_ms=NOW_MS)
    assert (again.is_duplicate, again.first_offset, again.last_offset) == (True, 1, 2)
    for sequences, code in (
        ((3, 5), Code.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ((3, 3, 3, 2), Code.DUPLICATE_SEQUENCE_NUMBER),
        ((2, 3), Code.DUPLICATE_SEQUENCE_NUMBER),
    ):
        with pytest.raises(KafkaError) as refused:
            log.append_as_leader(request(*((str(n), n) for n in sequences)), leader_epoch=LeaderEpoch(0), now_ms=NOW_MS)
        assert refused.value.code == code
        assert values_of(log) == ["a", "b", "c"]
    assert not send(log, "d", sequence=3).is_duplicate


def test_a_new_producers_request_is_checked_within_itself() -> None:
    log = open_log(MemoryDisk())
    with pytest.raises(KafkaError) as refused:
        log.append_as_leader(request(("a", 0), ("c", 2)), leader_epoch=LeaderEpoch(0), now_ms=NOW_MS)
    assert refused.value.code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 0


def test_producers_do_not_disturb_each_other() -> None:
    log = open_log(MemoryDisk())
    send(log, "a", sequence=0, producer=1)
    send(log, "b", sequence=0, producer=2)
    append(log, "x")
    send(log, "c", sequence=1, producer=1)
    assert send(log, "b", sequence=0, producer=2).first_offset == 1
    assert len(log.producers) == 2


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("segment_size_bytes", [1 << 20, 200])
def test_a_restart_remembers_the_last_batch_at_least(clean: bool, segment_size_bytes: int) -> None:
    disk = MemoryDisk()
    log = open_log(disk, segment_size_bytes=segment_size_bytes)
    for sequence in range(6):
        send(log, "a", sequence=sequence)
    if clean:
        log.close()
    again = open_log(disk, clean=clean, segment_size_bytes=segment_size_bytes)
    assert send(again, "a", sequence=5).first_offset == 5
    assert refusal_of(again, "a", sequence=7) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(again, "b", sequence=6).first_offset == 6


def test_a_clean_restart_replays_nothing() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    for sequence in range(6):
        send(log, "a", sequence=sequence)
    log.close()
    assert open_log(disk).recovery.replayed_batch_count == 0
    assert open_log(disk, clean=False).recovery.replayed_batch_count == 0  # the snapshot is at the log end


def test_truncation_takes_sequences_back() -> None:
    log = open_log(MemoryDisk(), segment_size_bytes=200)
    for sequence in range(8):
        send(log, "a", sequence=sequence)
    log.truncate_to(Offset(4))
    assert refusal_of(log, "a", sequence=5) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, "b", sequence=4).first_offset == 4
    log.truncate_to(Offset(0))
    assert len(log.producers) == 0
    send(log, "c", sequence=100)


def test_a_duplicate_under_log_append_time_tells_the_originals_time() -> None:
    log = open_log(MemoryDisk(), message_timestamp_type="LogAppendTime")
    send(log, "a", sequence=0)
    batch = make_batch("a", producer_id=9, producer_epoch=0, base_sequence=0)
    again = log.append_as_leader(batch, leader_epoch=LeaderEpoch(0), now_ms=NOW_MS + 99)
    assert (again.is_duplicate, again.log_append_time_ms) == (True, NOW_MS)


def test_silent_producers_are_forgotten_by_the_nodes_clock() -> None:
    log = open_log(MemoryDisk())
    send(log, "a", sequence=0, producer=1)
    append(log, "b", producer_id=2, producer_epoch=0, base_sequence=0, timestamp=1)  # a record of long ago
    send(log, "c", sequence=0, producer=3, transactional=True)
    assert log.producers.forget_expired(NOW_MS + 999, 1000) == 0
    assert log.producers.forget_expired(NOW_MS + 1000, 1000) == 2
    assert [state.producer_id for state in log.producers] == [3]  # its transaction is open


# Transactions.


def test_the_first_unstable_offset_is_where_the_oldest_open_transaction_starts() -> None:
    log = open_log(MemoryDisk())
    assert log.producers.first_unstable_offset is None
    append(log, "x")
    send(log, "a", sequence=0, producer=1, transactional=True)
    send(log, "b", sequence=0, producer=2, transactional=True)
    send(log, "c", sequence=1, producer=1, transactional=True)
    assert log.producers.first_unstable_offset == 1
    marker = end_transaction(log, 1)
    log.producers.on_high_watermark(marker.first_offset)
    assert log.producers.first_unstable_offset == 1  # the marker itself is not known to be replicated
    log.producers.on_high_watermark(Offset(marker.first_offset + 1))
    assert log.producers.first_unstable_offset == 2
    end_transaction(log, 2, committed=False)
    log.producers.on_high_watermark(log.log_end_offset)
    assert log.producers.first_unstable_offset is None


def test_a_marker_with_a_newer_epoch_fences() -> None:
    log = open_log(MemoryDisk())
    send(log, "a", sequence=0)
    end_transaction(log, 9, epoch=1, committed=False)
    assert refusal_of(log, "b", sequence=1, epoch=0) == Code.INVALID_PRODUCER_EPOCH
    assert refusal_of(log, "b", sequence=1, epoch=1) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(log, "b", sequence=0, epoch=1)
    state = log.producers.get(9)
    assert state is not None
    assert (state.coordinator_epoch, state.producer_epoch) == (5, 1)


@pytest.mark.parametrize("clean", [True, False])
def test_open_transactions_survive_a_restart(clean: bool) -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, "x")
    send(log, "a", sequence=0, producer=1, transactional=True)
    send(log, "b", sequence=0, producer=2, transactional=True)
    end_transaction(log, 1)
    if clean:
        log.close()
    again = open_log(disk, clean=clean)
    again.producers.on_high_watermark(again.log_end_offset)
    assert again.producers.first_unstable_offset == 2
    marked = again.producers.get(1)
    assert marked is not None
    assert marked.coordinator_epoch == 5


def test_a_truncated_marker_opens_its_transaction_again() -> None:
    log = open_log(MemoryDisk())
    send(log, "a", sequence=0, producer=1, transactional=True)
    marker = end_transaction(log, 1)
    log.producers.on_high_watermark(log.log_end_offset)
    assert log.producers.first_unstable_offset is None
    log.truncate_to(marker.first_offset)
    assert log.producers.first_unstable_offset == 0


# Snapshots.


@pytest.mark.parametrize("damage", ["torn", "flipped", "gone", "of another version"])
def test_an_unusable_snapshot_costs_a_longer_replay(damage: str) -> None:
    disk = MemoryDisk()
    log = open_log(disk, segment_size_bytes=200)
    for sequence in range(6):
        send(log, "a", sequence=sequence)
    log.close()
    newest = max(path for path in disk.files if path.endswith(".snapshot"))
    data = disk.files[newest].data
    if damage == "torn":
        del data[20:]
    elif damage == "flipped":
        data[-3] ^= 1
    elif damage == "of another version":
        data[1] = 2
    else:
        disk.remove(newest)
    again = open_log(disk, segment_size_bytes=200)
    assert again.recovery.replayed_batch_count > 0
    assert len(again.recovery.unusable_snapshots) == (damage != "gone")
    assert send(again, "a", sequence=5).is_duplicate


def test_a_snapshot_beyond_the_log_end_is_removed() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    send(log, "a", sequence=0)
    send(log, "b", sequence=1)
    log.close()
    segment = disk.files[f"{DIRECTORY}/00000000000000000000.log"]
    del segment.data[-1:]
    again = open_log(disk, clean=False)
    assert not disk.exists(f"{DIRECTORY}/00000000000000000002.snapshot")
    assert send(again, "b", sequence=1).first_offset == 1


def test_a_log_that_was_recovered_without_producers_learns_of_new_ones() -> None:
    disk = MemoryDisk()
    append(open_log(disk), "x")
    log = open_log(disk, clean=False)
    send(log, "a", sequence=0)
    send(log, "b", sequence=1)
    log.truncate_to(Offset(2))
    assert send(log, "a", sequence=0).is_duplicate
    assert refusal_of(log, "c", sequence=2) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
