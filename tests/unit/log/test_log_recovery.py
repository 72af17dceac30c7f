"""Opening what a stop left: torn writes, flipped bits, files that are missing, too long or not finished."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from support.examples import examples
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
from support.fixtures.memory_disk import Contents, MemoryDisk
from tidelog.base.errors import CorruptLogError, DiskError
from tidelog.base.ids import LeaderEpoch, Offset, TopicId, parse_uuid
from tidelog.log import Log, LogConfig

SIZE = len(make_batch("0"))
DIGITS = "0123456789"
SEGMENTED: dict[str, Any] = {"segment_size_bytes": 3 * SIZE, "index_interval_bytes": 0}
"""Three batches a segment: 0, 3, 6, 9."""


def path_of(base: int, suffix: str = "log") -> str:
    return f"{DIRECTORY}/{base:020d}.{suffix}"


def written(disk: MemoryDisk, *, close: bool = False, **settings: Any) -> Log:
    """Ten batches, one record each, in leader epochs 0 (0-4) and 2 (5-9)."""
    log = open_log(disk, **settings)
    for digit in DIGITS:
        append(log, digit, epoch=0 if digit < "5" else 2, timestamp=NOW_MS + int(digit))
    if close:
        log.close()
    return log


def data_of(disk: MemoryDisk, path: str) -> bytearray:
    return disk.files[path].data


def reads_well(log: Log, values: str) -> None:
    """Everything below can be found by offset and by time, and the log goes on after it."""
    assert values_of(log) == list(values)
    assert log.log_end_offset == len(values)
    for offset in range(len(values)):
        found = log.read(Offset(offset), size_bytes_max=1, end_offset=log.log_end_offset)
        assert found.first_offset == offset
        at = log.offset_for_timestamp(NOW_MS + offset, log.log_end_offset)
        assert at is not None
        assert at.offset == offset
    append(log, "next", epoch=9)
    assert values_of(log) == [*values, "next"]


# Nothing wrong.


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("settings", [{}, SEGMENTED])
def test_a_log_is_found_as_it_was_left(clean: bool, settings: dict[str, Any]) -> None:
    disk = MemoryDisk()
    before = batches_of(written(disk, close=clean, **settings))
    log = open_log(disk, clean=clean, **settings)
    assert batches_of(log) == before
    assert lineage_of(log) == [(0, 0), (2, 5)]
    assert log.recovery.lines() == []
    assert not log.recovery.is_worth_a_warning
    assert log.recovery.scanned_segment_count == (0 if clean else len(log.segments.base_offsets))
    reads_well(log, DIGITS)


@pytest.mark.parametrize("clean", [True, False])
def test_an_empty_log_is_found_empty(clean: bool) -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    if clean:
        log.close()
    log = open_log(disk, clean=clean)
    assert (log.log_start_offset, log.log_end_offset, log.recovery.lines()) == (0, 0, [])
    append(log, "a")
    assert values_of(log) == ["a"]


def test_only_what_is_above_the_recovery_point_is_read() -> None:
    disk = MemoryDisk()
    log = written(disk, **SEGMENTED)
    log.flush(Offset(6))
    log = open_log(disk, clean=False, recovery_point=log.recovery_point, **SEGMENTED)
    assert log.recovery.scanned_segment_count == 2
    assert log.recovery_point == 6
    reads_well(log, DIGITS)


def test_a_clean_start_takes_everything_for_synced() -> None:
    disk = MemoryDisk()
    written(disk, close=True, **SEGMENTED)
    assert open_log(disk, recovery_point=0, **SEGMENTED).recovery_point == 10


# The tail.


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("truncation", [1, 20, 61, SIZE - 1])
def test_a_torn_last_batch_is_cut_off(clean: bool, truncation: int) -> None:
    disk = MemoryDisk()
    written(disk, close=clean)
    del data_of(disk, path_of(0))[-truncation:]
    log = open_log(disk, clean=clean)
    found = log.recovery.truncation
    assert found is not None
    assert (found.path, found.position, found.size_bytes, found.end_offset) == (
        path_of(0),
        9 * SIZE,
        SIZE - truncation,
        9,
    )
    assert found.kept_as == ()
    assert len(data_of(disk, path_of(0))) == 9 * SIZE
    reads_well(log, DIGITS[:9])


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("size", [1, 5000])
def test_a_tail_of_zeros_is_cut_off(clean: bool, size: int) -> None:
    disk = MemoryDisk()
    written(disk, close=clean)
    data_of(disk, path_of(0)).extend(bytes(size))
    log = open_log(disk, clean=clean)
    assert log.recovery.truncation is not None
    assert (log.recovery.truncation.size_bytes, log.recovery.truncation.kept_as) == (size, ())
    reads_well(log, DIGITS)


def test_a_last_batch_whose_pages_never_came_is_cut_off() -> None:
    disk = MemoryDisk()
    written(disk)
    data_of(disk, path_of(0))[-SIZE:] = bytes(SIZE)
    log = open_log(disk, clean=False)
    assert log.recovery.truncation is not None
    assert log.recovery.truncation.kept_as == ()
    reads_well(log, DIGITS[:9])


def test_garbage_after_a_clean_stop_is_found_out() -> None:
    disk = MemoryDisk()
    written(disk, close=True)
    data_of(disk, path_of(0)).extend(b"\x07" * 100)
    log = open_log(disk, clean=True)
    assert log.recovery.truncation is not None
    assert "magic 7" in log.recovery.truncation.reason
    reads_well(log, DIGITS)


# Flipped bits.


FIELDS = {
    "base offset": 7,
    "base offset, far": 1,
    "length": 11,
    "length, far": 8,
    "leader epoch": 15,
    "leader epoch, far": 13,
    "magic": 16,
    "CRC": 18,
    "attributes": 22,
    "last offset delta": 26,
    "a record": SIZE - 3,
}


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("bit", [0, 6])
@pytest.mark.parametrize("settings", [{}, SEGMENTED])
def test_a_flipped_bit_cuts_the_log_and_nothing_is_thrown_away(field: str, bit: int, settings: dict[str, Any]) -> None:
    disk = MemoryDisk()
    written(disk, **settings)
    base, position = (3, SIZE) if settings else (0, 4 * SIZE)
    intact = {path: bytes(each.data) for path, each in disk.files.items() if path.endswith(".log")}
    data_of(disk, path_of(base))[position + FIELDS[field]] ^= 1 << bit
    flipped = bytes(data_of(disk, path_of(base)))
    log = open_log(disk, clean=False, **settings)
    truncation = log.recovery.truncation
    assert truncation is not None
    assert (truncation.path, truncation.position, truncation.end_offset, truncation.size_bytes) == (
        path_of(base),
        position,
        4,
        6 * SIZE,
    )
    kept = {path: bytes(data_of(disk, path)) for path in truncation.kept_as}
    expected = {path_of(4, "cut"): flipped[position:]}
    if settings:
        expected |= {path_of(later, "cut"): intact[path_of(later)] for later in (6, 9)}
    assert kept == expected
    assert log.segments.base_offsets == ((0, 3) if settings else (0,))
    assert lineage_of(log) == [(0, 0)]  # epoch 2 started at 5, beyond the end
    assert log.recovery.is_worth_a_warning
    assert str(truncation.position) in log.recovery.lines()[0]
    reads_well(log, "0123")


@pytest.mark.parametrize("seed", range(examples(20)))
def test_what_was_cut_off_survives_a_loss_of_power(seed: int) -> None:
    disk = MemoryDisk()
    written(disk, **SEGMENTED).flush()
    data_of(disk, path_of(3))[SIZE + 65] ^= 1
    disk.files[path_of(3)].synced = bytes(data_of(disk, path_of(3)))
    tails = [bytes(data_of(disk, path_of(3)))[SIZE:], *(bytes(data_of(disk, path_of(base))) for base in (6, 9))]
    open_log(disk, clean=False, **SEGMENTED)
    disk.lose_power(Random(seed))
    everything = [bytes(each.data) for each in disk.files.values()]
    assert all(any(tail in data for data in everything) for tail in tails)
    reads_well(open_log(disk, clean=False, **SEGMENTED), "0123")


def test_a_second_cut_at_the_same_offset_keeps_the_first_one() -> None:
    disk = MemoryDisk()
    for _ in range(2):
        log = open_log(disk, clean=False)
        for digit in DIGITS[log.log_end_offset :]:
            append(log, digit)
        data_of(disk, path_of(0))[4 * SIZE + 65] ^= 1
        log = open_log(disk, clean=False)
        assert log.log_end_offset == 4
    assert sorted(path for path in disk.files if ".cut" in path) == [path_of(4, "cut"), path_of(4, "cut+")]


def test_a_flipped_bit_below_the_recovery_point_is_neither_cut_nor_served() -> None:
    disk = MemoryDisk()
    log = written(disk, **SEGMENTED)
    log.flush(Offset(9))
    data_of(disk, path_of(3))[SIZE + 16] ^= 1  # the magic of batch 4
    log = open_log(disk, clean=False, recovery_point=9, **SEGMENTED)
    assert log.recovery.truncation is None
    assert (log.log_start_offset, log.log_end_offset) == (0, 10)
    with pytest.raises(CorruptLogError, match=r"00000000000000000003.log: no batch at position"):
        log.read(Offset(4), size_bytes_max=1, end_offset=Offset(10))
    for offset in (0, 2, 3, 5, 6, 9):
        found = log.read(Offset(offset), size_bytes_max=1, end_offset=Offset(10))
        assert found.first_offset == offset


def test_an_index_is_not_built_from_offsets_that_cannot_be() -> None:
    disk = MemoryDisk()
    written(disk, close=True, **SEGMENTED)
    data_of(disk, path_of(3))[SIZE + 2] ^= 1  # the base offset of batch 4, which no CRC covers
    disk.remove(path_of(3, "index"))
    for _ in range(2):  # every start says so
        log = open_log(disk, clean=True, **SEGMENTED)
        assert "outside [4, 6)" in log.recovery.damages[0]
        for timestamp in (NOW_MS + 4, NOW_MS + 5):
            with pytest.raises(CorruptLogError, match="outside"):
                log.offset_for_timestamp(timestamp, Offset(10))
        for index in (0, 2, 3):
            assert log.offset_for_timestamp(NOW_MS + index, Offset(10)) == (NOW_MS + index, index, 0)
            assert log.read(Offset(index), size_bytes_max=1, end_offset=Offset(10)).first_offset == index
        log.close()


def test_damage_that_hides_an_index_entry_is_reported() -> None:
    disk = MemoryDisk()
    written(disk, close=True, **SEGMENTED)
    data_of(disk, path_of(3))[SIZE + 16] ^= 1
    disk.remove(path_of(3, "index"))
    log = open_log(disk, clean=True, **SEGMENTED)
    assert any("no batch at position" in line for line in log.recovery.damages)
    assert log.recovery.is_worth_a_warning
    assert log.read(Offset(3), size_bytes_max=1, end_offset=Offset(10)).first_offset == 3
    assert log.read(Offset(6), size_bytes_max=1, end_offset=Offset(10)).first_offset == 6


def test_records_lost_between_two_segments_end_the_log() -> None:
    disk = MemoryDisk()
    written(disk, **SEGMENTED)
    del data_of(disk, path_of(3))[-SIZE:]  # a whole batch: nothing in the file itself is wrong
    log = open_log(disk, clean=False, **SEGMENTED)
    truncation = log.recovery.truncation
    assert truncation is not None
    assert "ends at offset 5, the next one starts at 6" in truncation.reason
    assert (truncation.end_offset, truncation.kept_as) == (5, (path_of(6, "cut"), path_of(9, "cut")))
    reads_well(log, "01234")


def test_overlapping_segments_end_the_log_where_they_overlap() -> None:
    disk = MemoryDisk()
    written(disk, **SEGMENTED)
    disk.files[path_of(2)] = Contents()
    data_of(disk, path_of(2)).extend(data_of(disk, path_of(0))[2 * SIZE :])
    log = open_log(disk, clean=False, **SEGMENTED)
    assert log.recovery.truncation is not None
    assert "the next segment starts at 2" in log.recovery.truncation.reason
    reads_well(log, "01")


def test_a_record_that_was_truncated_does_not_come_back_with_the_power() -> None:
    """The truncation was not synced, the lineage was: the old record is known by its leader epoch."""
    disk = MemoryDisk()
    log = written(disk)
    before = bytes(data_of(disk, path_of(0)))
    log.truncate_to(Offset(8))
    log.assign_leader_epoch(LeaderEpoch(3))
    data_of(disk, path_of(0))[:] = before
    log = open_log(disk, clean=False)
    assert log.recovery.truncation is not None
    assert "says leader epoch 2, the leader epoch checkpoint 3" in log.recovery.truncation.reason
    assert lineage_of(log) == [(0, 0), (2, 5), (3, 8)]
    reads_well(log, "01234567")


def test_compacted_logs_may_have_gaps() -> None:
    settings: dict[str, Any] = {"cleanup_policy": frozenset({"compact"}), "segment_size_bytes": 2 * SIZE}
    disk = MemoryDisk()
    log = open_log(disk, **settings)
    for base in (3, 7, 20, 21, 50):
        log.append_as_follower(make_batch("a", base_offset=base, leader_epoch=1), now_ms=NOW_MS)
    again = open_log(disk, clean=False, **settings)
    assert (again.recovery.lines(), again.log_end_offset) == ([], 51)
    assert [header.base_offset for header, _ in batches_of(again)] == [3, 7, 20, 21, 50]


# Indexes.


def damage_index(how: str, data: bytearray) -> None:
    if how == "half an entry":
        data.extend(b"\0\0\0")
    elif how == "too long":
        data.extend((2).to_bytes(4) + (1 << 20).to_bytes(4))
    elif how == "unused space behind it":
        data.extend(bytes(8 * 100))
    elif how == "garbage":
        data[:] = bytes(range(1, 25))[: len(data)]
    elif how == "shifted":
        data[7] += 1
    elif how == "empty":
        data.clear()


@pytest.mark.parametrize(
    "how", ["half an entry", "too long", "unused space behind it", "garbage", "shifted", "empty", "missing"]
)
@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("base", [3, 6])
@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_index_is_built_anew(how: str, suffix: str, base: int, clean: bool) -> None:
    disk = MemoryDisk()
    written(disk, close=True, **SEGMENTED)
    right = {path: bytes(each.data) for path, each in disk.files.items() if "index" in path}
    path = path_of(base, suffix)
    if how == "missing":
        disk.remove(path)
    else:
        damage_index(how, data_of(disk, path))
    log = open_log(disk, clean=clean, **SEGMENTED)
    assert log.recovery.truncation is None
    for offset in range(10):
        assert log.read(Offset(offset), size_bytes_max=1, end_offset=Offset(10)).first_offset == offset
    reads_well(log, DIGITS)
    if not clean:
        assert {path: bytes(data_of(disk, path)) for path in right} == right


def test_an_index_without_its_log_is_removed() -> None:
    disk = MemoryDisk()
    written(disk, close=True)
    for suffix in ("index", "timeindex"):
        disk.files[path_of(77, suffix)] = Contents()
    log = open_log(disk)
    assert len(log.recovery.leftovers) == 2
    assert not [path for path in disk.files if "77" in path]


def test_files_of_other_names_are_left_alone() -> None:
    disk = MemoryDisk()
    written(disk, close=True)
    strangers = [f"{DIRECTORY}/{name}" for name in ("7.log", "notes.txt", "x0000000000000000000.log", "quorum-state")]
    for path in strangers:
        disk.files[path] = Contents()
    log = open_log(disk, clean=False)
    assert all(disk.exists(path) for path in strangers)
    reads_well(log, DIGITS)


# What was under way.


def put(disk: MemoryDisk, path: str, data: bytes) -> None:
    disk.files[path] = Contents()
    disk.files[path].data.extend(data)


def test_unfinished_files_are_removed() -> None:
    disk = MemoryDisk()
    written(disk, close=True)
    names = [
        "00000000000000000005.log.deleted",
        "00000000000000000005.index.deleted",
        "00000000000000000000.log.cleaned",
        "00000000000000000000.timeindex.cleaned",
        "leader-epoch-checkpoint.tmp",
        "00000000000000000000.log.swap",
        "00000000000000000000.index.swap",
    ]
    for name in names:
        put(disk, f"{DIRECTORY}/{name}", b"garbage")
    log = open_log(disk)
    assert not [name for name in names if disk.exists(f"{DIRECTORY}/{name}") and not name.endswith("index.swap")]
    reads_well(log, DIGITS)


def test_a_finished_compaction_replaces_what_it_came_from() -> None:
    disk = MemoryDisk()
    log = written(disk, close=True, **SEGMENTED)
    kept = [data for header, data in batches_of(open_log(disk, **SEGMENTED)) if header.base_offset in (1, 5)]
    put(disk, path_of(0, "log.swap"), b"".join(kept))
    put(disk, path_of(0, "index.swap"), b"")
    put(disk, path_of(0, "timeindex.swap"), b"")
    for clean in (True, False):
        log = open_log(disk, clean=clean, cleanup_policy=frozenset({"compact"}), **SEGMENTED)
        assert log.segments.base_offsets == (0, 6, 9)
        assert values_of(log) == list("156789")
        assert log.recovery.damages == []


# The lineage.


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("text", [None, b"", b"\xff\xfe", b"0\n1\n", b"0\n2\n5 5\n1 1\n", b"1\n0\n"])
def test_a_lineage_that_cannot_be_read_is_derived_from_the_batches(clean: bool, text: bytes | None) -> None:
    disk = MemoryDisk()
    written(disk, close=clean, **SEGMENTED)
    path = f"{DIRECTORY}/leader-epoch-checkpoint"
    if text is None:
        disk.remove(path)
    else:
        disk.files[path].data[:] = text
    log = open_log(disk, clean=clean, **SEGMENTED)
    assert lineage_of(log) == [(0, 0), (2, 5)]
    assert log.recovery.lineage_rebuilt is not None
    assert log.recovery.is_worth_a_warning
    assert disk.files[path].synced == b"0\n2\n0 0\n2 5\n"
    reads_well(log, DIGITS)


def test_without_a_lineage_leader_epochs_may_still_not_go_back() -> None:
    disk = MemoryDisk()
    written(disk)
    disk.remove(f"{DIRECTORY}/leader-epoch-checkpoint")
    data_of(disk, path_of(0))[7 * SIZE + 15] = 1  # the leader epoch is not under the CRC
    log = open_log(disk, clean=False)
    assert log.recovery.truncation is not None
    assert "says leader epoch 1, those before it 2" in log.recovery.truncation.reason
    reads_well(log, "0123456")


@pytest.mark.parametrize("clean", [True, False])
def test_a_lineage_that_can_be_read_is_trusted(clean: bool) -> None:
    """Compaction may have removed every record of an epoch: the file knows, the batches do not (rule 11)."""
    disk = MemoryDisk()
    written(disk, close=clean)
    path = f"{DIRECTORY}/leader-epoch-checkpoint"
    disk.files[path].data[:] = b"0\n3\n0 0\n2 5\n4 10\n"
    log = open_log(disk, clean=clean)
    assert lineage_of(log) == [(0, 0), (2, 5), (4, 10)]  # a leader that crashed before its first append
    assert log.recovery.lineage_dropped_count == 0


def test_epochs_beyond_the_log_end_are_dropped() -> None:
    disk = MemoryDisk()
    log = written(disk)
    log.assign_leader_epoch(LeaderEpoch(4))
    append(log, "10", epoch=5)
    del data_of(disk, path_of(0))[9 * SIZE :]
    log = open_log(disk, clean=False)
    assert lineage_of(log) == [(0, 0), (2, 5)]
    assert log.recovery.lineage_dropped_count == 1  # 5 at 10; 4 left no trace
    assert disk.files[f"{DIRECTORY}/leader-epoch-checkpoint"].synced == b"0\n2\n0 0\n2 5\n"


# The log start.


def test_a_log_starts_at_its_checkpoint_or_its_first_segment() -> None:
    disk = MemoryDisk()
    written(disk, close=True, **SEGMENTED)
    log = open_log(disk, log_start_offset=4, **SEGMENTED)
    assert (log.log_start_offset, values_of(log)) == (4, list("456789"))
    assert lineage_of(log) == [(0, 4), (2, 5)]
    for base in (0, 3):
        disk.remove(path_of(base))
    log = open_log(disk, clean=False, log_start_offset=4, **SEGMENTED)
    assert (log.log_start_offset, values_of(log)) == (6, list("6789"))
    assert lineage_of(log) == [(2, 6)]


def test_a_log_that_lost_all_above_its_start_begins_there_anew() -> None:
    disk = MemoryDisk()
    written(disk, **SEGMENTED)
    data_of(disk, path_of(0))[2 * SIZE + 30] ^= 1
    log = open_log(disk, clean=False, log_start_offset=8, **SEGMENTED)
    assert (log.log_start_offset, log.log_end_offset, log.segments.base_offsets) == (8, 8, (8,))
    append(log, "8", epoch=3)
    assert values_of(log) == ["8"]


def test_a_new_log_may_start_anywhere() -> None:
    log = open_log(MemoryDisk(), log_start_offset=500)
    assert append(log, "a").first_offset == 500


# The topic id.

TOPIC_ID = TopicId(parse_uuid("AAAAAAAAQACAAAAAAAAAAQ"))
OTHER_ID = TopicId(parse_uuid("AAAAAAAAQACAAAAAAAAAAg"))


def open_as(disk: MemoryDisk, topic_id: TopicId | None) -> Log:
    return Log.open(disk, DIRECTORY, FLIGHTS, LogConfig(), topic_id=topic_id, clean_shutdown=True, now_ms=NOW_MS)


def test_a_directory_belongs_to_one_topic_id() -> None:
    disk = MemoryDisk()
    assert open_as(disk, None).topic_id is None
    assert open_as(disk, TOPIC_ID).topic_id == TOPIC_ID
    path = f"{DIRECTORY}/partition.metadata"
    assert disk.files[path].synced == b"version: 0\ntopic_id: AAAAAAAAQACAAAAAAAAAAQ"
    assert open_as(disk, None).topic_id == TOPIC_ID
    with pytest.raises(CorruptLogError, match=r"to topic id AAAAAAAAQACAAAAAAAAAAQ, not AAAAAAAAQACAAAAAAAAAAg"):
        open_as(disk, OTHER_ID)


# Crashes while recovering, and a disk that refuses.


@pytest.mark.parametrize("operation", ["truncate", "sync", "rename", "create", "remove"])
def test_a_disk_that_refuses_recovery_says_so_and_the_next_try_succeeds(operation: str) -> None:
    disk = MemoryDisk()
    written(disk, **SEGMENTED)
    data_of(disk, path_of(3))[SIZE + 30] ^= 1
    put(disk, path_of(99, "log.deleted"), b"")
    disk.refusals.add(operation)
    with pytest.raises(DiskError, match=f"refused to {operation}"):
        open_log(disk, clean=False, **SEGMENTED)
    disk.refusals.clear()
    log = open_log(disk, clean=False, **SEGMENTED)
    reads_well(log, "0123")


@pytest.mark.parametrize("budget", range(0, 200, 9))
def test_a_recovery_may_run_out_of_space_at_any_byte(budget: int) -> None:
    disk = MemoryDisk()
    written(disk, **SEGMENTED)
    data_of(disk, path_of(3))[SIZE + 30] ^= 1
    disk.free_write_bytes = budget
    with pytest.raises(DiskError, match="no space left"):
        open_log(disk, clean=False, **SEGMENTED)
    disk.free_write_bytes = None
    reads_well(open_log(disk, clean=False, **SEGMENTED), "0123")


Step = Callable[[Log], object]
STEPS: dict[str, Step] = {
    "truncate_to": lambda log: log.truncate_to(Offset(4)),
    "truncate_fully": lambda log: log.truncate_fully_and_start_at(Offset(4)),
    "roll": lambda log: log.roll(NOW_MS),
    "close": lambda log: log.close(),
    "flush": lambda log: log.flush(),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("operation", ["truncate", "sync", "rename", "create", "remove", "write"])
def test_a_log_opens_after_a_disk_error_at_any_operation(step: str, operation: str) -> None:
    disk = MemoryDisk()
    log = written(disk, **SEGMENTED)
    disk.refusals.add(operation)
    with suppress(DiskError):
        STEPS[step](log)
    disk.refusals.clear()
    again = open_log(disk, clean=False, **SEGMENTED)
    values = "".join(values_of(again))
    assert DIGITS.startswith(values)
    assert step.startswith("truncate") or values == DIGITS
    if again.log_start_offset == 0:
        reads_well(again, values)
