"""Appending: offsets and leader epochs, what is refused, and what a failing disk leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.fixtures.logs import (
    DIRECTORY,
    FLIGHTS,
    NOW_MS,
    append,
    batches_of,
    lineage_of,
    make_batch,
    open_log,
    values_of,
)
from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import (
    Code,
    CorruptLogError,
    DiskError,
    InvalidRecordsError,
    InvariantBrokenError,
    KafkaError,
)
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.io.rng import SystemRng
from tidelog.log import Log, LogConfig
from tidelog.log.append import RECORD_ERRORS_MAX
from tidelog.records import BatchBuilder, check_crc, end_transaction_batch, read_header, read_records
from tidelog.records.lineage import EpochEntry

EPOCH = LeaderEpoch(3)


def contents(disk: MemoryDisk) -> dict[str, bytes]:
    return {path: bytes(each.data) for path, each in disk.files.items()}


def test_batches_are_given_the_next_offsets_and_the_leader_epoch() -> None:
    log = open_log(MemoryDisk())
    first = append(log, "a", "b", "c", epoch=3)
    second = append(log, "d", epoch=4)
    assert (first.first_offset, first.last_offset, first.record_count, first.batch_count) == (0, 2, 3, 1)
    assert (second.first_offset, second.last_offset, second.log_append_time_ms) == (3, 3, None)
    assert [(h.base_offset, h.leader_epoch) for h, _ in batches_of(log)] == [(0, 3), (3, 4)]
    assert values_of(log) == ["a", "b", "c", "d"]
    assert lineage_of(log) == [(3, 0), (4, 3)]
    assert log.log_end_offset == 4


def test_the_stamp_is_made_in_the_callers_buffer_and_leaves_the_crc_right() -> None:
    log = open_log(MemoryDisk())
    append(log, "a")
    batch = make_batch("b")
    log.append_as_leader(memoryview(batch), leader_epoch=EPOCH, now_ms=NOW_MS)
    header = read_header(batch)
    assert (header.base_offset, header.leader_epoch) == (1, EPOCH)
    check_crc(batch, 0, header)


def test_an_append_is_one_write_and_no_sync() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, "a")
    disk.append_count = disk.sync_count = 0
    append(log, "b")
    log.append_as_leader(
        make_batch("c") + make_batch("d", "e") + make_batch("f"), leader_epoch=LeaderEpoch(0), now_ms=NOW_MS
    )
    assert (disk.append_count, disk.sync_count) == (2, 0)
    assert values_of(log) == list("abcdef")


def test_the_lineage_is_on_disk_before_the_first_batch_of_an_epoch() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    log.assign_leader_epoch(LeaderEpoch(7))
    append(log, "a", epoch=7)
    path = f"{DIRECTORY}/leader-epoch-checkpoint"
    assert disk.files[path].synced == b"0\n1\n7 0\n"
    disk.refusals.add("rename")
    with pytest.raises(DiskError, match="leader-epoch-checkpoint"):
        append(log, "b", epoch=8)
    assert lineage_of(log) == [(7, 0)]
    assert values_of(log) == ["a"]


def test_a_leader_epoch_never_goes_back() -> None:
    log = open_log(MemoryDisk())
    append(log, "a", epoch=5)
    with pytest.raises(InvariantBrokenError, match="leader epoch 4"):
        append(log, "b", epoch=4)
    with pytest.raises(InvariantBrokenError, match="leader epoch 4"):
        log.assign_leader_epoch(LeaderEpoch(4))
    assert (lineage_of(log), values_of(log)) == ([(5, 0)], ["a"])


def test_assigning_an_epoch_again_changes_nothing() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, "a", epoch=1)
    log.assign_leader_epoch(LeaderEpoch(2))
    append(log, "b", epoch=2)
    lineage = log.lineage
    disk.sync_count = 0
    log.assign_leader_epoch(LeaderEpoch(2))
    assert (lineage_of(log), disk.sync_count) == ([(1, 0), (2, 1)], 0)
    assert log.lineage is lineage  # who answers OffsetForLeaderEpoch holds on to it


def flip_crc() -> bytearray:
    batch = make_batch("a")
    batch[-1] ^= 1
    return batch


def set_byte(position: int, value: int) -> bytearray:
    batch = make_batch("a")
    batch[position] = value
    return batch


REFUSED: dict[str, tuple[Callable[[], bytearray], Code]] = {
    "nothing": (bytearray, Code.INVALID_RECORD),
    "garbage": (lambda: bytearray(b"\x01" * 200), Code.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "a wrong CRC": (flip_crc, Code.CORRUPT_MESSAGE),
    "an old message format": (lambda: set_byte(16, 1), Code.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "a message format to come": (lambda: set_byte(16, 3), Code.CORRUPT_MESSAGE),
    "a batch cut short": (lambda: make_batch("a")[:-1], Code.INVALID_RECORD),
    "a second batch cut short": (lambda: make_batch("a") + make_batch("b")[:-1], Code.INVALID_RECORD),
    "a wrong CRC, and a second batch cut short": (lambda: flip_crc() + make_batch("b")[:-1], Code.CORRUPT_MESSAGE),
    "a bad second batch": (lambda: make_batch("a") + flip_crc(), Code.CORRUPT_MESSAGE),
    "a base offset": (lambda: make_batch("a", base_offset=1), Code.INVALID_RECORD),
    "no record": (make_batch, Code.INVALID_RECORD),
    "a control batch": (
        lambda: bytearray(
            end_transaction_batch(
                committed=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS
            )
        ),
        Code.INVALID_RECORD,
    ),
    "a transaction without a producer": (lambda: make_batch("a", transactional=True), Code.INVALID_RECORD),
    "a negative sequence": (lambda: make_batch("a", producer_id=1, producer_epoch=0), Code.INVALID_RECORD),
    "a negative producer epoch": (
        lambda: make_batch("a", producer_id=1, producer_epoch=-1, base_sequence=0),
        Code.INVALID_RECORD,
    ),
    "too many bytes": (lambda: make_batch("a" * 2000), Code.MESSAGE_TOO_LARGE),
    "a record too far ahead": (lambda: make_batch("a", timestamp=NOW_MS + 1001), Code.INVALID_TIMESTAMP),
    "a record too far behind": (
        lambda: make_batch("a", "b", timestamps=[NOW_MS, NOW_MS - 1001]),
        Code.INVALID_TIMESTAMP,
    ),
    "a record without a key": (lambda: make_batch("a", key=None), Code.INVALID_RECORD),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_refused_batch_changes_nothing(what: str) -> None:
    make, code = REFUSED[what]
    disk = MemoryDisk()
    log = open_log(
        disk,
        message_size_bytes_max=2000,
        message_timestamp_before_ms_max=1000,
        message_timestamp_after_ms_max=1000,
        cleanup_policy=frozenset({"compact"}),
    )
    append(log, "before", epoch=1)
    before = contents(disk)
    with pytest.raises(KafkaError) as refused:
        log.append_as_leader(make(), leader_epoch=LeaderEpoch(2), now_ms=NOW_MS)
    assert refused.value.code == code
    assert contents(disk) == before
    assert (lineage_of(log), log.log_end_offset) == ([(1, 0)], 1)
    assert append(log, "after", epoch=1).first_offset == 1


def test_a_batch_that_no_segment_can_hold_is_refused() -> None:
    log = open_log(MemoryDisk(), segment_size_bytes=100)
    with pytest.raises(KafkaError) as refused:
        append(log, "a" * 100)
    assert refused.value.code == Code.RECORD_LIST_TOO_LARGE


def test_each_record_that_is_at_fault_is_named_with_its_fault() -> None:
    log = open_log(
        MemoryDisk(),
        message_timestamp_before_ms_max=1000,
        message_timestamp_after_ms_max=1000,
        cleanup_policy=frozenset({"compact"}),
    )
    builder = BatchBuilder()
    for key, timestamp in (
        (b"k", NOW_MS),
        (None, NOW_MS + 9_000),
        (b"k", NOW_MS + 1001),
        (b"k", -1),
        (b"k", NOW_MS - 1001),
    ):
        builder.append(timestamp, key, b"v")
    with pytest.raises(InvalidRecordsError) as refused:
        log.append_as_leader(bytearray(builder.build()), leader_epoch=EPOCH, now_ms=NOW_MS)
    assert refused.value.code == Code.INVALID_TIMESTAMP  # which goes before a missing key, as in Kafka
    keyless, early, late = refused.value.record_errors
    assert keyless == (1, "it has no key, and a compacted topic needs one")
    assert early[0] == 2
    assert "+1001 ms" in early[1]
    assert "message.timestamp.after.max.ms=1000" in early[1]
    assert late[0] == 4
    assert "-1001 ms" in late[1]
    assert "message.timestamp.before.max.ms=1000" in late[1]
    assert str(refused.value).endswith("3 records are refused; of the first, at 1: " + keyless[1])


def test_no_more_records_are_named_than_an_answer_can_carry() -> None:
    log = open_log(MemoryDisk(), cleanup_policy=frozenset({"compact"}))
    batch = make_batch(*"a" * (RECORD_ERRORS_MAX + 5), key=None)
    with pytest.raises(InvalidRecordsError, match=f"{RECORD_ERRORS_MAX + 5} records are refused") as refused:
        log.append_as_leader(batch, leader_epoch=EPOCH, now_ms=NOW_MS)
    assert [index for index, _ in refused.value.record_errors] == list(range(RECORD_ERRORS_MAX))


def test_limits_are_inclusive() -> None:
    size = len(make_batch("a"))
    log = open_log(
        MemoryDisk(),
        message_size_bytes_max=size,
        segment_size_bytes=size,
        message_timestamp_before_ms_max=1000,
        message_timestamp_after_ms_max=1000,
    )
    append(log, "a")
    append(log, "b", timestamp=NOW_MS + 1000)
    append(log, "c", timestamp=NOW_MS - 1000)
    assert values_of(log) == ["a", "b", "c"]


def test_the_nodes_own_parts_may_write_control_batches() -> None:
    log = open_log(MemoryDisk())
    marker = end_transaction_batch(
        committed=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS
    )
    result = log.append_as_leader(bytearray(marker), leader_epoch=EPOCH, now_ms=NOW_MS, origin="coordinator")
    assert result.first_offset == 0


def test_log_append_time_is_stamped_and_answered() -> None:
    log = open_log(MemoryDisk(), message_timestamp_type="LogAppendTime")
    result = append(log, "a", "b", timestamps=[5, 7])
    assert result.log_append_time_ms == NOW_MS
    [(header, data)] = batches_of(log)
    check_crc(data, 0, header)
    assert (header.is_log_append_time, [r.timestamp for r in read_records(data)]) == (True, [NOW_MS, NOW_MS])


def test_a_clients_log_append_time_is_refused_where_create_time_rules() -> None:
    log = open_log(MemoryDisk())
    batch = make_batch("a")
    other = open_log(MemoryDisk(), message_timestamp_type="LogAppendTime")
    other.append_as_leader(batch, leader_epoch=EPOCH, now_ms=NOW_MS)
    with pytest.raises(InvalidRecordsError) as refused:
        log.append_as_leader(batch, leader_epoch=EPOCH, now_ms=NOW_MS)
    assert refused.value.code == Code.INVALID_TIMESTAMP
    assert [index for index, _ in refused.value.record_errors] == [0]


def test_a_wrong_max_timestamp_is_put_right() -> None:
    batch = make_batch("a", "b", timestamps=[NOW_MS - 5, NOW_MS])
    batch[35:43] = (NOW_MS - 9).to_bytes(8)
    header = read_header(batch)
    from tidelog.records.crc32c import crc32c

    batch[17:21] = crc32c(batch[21 : header.size_bytes]).to_bytes(4)
    log = open_log(MemoryDisk())
    log.append_as_leader(batch, leader_epoch=EPOCH, now_ms=NOW_MS)
    [(header, data)] = batches_of(log)
    check_crc(data, 0, header)
    assert header.max_timestamp == NOW_MS


# Segments.


def test_segments_roll_by_size() -> None:
    size = len(make_batch("a"))
    log = open_log(MemoryDisk(), segment_size_bytes=2 * size)
    for value in "abcde":
        append(log, value)
    assert log.segments.base_offsets == (0, 2, 4)
    assert values_of(log) == list("abcde")


def test_one_request_may_fill_several_segments() -> None:
    size = len(make_batch("a"))
    disk = MemoryDisk()
    log = open_log(disk, segment_size_bytes=2 * size)
    append(log, "a")
    disk.append_count = 0
    request = b"".join(make_batch(value) for value in "bcdef")
    result = log.append_as_leader(bytearray(request), leader_epoch=LeaderEpoch(0), now_ms=NOW_MS)
    assert (result.first_offset, result.last_offset, result.batch_count) == (1, 5, 5)
    assert log.segments.base_offsets == (0, 2, 4)
    assert values_of(log) == list("abcdef")
    snapshots = 2
    assert disk.append_count == 3 + snapshots


def test_segments_roll_by_the_time_of_their_records() -> None:
    log = open_log(MemoryDisk(), segment_ms=1000)
    append(log, "a", timestamp=NOW_MS - 5000)
    append(log, "b", timestamp=NOW_MS - 4000)
    append(log, "c", timestamp=NOW_MS - 3999)
    assert log.segments.base_offsets == (0, 2)


class Draws(SystemRng):
    """These numbers, one after the other."""

    def __init__(self, *numbers: float) -> None:
        self.numbers = list(numbers)

    def random(self) -> float:
        return self.numbers.pop(0)


def rolls_at(log: Log) -> list[int]:
    """The timestamps, a tenth of a second apart, of the records that began a segment."""
    times = range(0, 4000, 100)
    before, found = log.segments.base_offsets, []
    for time in times:
        append(log, "a", timestamp=NOW_MS - 4000 + time)
        if log.segments.base_offsets != before:
            found.append(time)
        before = log.segments.base_offsets
    return found


def test_each_segment_rolls_earlier_by_a_part_of_the_jitter_of_its_own() -> None:
    jitter: dict[str, Any] = {"segment_ms": 1000, "segment_jitter_ms": 500}
    assert rolls_at(open_log(MemoryDisk(), **jitter)) == [1100, 2200, 3300]  # nothing is drawn
    assert rolls_at(open_log(MemoryDisk(), rng=Draws(), segment_ms=1000)) == [1100, 2200, 3300]
    draws = Draws(0.0, 0.5, 0.99, 0.1, 0.0)
    assert rolls_at(open_log(MemoryDisk(), rng=draws, **jitter)) == [1100, 1900, 2500, 3500]
    assert draws.numbers == []


def test_a_jitter_beyond_the_time_itself_takes_no_more_than_all_of_it() -> None:
    log = open_log(MemoryDisk(), rng=Draws(0.5, 0.0, 0.0, 0.0), segment_ms=1000, segment_jitter_ms=1_000_000)
    assert rolls_at(log) == [600, 1700, 2800, 3900]


def test_another_jitter_counts_for_the_segment_that_is_written_to() -> None:
    log = open_log(MemoryDisk(), rng=Draws(0.5, 0.5), segment_ms=1000)
    append(log, "a", timestamp=NOW_MS - 4000)
    log.configure(LogConfig(segment_ms=1000, segment_jitter_ms=400))
    append(log, "b", timestamp=NOW_MS - 3200)
    append(log, "c", timestamp=NOW_MS - 3199)
    assert log.segments.base_offsets == (0, 2)


def test_segments_without_timestamps_roll_by_the_clock() -> None:
    log = open_log(MemoryDisk(), segment_ms=1000)
    append(log, "a", timestamp=-1)
    batch = make_batch("b", timestamp=-1)
    log.append_as_leader(batch, leader_epoch=LeaderEpoch(0), now_ms=NOW_MS + 1001)
    assert log.segments.base_offsets == (0, 1)


def test_segments_roll_when_an_index_is_full() -> None:
    log = open_log(MemoryDisk(), index_interval_bytes=0, index_size_bytes_max=40)
    for value in "abcdefgh":
        append(log, value, timestamp=NOW_MS)
    assert log.segments.base_offsets == (0, 6)  # the first batch needs no entry, 5 entries of 8 bytes fit


def test_index_blocks_are_written_as_they_fill_up() -> None:
    disk = MemoryDisk()
    log = open_log(disk, index_interval_bytes=0)
    for index in range(1100):
        append(log, "a", timestamp=NOW_MS + index)
    sizes = {path.rpartition(".")[2]: len(each.data) for path, each in disk.files.items()}
    assert (sizes["index"], sizes["timeindex"]) == (2 * 512 * 8, 2 * 512 * 12)


def test_rolling_an_empty_segment_does_nothing() -> None:
    log = open_log(MemoryDisk())
    log.roll(NOW_MS)
    append(log, "a")
    log.roll(NOW_MS)
    log.roll(NOW_MS)
    assert log.segments.base_offsets == (0, 1)


def test_a_segment_holds_offsets_up_to_2_31_from_its_base() -> None:
    log = open_log(MemoryDisk(), cleanup_policy=frozenset({"compact"}))
    far = 2**31
    for base in (0, far - 1, far, 3 * far):
        log.append_as_follower(make_batch("a", base_offset=base, leader_epoch=0), now_ms=NOW_MS)
    assert log.segments.base_offsets == (0, far, 3 * far)
    assert [h.base_offset for h, _ in batches_of(log)] == [0, far - 1, far, 3 * far]


def test_an_empty_segment_gives_way_to_one_that_can_hold_the_offset() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    log.append_as_follower(make_batch("a", base_offset=2**40, leader_epoch=0), now_ms=NOW_MS)
    assert log.segments.base_offsets == (2**40,)
    again = open_log(disk, clean=False)
    assert (again.log_start_offset, again.log_end_offset) == (2**40, 2**40 + 1)
    assert values_of(again) == ["a"]


# Followers.


def test_a_follower_keeps_offsets_and_epochs_as_they_came() -> None:
    leader = open_log(MemoryDisk())
    append(leader, "a", epoch=1)
    append(leader, "b", "c", epoch=4)
    append(leader, "d", epoch=6)
    fetched = leader.read(Offset(0), size_bytes_max=1 << 20, end_offset=Offset(4)).read_all()
    follower = open_log(MemoryDisk())
    result = follower.append_as_follower(memoryview(fetched + b"cut short"), now_ms=NOW_MS)
    assert result is not None
    assert (result.first_offset, result.last_offset, result.batch_count, result.record_count) == (0, 3, 3, 4)
    assert batches_of(follower) == batches_of(leader)
    assert lineage_of(follower) == [(1, 0), (4, 1), (6, 3)]


def test_a_follower_of_nothing_appends_nothing() -> None:
    log = open_log(MemoryDisk())
    assert log.append_as_follower(b"", now_ms=NOW_MS) is None
    assert log.append_as_follower(make_batch("a")[:-1], now_ms=NOW_MS) is None


def test_a_follower_whose_disk_was_full_goes_on_though_it_knows_of_a_later_epoch() -> None:
    """The epochs of what came are written before it: where it then found no room, they are ahead of the log."""
    leader, disk = open_log(MemoryDisk()), MemoryDisk()
    append(leader, "a", epoch=1)
    append(leader, "b", epoch=1)
    append(leader, "c", epoch=4)
    fetched = leader.read(Offset(1), size_bytes_max=1 << 20, end_offset=Offset(3)).read_all()
    follower = open_log(disk)
    follower.append_as_follower(make_batch("a", leader_epoch=1), now_ms=NOW_MS)
    disk.free_write_bytes = 100  # the epochs find room
    with pytest.raises(DiskError, match="no space left"):
        follower.append_as_follower(fetched, now_ms=NOW_MS)
    assert (lineage_of(follower), follower.log_end_offset) == ([(1, 0), (4, 2)], 1)
    disk.free_write_bytes = None
    follower.append_as_follower(fetched[: len(fetched) // 2], now_ms=NOW_MS)
    assert (lineage_of(follower), follower.log_end_offset) == ([(1, 0), (4, 2)], 2)
    follower.append_as_follower(fetched[len(fetched) // 2 :], now_ms=NOW_MS)
    assert (lineage_of(follower), values_of(follower)) == ([(1, 0), (4, 2)], ["a", "b", "c"])


def test_an_epoch_that_was_known_stays_when_one_that_was_not_comes_before_it() -> None:
    log = open_log(MemoryDisk())
    log.append_as_follower(make_batch("a", leader_epoch=1), now_ms=NOW_MS)
    log.correct_lineage([EpochEntry(LeaderEpoch(4), Offset(2))])
    fetched = make_batch("b", base_offset=1, leader_epoch=3) + make_batch("c", base_offset=2, leader_epoch=4)
    log.append_as_follower(fetched, now_ms=NOW_MS)
    assert (lineage_of(log), values_of(log)) == ([(1, 0), (3, 1), (4, 2)], ["a", "b", "c"])


def test_an_empty_log_refuses_no_epoch_for_one_that_it_only_knows_of() -> None:
    log = open_log(MemoryDisk())
    log.correct_lineage([EpochEntry(LeaderEpoch(4), Offset(0))])
    log.append_as_follower(make_batch("a", leader_epoch=3), now_ms=NOW_MS)
    assert (lineage_of(log), values_of(log)) == ([(3, 0)], ["a"])


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        (make_batch("x", base_offset=1, leader_epoch=5), "starts at offset 1, the log goes on at 2"),
        (make_batch("x", base_offset=2, leader_epoch=4), "of leader epoch 4"),
    ],
)
def test_a_follower_refuses_what_is_no_continuation(batch: bytearray, why: str) -> None:
    log = open_log(MemoryDisk())
    append(log, "a", "b", epoch=5)
    with pytest.raises(CorruptLogError, match=why):
        log.append_as_follower(batch, now_ms=NOW_MS)
    assert values_of(log) == ["a", "b"]


def test_a_follower_checks_the_crc() -> None:
    log = open_log(MemoryDisk())
    second = make_batch("b", base_offset=1, leader_epoch=0)
    second[-1] ^= 1
    with pytest.raises(KafkaError) as refused:
        log.append_as_follower(make_batch("a", leader_epoch=0) + second, now_ms=NOW_MS)
    assert refused.value.code == Code.CORRUPT_MESSAGE
    assert log.log_end_offset == 0


# The disk.


def test_a_write_cut_short_is_taken_back() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, "a")
    before = contents(disk)
    disk.free_write_bytes = 40
    with pytest.raises(DiskError, match=r"00000000000000000000.log: no space left"):
        append(log, "b")
    assert contents(disk) == before
    disk.free_write_bytes = None
    append(log, "c")
    assert values_of(log) == ["a", "c"]
    assert values_of(open_log(disk, clean=False)) == ["a", "c"]


def test_batches_that_reached_an_earlier_segment_stay() -> None:
    size = len(make_batch("a"))
    disk = MemoryDisk()
    log = open_log(disk, segment_size_bytes=2 * size)
    append(log, "a")
    disk.refusals.add("00000000000000000002.log")
    request = b"".join(make_batch(value) for value in "bcd")
    with pytest.raises(DiskError, match=r"2\.log"):
        log.append_as_leader(bytearray(request), leader_epoch=LeaderEpoch(0), now_ms=NOW_MS)
    disk.refusals.clear()
    append(log, "e")
    assert values_of(log) == ["a", "b", "e"]
    assert values_of(open_log(disk, clean=False)) == ["a", "b", "e"]


def test_a_log_whose_tail_cannot_be_taken_back_is_out_of_use() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, "a")
    disk.free_write_bytes = 40
    disk.refusals.add("truncate")
    with pytest.raises(DiskError, match="refused to truncate"):
        append(log, "b")
    disk.free_write_bytes = None
    disk.refusals.clear()
    for action in (lambda: append(log, "c"), log.flush, log.close):
        with pytest.raises(DiskError, match="out of use since an earlier failure"):
            action()
    log.release()
    assert values_of(open_log(disk, clean=False)) == ["a"]


def test_a_segment_that_cannot_be_made_leaves_the_old_one_in_use() -> None:
    size = len(make_batch("a"))
    disk = MemoryDisk()
    log = open_log(disk, segment_size_bytes=size)
    append(log, "a")
    disk.refusals.add("create")
    with pytest.raises(DiskError, match="refused to create"):
        append(log, "b")
    disk.refusals.clear()
    append(log, "c")
    assert values_of(log) == ["a", "c"]


def test_a_configuration_may_change_under_way() -> None:
    log = open_log(MemoryDisk())
    log.configure(LogConfig(message_size_bytes_max=10))
    with pytest.raises(KafkaError, match=r"flights-0: .* max\.message\.bytes=10"):
        append(log, "a")
    assert str(log.topic_partition) == str(FLIGHTS)
