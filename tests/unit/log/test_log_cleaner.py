"""Compaction of a log in memory: what stays, what goes, and that no stop in the middle of it loses anything."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fixtures.cleaning import clean, key_values
from support.fixtures.logs import DIRECTORY, NOW_MS, batches_of, lineage_of, make_batch, open_log, records_of
from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import CorruptLogError, DiskError, KafkaError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.io.disk import RealDisk
from tidelog.log import Log
from tidelog.log.compaction.cleaner import LogCleaner
from tidelog.records import BatchBuilder, read_header, read_records
from tidelog.records.header import DELETE_HORIZON_FLAG, write_batch

COMPACT: dict[str, Any] = {
    "cleanup_policy": frozenset({"compact"}),
    "segment_size_bytes": 300,
    "index_interval_bytes": 100,
    "min_cleanable_dirty_ratio": 0.0,
    "message_timestamp_after_ms_max": None,
}
DAY_MS = 24 * 3600 * 1000

Rows = list[tuple[bytes | None, bytes | None]]


def put(log: Log, rows: Rows, *, epoch: int = 0, timestamp: int = NOW_MS, **settings: Any) -> int:
    """Append one batch. Returns its first offset."""
    builder = BatchBuilder(**settings)
    for index, (key, value) in enumerate(rows):
        builder.append(timestamp + index, key, value)
    result = log.append_as_leader(bytearray(builder.build()), leader_epoch=LeaderEpoch(epoch), now_ms=NOW_MS)
    return result.first_offset


def put_each(log: Log, text: str) -> None:
    """One record a batch, of the keys that the letters are; its value is its offset."""
    for key in text:
        put(log, [(key.encode(), b"%d" % log.log_end_offset)])


def offsets_of(log: Log) -> list[int]:
    return [record.offset for record in records_of(log)]


def seal(log: Log) -> None:
    log.roll(NOW_MS)
    log.flush()


# What stays.


def test_the_last_record_of_each_key_stays_where_it_was() -> None:
    log = open_log(MemoryDisk(), **COMPACT)
    put_each(log, "abacabad")
    seal(log)
    put_each(log, "a")
    assert clean(log)
    assert [(r.offset, r.key, r.value) for r in records_of(log)] == [
        (3, b"c", b"3"),
        (5, b"b", b"5"),
        (6, b"a", b"6"),
        (7, b"d", b"7"),
        (8, b"a", b"8"),
    ]
    assert log.log_start_offset == 0
    assert log.log_end_offset == 9


def test_a_batch_that_lost_records_keeps_its_place_its_producer_and_its_compression() -> None:
    for compression in ("none", "gzip", "snappy", "lz4", "zstd"):
        log = open_log(MemoryDisk(), **COMPACT)
        rows: Rows = [(b"a", b"x" * 50), (b"b", b"y" * 50), (b"c", None), (b"a", b"z" * 50)]
        put(log, rows, compression=compression, producer_id=7, producer_epoch=1, base_sequence=5, epoch=3)
        before = batches_of(log)[0][0]
        put(log, [(b"b", b"later")], epoch=3)
        seal(log)
        clean(log)
        header, data = batches_of(log)[0]
        assert header.last_offset_delta == 3
        assert header.record_count == 2
        assert header.compression == before.compression
        assert header[0:1] + header[9:12] == before[0:1] + before[9:12]
        assert header.leader_epoch == 3
        assert [(r.offset, r.timestamp, r.key) for r in read_records(data)] == [
            (2, NOW_MS + 2, b"c"),
            (3, NOW_MS + 3, b"a"),
        ]
        assert header.max_timestamp == NOW_MS + 3


def test_what_did_not_change_keeps_its_bytes() -> None:
    disk = MemoryDisk()
    log = open_log(disk, **COMPACT)
    for each in range(9):
        put(log, [(b"k%d" % each, b"v" * 60)], compression="zstd")
    seal(log)
    before = [data for _, data in batches_of(log)]
    names = disk.list(DIRECTORY)
    assert clean(log)
    assert [data for _, data in batches_of(log)] == before
    assert disk.list(DIRECTORY) == sorted([*names, "cleaned-end-offset"]) or len(log.segments.base_offsets) > 1


def test_records_without_a_key_stay() -> None:
    log = open_log(MemoryDisk(), **{**COMPACT, "cleanup_policy": frozenset({"delete"})})
    put(log, [(None, b"1"), (b"a", b"2"), (None, None), (b"a", b"3")])
    seal(log)
    log.configure(open_log(MemoryDisk(), **COMPACT).config)
    clean(log)
    assert offsets_of(log) == [0, 2, 3]


def test_the_active_segment_is_left_alone_and_so_is_what_is_not_committed_or_not_synced() -> None:
    log = open_log(MemoryDisk(), **COMPACT)
    put_each(log, "aaaaaaaaaaaaaaa")
    *_, active = log.segments.base_offsets
    assert not clean(log, end_offset_max=0)
    second = log.segments.base_offsets[1]
    assert clean(log, end_offset_max=second)
    assert offsets_of(log)[0] == second - 1
    assert clean(log, end_offset_max=log.log_end_offset)
    assert offsets_of(log) == [active - 1, *range(active, 15)]


def test_neighbours_that_became_small_become_one() -> None:
    log = open_log(MemoryDisk(), **COMPACT)
    put_each(log, "abcd" * 10)
    seal(log)
    assert len(log.segments.base_offsets) > 8
    clean(log)
    clean(log, first_dirty_offset=0)
    assert len(log.segments.base_offsets) < 8
    assert offsets_of(log) == [36, 37, 38, 39]


# Marks of deleted keys.


def test_the_mark_of_a_deleted_key_goes_once_its_time_has_come() -> None:
    log = open_log(MemoryDisk(), delete_retention_ms=DAY_MS, **COMPACT)
    put(log, [(b"a", b"1"), (b"b", b"1"), (b"a", None)])
    put(log, [(b"c", b"1")])
    seal(log)
    clean(log, now_ms=NOW_MS)
    header, _ = batches_of(log)[0]
    assert header.delete_horizon_ms == NOW_MS + DAY_MS
    assert [(r.offset, r.timestamp, r.value) for r in records_of(log)] == [
        (1, NOW_MS + 1, b"1"),
        (2, NOW_MS + 2, None),
        (3, NOW_MS, b"1"),
    ]
    put(log, [(b"c", b"2")])
    seal(log)
    clean(log, now_ms=NOW_MS + DAY_MS - 1)
    assert 2 in offsets_of(log)
    put(log, [(b"c", b"3")])
    seal(log)
    clean(log, now_ms=NOW_MS + DAY_MS)
    assert offsets_of(log) == [1, 5]
    assert records_of(log)[0].timestamp == NOW_MS + 1


def test_the_horizon_stays_when_other_records_of_the_batch_go() -> None:
    log = open_log(MemoryDisk(), delete_retention_ms=DAY_MS, **COMPACT)
    put(log, [(b"a", None), (b"b", b"1")], compression="lz4")
    seal(log)
    clean(log, now_ms=NOW_MS)
    put(log, [(b"b", b"2")])
    seal(log)
    clean(log, now_ms=NOW_MS + 500)
    header, data = batches_of(log)[0]
    assert header.delete_horizon_ms == NOW_MS + DAY_MS
    assert [(r.offset, r.timestamp) for r in read_records(data)] == [(0, NOW_MS)]


def test_a_producer_does_not_say_when_marks_go() -> None:
    log = open_log(MemoryDisk(), **COMPACT)
    batch = make_batch("a")
    header = read_header(batch)
    doctored = write_batch(header._replace(attributes=DELETE_HORIZON_FLAG), batch[61:])
    with pytest.raises(KafkaError, match="may not say when compaction removes"):
        log.append_as_leader(bytearray(doctored), leader_epoch=LeaderEpoch(0), now_ms=NOW_MS)


@pytest.mark.parametrize("timestamp", [-1, 0, 1, 1 << 62])
def test_timestamps_survive_the_horizon(timestamp: int) -> None:
    log = open_log(MemoryDisk(), **COMPACT)
    put(log, [(b"a", None), (b"b", b"1")], timestamp=timestamp)
    seal(log)
    clean(log, now_ms=NOW_MS)
    assert [r.timestamp for r in records_of(log)] == [timestamp, timestamp + 1]


def test_all_records_of_a_batch_by_the_leaders_clock_keep_its_time() -> None:
    log = open_log(MemoryDisk(), message_timestamp_type="LogAppendTime", **COMPACT)
    put(log, [(b"a", b"1"), (b"a", None)], timestamp=5)
    seal(log)
    clean(log, now_ms=NOW_MS + 9)
    assert [(r.offset, r.timestamp) for r in records_of(log)] == [(1, NOW_MS)]


# Batches without records.


def test_the_last_batch_of_a_producer_stays_without_its_records() -> None:
    disk = MemoryDisk()
    log = open_log(disk, **COMPACT)
    for sequence in range(3):
        put(log, [(b"a", b"1")], producer_id=9, producer_epoch=2, base_sequence=sequence)
    put(log, [(b"a", b"2")])
    put(log, [(b"b", b"2")])
    seal(log)
    clean(log)
    assert [(h.base_offset, h.record_count) for h, _ in batches_of(log)] == [(2, 0), (3, 1), (4, 1)]
    for name in [name for name in disk.list(DIRECTORY) if name.endswith(".snapshot")]:
        disk.remove(f"{DIRECTORY}/{name}")
    again = open_log(disk, clean=False, **COMPACT)
    known = again.producers.get(9)
    assert known is not None
    assert known.batches[-1].last_sequence == 2


def test_at_the_end_of_what_was_compacted_a_batch_stays_for_who_stands_there() -> None:
    log = open_log(MemoryDisk(), delete_retention_ms=0, **COMPACT)
    put_each(log, "ab")
    put(log, [(b"a", None)])
    seal(log)
    clean(log)
    clean(log, first_dirty_offset=0, now_ms=NOW_MS + 1)  # as if the checkpoint was lost
    assert [(h.base_offset, h.record_count) for h, _ in batches_of(log)] == [(1, 1), (2, 0)]
    assert log.read(Offset(2), size_bytes_max=1 << 20, end_offset=Offset(3)).next_offset == 3


def test_who_stands_where_records_went_is_led_on() -> None:
    log = open_log(MemoryDisk(), delete_retention_ms=0, **COMPACT)
    put_each(log, "abcd")
    for key in (b"a", b"b", b"c", b"d"):
        put(log, [(key, None)])
    seal(log)
    clean(log)
    put(log, [(b"e", b"1")])
    seal(log)
    clean(log, now_ms=NOW_MS + 1)
    assert offsets_of(log) == [8]
    for offset in range(9):
        found = log.read(Offset(offset), size_bytes_max=1 << 20, end_offset=log.log_end_offset)
        assert found.next_offset > offset
        assert found.first_offset >= 0


# Reading meanwhile.


def test_who_reads_in_an_old_segment_reads_on_in_it() -> None:
    log = open_log(MemoryDisk(), **{**COMPACT, "segment_size_bytes": 1 << 20})
    put_each(log, "aaaa")
    seal(log)
    before = log.read(Offset(1), size_bytes_max=150, end_offset=Offset(4))
    expected, next_offset = before.read_all(), before.next_offset
    held = log.read(Offset(1), size_bytes_max=150, end_offset=Offset(4))
    assert clean(log)
    log.segments.remove_deleted_files()
    assert held.read_all() == expected
    assert held.next_offset == next_offset
    assert log.read(Offset(1), size_bytes_max=150, end_offset=Offset(4)).first_offset == 3


def test_a_batch_without_records_has_no_time() -> None:
    disk = MemoryDisk()
    log = open_log(disk, **COMPACT)
    put(log, [(b"a", b"1")], timestamp=NOW_MS + 500, producer_id=9, producer_epoch=2, base_sequence=0)
    put(log, [(b"b", b"1")], timestamp=NOW_MS + 100)
    put(log, [(b"a", b"2")], timestamp=NOW_MS)
    seal(log)
    clean(log)
    assert [(h.base_offset, h.record_count) for h, _ in batches_of(log)] == [(0, 0), (1, 1), (2, 1)]
    for again in (log, open_log(disk, clean=False, **COMPACT)):
        newest = again.max_timestamp_offset()
        assert newest is not None
        assert (newest.timestamp, newest.offset) == (NOW_MS + 100, 1)


def test_producer_snapshots_stay_where_segments_begin() -> None:
    disk = MemoryDisk()
    log = open_log(disk, **COMPACT)
    for sequence in range(20):
        put(log, [(b"a", b"1")], producer_id=9, producer_epoch=2, base_sequence=sequence)
    seal(log)
    clean(log)
    kept = [int(name.partition(".")[0]) for name in disk.list(DIRECTORY) if name.endswith(".snapshot")]
    assert kept == [offset for offset in log.segments.base_offsets if offset]
    assert len(kept) == 1


def test_times_are_found_after_compaction() -> None:
    disk = MemoryDisk()
    log = open_log(disk, **COMPACT)
    for each in range(20):
        put(log, [(b"k%d" % (each % 3), b"1")], timestamp=NOW_MS + each * 10)
    put(log, [(b"k1", b"late")], timestamp=NOW_MS + 1)
    seal(log)
    clean(log)
    for again in (log, open_log(disk, clean=False, **COMPACT)):
        left = [(r.timestamp, r.offset) for r in records_of(again)]
        for timestamp in (NOW_MS, NOW_MS + 171, NOW_MS + 185):
            expected = next((r for r in left if r[0] >= timestamp), None)
            found = again.offset_for_timestamp(timestamp, again.log_end_offset)
            assert (found and (found.timestamp, found.offset)) == expected
        newest = again.max_timestamp_offset()
        assert newest is not None
        assert newest.timestamp == max(left)[0]


# Gaps.


def test_a_cleaned_log_is_whole_whatever_its_policy_becomes() -> None:
    disk = MemoryDisk()
    log = open_log(disk, **COMPACT)
    put_each(log, "abacabadabacabae")
    seal(log)
    put_each(log, "xy")
    clean(log)
    expected = offsets_of(log)
    for clean_stop in (False, True):
        again = open_log(disk, clean=clean_stop, **{**COMPACT, "cleanup_policy": frozenset({"delete"})})
        assert again.recovery.truncation is None
        assert not again.recovery.is_worth_a_warning
        assert offsets_of(again) == expected
        again.close()


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_gap_above_the_mark_is_a_loss_whatever_the_policy(policy: str) -> None:
    disk = MemoryDisk()
    settings = {**COMPACT, "cleanup_policy": frozenset({policy}), "segment_size_bytes": 1 << 20}
    log = open_log(disk, **settings)
    put_each(log, "aabb")
    seal(log)
    if policy == "compact":
        clean(log)
    put_each(log, "cdef")
    gone = batches_of(log)[-2][1]
    path = f"{DIRECTORY}/{log.segments.base_offsets[-1]:020d}.log"
    data = disk.files[path].data
    at = bytes(data).index(gone)
    del data[at : at + len(gone)]
    again = open_log(disk, clean=False, **settings)
    assert again.recovery.truncation is not None
    assert "the batch has offset 7 where 6 comes next" in again.recovery.truncation.reason


def test_without_a_mark_a_compacted_log_counts_as_cleaned_up_to_its_end() -> None:
    disk = MemoryDisk()
    log = open_log(disk, **COMPACT)
    put_each(log, "abab")
    seal(log)
    clean(log)
    disk.remove(f"{DIRECTORY}/cleaned-end-offset")
    again = open_log(disk, clean=False, **COMPACT)
    assert again.recovery.truncation is None
    assert again.compaction.mark.end_offset == 4
    assert offsets_of(again) == [2, 3]


def test_a_mark_that_cannot_be_read_is_told_and_costs_nothing() -> None:
    disk = MemoryDisk()
    log = open_log(disk, **COMPACT)
    put_each(log, "abab")
    seal(log)
    clean(log)
    disk.files[f"{DIRECTORY}/cleaned-end-offset"].data[:] = b"?"
    again = open_log(disk, clean=False, **{**COMPACT, "cleanup_policy": frozenset({"delete"})})
    assert again.recovery.truncation is None
    assert "whether offsets are missing by compaction or by loss cannot be told" in again.recovery.lines()[0]
    assert offsets_of(again) == [2, 3]


def test_truncation_takes_the_mark_back() -> None:
    disk = MemoryDisk()
    log = open_log(disk, **COMPACT)
    put_each(log, "ababab")
    seal(log)
    clean(log)
    assert log.compaction.mark.end_offset == 6
    log.truncate_to(Offset(5))
    assert log.compaction.mark.end_offset == 5
    log.truncate_fully_and_start_at(Offset(100))
    assert log.compaction.mark.end_offset == 0
    assert open_log(disk, **COMPACT).log_end_offset == 100


def test_the_lineage_answers_as_before() -> None:
    disk = MemoryDisk()
    log = open_log(disk, **COMPACT)
    for epoch in range(1, 9):
        put(log, [(b"a", b"%d" % epoch)], epoch=epoch)
    seal(log)
    before = lineage_of(log)
    clean(log)
    assert offsets_of(log) == [7]
    assert lineage_of(log) == before
    again = open_log(disk, clean=False, **COMPACT)
    assert lineage_of(again) == before


def test_a_lost_lineage_is_not_made_up_from_what_compaction_left() -> None:
    disk = MemoryDisk()
    log = open_log(disk, **COMPACT)
    for epoch in range(1, 5):
        put(log, [(b"a", b"1")], epoch=epoch)
    seal(log)
    clean(log)
    put(log, [(b"b", b"1")], epoch=7)
    disk.remove(f"{DIRECTORY}/leader-epoch-checkpoint")
    again = open_log(disk, clean=False, **COMPACT)
    assert lineage_of(again) == [(7, 4)]
    assert again.recovery.lineage_rebuilt is not None


# Bounds, damage and interference.


def test_a_full_map_ends_the_range_and_the_next_turn_goes_on() -> None:
    log = open_log(MemoryDisk(), **COMPACT)
    put_each(log, "abcdefghijabcdefghijabcdefghij")
    seal(log)
    expected = key_values(log)
    first_dirty_offset = 0
    for _ in range(40):
        job = start(log, first_dirty_offset=first_dirty_offset, dedupe_size_bytes=400)
        if job is None:
            break
        drive(log, job)
        assert first_dirty_offset < job.end_offset <= first_dirty_offset + 4
        assert job.end_offset == 30 or "dedupe.buffer.size is used up" in (job.why_shortened or "")
        first_dirty_offset = job.end_offset
        assert key_values(log) == expected
    assert first_dirty_offset == 30
    assert offsets_of(log) == list(range(20, 30))


def start(log: Log, *, first_dirty_offset: int = 0, dedupe_size_bytes: int = 1 << 20) -> LogCleaner | None:
    dirty = log.compaction.dirty_range(
        log.config,
        first_dirty_offset=Offset(first_dirty_offset),
        end_offset_max=log.recovery_point,
        now_ms=NOW_MS,
    )
    if dirty is None:
        return None
    return log.compaction.cleaner(dirty, log.config, log.producers, dedupe_size_bytes=dedupe_size_bytes, now_ms=NOW_MS)


def drive(log: Log, job: LogCleaner) -> None:
    while not (step := job.step()).is_done:
        if step.ready is not None:
            assert log.compaction.announce(step.ready, job.end_offset)
            log.compaction.sync_names()
            assert log.compaction.complete(step.ready)
            log.segments.remove_deleted_files()
    log.compaction.finish(job.end_offset)


@pytest.mark.parametrize("position", [16, 20, 50, 70, 100])
def test_damage_is_not_written_anew_with_a_checksum_that_fits(position: int) -> None:
    disk = MemoryDisk()
    log = open_log(disk, **COMPACT)
    put_each(log, "abab")
    seal(log)
    before = {name: bytes(contents.data) for name, contents in disk.files.items()}
    first = log.segments.base_offsets[0]
    path = f"{DIRECTORY}/{first:020d}.log"
    disk.files[path].data[position] ^= 0xFF
    job = start(log)
    assert job is not None
    with pytest.raises(CorruptLogError, match="damaged at position"):
        drive(log, job)
    job.abandon()
    after = {name: bytes(contents.data) for name, contents in disk.files.items()}
    assert {**after, path: b""} == {**before, path: b""}


def test_segments_that_go_meanwhile_are_not_brought_back() -> None:
    disk = MemoryDisk()
    log = open_log(disk, **COMPACT)
    put_each(log, "ababababab")
    seal(log)
    for late in (False, True):
        job = start(log)
        assert job is not None
        while (ready := job.step().ready) is None:
            pass
        if late:
            assert log.compaction.announce(ready, job.end_offset)
        log.advance_log_start_offset(log.segments.base_offsets[1])
        assert log.delete_segments_before(log.log_start_offset) == 1
        if late:
            assert not log.compaction.complete(ready)
        else:
            assert not log.compaction.announce(ready, job.end_offset)
        job.abandon()
        log.segments.remove_deleted_files()
        assert not [name for name in disk.list(DIRECTORY) if name.endswith((".cleaned", ".swap", ".deleted"))]


def test_to_abandon_the_rest_leaves_alone_what_has_its_place() -> None:
    disk = MemoryDisk()
    log = open_log(disk, **COMPACT)
    put_each(log, "ababababab")
    seal(log)
    expected = key_values(log)
    job = start(log)
    assert job is not None
    while (ready := job.step().ready) is None:
        pass
    assert log.compaction.announce(ready, job.end_offset)
    assert log.compaction.complete(ready)
    job.abandon()
    assert key_values(log) == expected
    assert key_values(open_log(disk, clean=False, **COMPACT)) == expected


def test_to_abandon_leaves_no_result_that_nobody_took() -> None:
    """At a start, whatever compaction swaps behind it would count as unfinished, though the old files are gone."""
    disk = MemoryDisk()
    log = open_log(disk, **COMPACT)
    put_each(log, "abababab")
    seal(log)
    job = start(log)
    assert job is not None
    while job.step().ready is None:
        pass
    job.abandon()
    assert not [name for name in disk.list(DIRECTORY) if name.endswith(".cleaned")]


def test_truncation_withdraws_what_was_announced() -> None:
    disk = MemoryDisk()
    log = open_log(disk, **COMPACT)
    put_each(log, "abababab")
    seal(log)
    job = start(log)
    assert job is not None
    while (ready := job.step().ready) is None:
        pass
    assert log.compaction.announce(ready, job.end_offset)
    log.truncate_to(Offset(1))
    assert not [name for name in disk.list(DIRECTORY) if name.endswith(".swap")]
    assert not log.compaction.complete(ready)
    again = open_log(disk, clean=False, log_start_offset=0, **COMPACT)
    assert again.log_end_offset == 1


def test_a_log_that_was_truncated_and_filled_again_is_left_as_it_is() -> None:
    """After an unclean election: the segments are as long as they were, and hold what another leader wrote."""
    log = open_log(MemoryDisk(), **COMPACT)
    put_each(log, "abababab")
    seal(log)
    job = start(log)
    assert job is not None
    while (ready := job.step().ready) is None:
        pass
    last = ready.replaced[-1]
    size_bytes = last.size_bytes
    log.truncate_to(Offset(last.end_offset - 1))
    put(log, [(b"c", b"%d" % log.log_end_offset)], epoch=7)
    seal(log)
    assert log.segments.holds_side_by_side(ready.replaced)
    assert last.size_bytes == size_bytes
    assert not log.compaction.announce(ready, job.end_offset)


# Any log, any cuts.


class PowerCutError(BaseException):
    """The machine stops here. Nobody catches it."""


class CuttingDisk(MemoryDisk):
    """Stops at the `stop_at`-th change of anything."""

    def __init__(self) -> None:
        super().__init__()
        self.changes = 0
        self.stop_at: int | None = None

    def admit(self, path: str, operation: str) -> None:
        super().admit(path, operation)
        self.changes += 1
        if self.changes == self.stop_at:
            self.stop_at = None
            raise PowerCutError(path, operation)


keys = st.sampled_from([b"a", b"b", b"c", b"d"])
values = st.one_of(st.none(), st.sampled_from([b"", b"v", b"w" * 40]))
batches = st.lists(st.lists(st.tuples(keys, values), min_size=1, max_size=4), min_size=2, max_size=12)
compressions = st.sampled_from(["none", "lz4", "zstd"])


@given(
    history=st.lists(batches, min_size=1, max_size=3),
    compression=compressions,
    dedupe_size_bytes=st.sampled_from([100, 500, 1 << 20]),
    delete_retention_ms=st.sampled_from([0, 5]),
    producers=st.booleans(),
)
def test_the_latest_value_of_each_key_is_what_it_was(
    history: list[list[Rows]], compression: str, dedupe_size_bytes: int, delete_retention_ms: int, producers: bool
) -> None:
    disk = MemoryDisk()
    settings = {**COMPACT, "delete_retention_ms": delete_retention_ms}
    log = open_log(disk, **settings)
    now_ms = NOW_MS
    first_dirty_offset = 0
    sequence = 0
    for turn, appended in enumerate(history):
        for number, rows in enumerate(appended):
            identity = {}
            if producers and number % 2:
                identity = {"producer_id": 4, "producer_epoch": 0, "base_sequence": sequence}
                sequence += len(rows)
            put(log, rows, compression=compression, epoch=10 * turn + number // 3, **identity)
        log.flush()
        before, lineage = key_values(log), lineage_of(log)
        everything = {record.offset: record for record in records_of(log)}
        report = clean(log, first_dirty_offset=first_dirty_offset, now_ms=now_ms, dedupe_size_bytes=dedupe_size_bytes)
        now_ms += 3
        assert key_values(log) == before
        assert lineage_of(log) == lineage
        left = records_of(log)
        assert all(everything[record.offset] == record for record in left)
        if report is not None:
            first_dirty_offset = report
            untouched = [offset for offset in everything if offset >= report]
            assert [record.offset for record in left if record.offset >= report] == untouched
            below = [record.key for record in left if record.offset < report]
            assert len(set(below)) == len(below)
        for clean_stop in (False, True):
            again = open_log(disk, clean=False, **settings)
            assert not again.recovery.is_worth_a_warning, again.recovery.lines()
            assert records_of(again) == left
            if producers:
                known, knew = again.producers.get(4), log.producers.get(4)
                assert (known and known.batches[-1]) == (knew and knew.batches[-1])
            if clean_stop:
                again.close()
                log = open_log(disk, **settings)
                assert log.recovery.lines() == []


COUNTED = {**COMPACT, "delete_retention_ms": 0, "segment_size_bytes": 400}


def stopped_at(change: int) -> CuttingDisk | None:
    """A disk with a log whose compaction was stopped before its `change`-th change; None if that came to its end."""
    disk = CuttingDisk()
    log = open_log(disk, **COUNTED)
    for key, value in ((b"a", b"1"), (b"x", b"1"), (b"a", None), (b"b", b"1"), (b"b", b"2")):
        put(log, [(key, value), (b"z", b"%d" % log.log_end_offset)])
    seal(log)
    clean(log)
    for key, value in ((b"x", b"2"), (b"x", None), (b"b", b"3"), (b"c", b"1"), (b"z", b"9"), (b"d", b"1")):
        put(log, [(key, value)])
    seal(log)
    put(log, [(b"e", b"1")])
    log.flush()
    disk.changes = 0
    disk.stop_at = change
    try:
        clean(log)
    except PowerCutError:
        return disk
    return None


@pytest.mark.parametrize("seed", [None, 1, 2, 3, 4])
def test_a_stop_at_any_moment_of_a_compaction_loses_nothing(seed: int | None) -> None:
    expected = {b"b": b"3", b"c": b"1", b"z": b"9", b"d": b"1", b"e": b"1"}
    change = 1
    while (disk := stopped_at(change)) is not None:
        if seed is not None:
            disk.lose_power(Random(seed * 1000 + change))
        log = open_log(disk, clean=False, recovery_point=12, **COUNTED)
        assert log.recovery.truncation is None, log.recovery.lines()
        assert log.recovery.damages == []
        assert key_values(log) == expected
        assert not [name for name in disk.list(DIRECTORY) if name.endswith((".cleaned", ".swap"))]
        clean(log)
        assert key_values(log) == expected
        change += 1
    assert change > 40


def test_a_disk_that_refuses_leaves_the_log_as_it_was() -> None:
    disk = MemoryDisk()
    log = open_log(disk, **COMPACT)
    put_each(log, "abababab")
    seal(log)
    before = batches_of(log)
    disk.free_write_bytes = 50
    job = start(log)
    assert job is not None
    with pytest.raises(DiskError):
        drive(log, job)
    job.abandon()
    disk.free_write_bytes = None
    assert batches_of(log) == before
    assert clean(log)


def test_what_was_replaced_is_let_go_of_while_the_rest_is_compacted(tmp_path: Path) -> None:
    """Or a large log would need its space twice, and a file for each of its segments."""
    directory = str(tmp_path / "flights-0")
    log = open_log(RealDisk(), directory=directory, **(COMPACT | {"segment_size_bytes": 1000}))
    for _ in range(100):
        put(log, [(b"a", b"v" * 700)])
    before = len(os.listdir("/proc/self/fd"))
    seal(log)
    assert len(os.listdir("/proc/self/fd")) - before < 10
    job = start(log)
    assert job is not None
    most = 0
    while not (step := job.step()).is_done:
        if step.ready is not None:
            assert log.compaction.announce(step.ready, job.end_offset)
            assert log.compaction.complete(step.ready)
            log.segments.remove_deleted_files()
            del step
            most = max(most, len(os.listdir("/proc/self/fd")) - before)
    assert 0 < most < 80
    log.close()


@pytest.mark.parametrize(("end_offset", "left"), [(4, [1, 2]), (1, [])])
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_log_that_is_cut_in_a_gap_ends_there_after_a_restart(
    end_offset: int, left: list[int], is_clean: bool
) -> None:
    """Else it would give offsets out again that others have read."""
    disk = MemoryDisk()
    log = open_log(disk, **COMPACT | {"segment_size_bytes": 100_000})
    put_each(log, "abcddaefg")
    seal(log)
    assert clean(log)
    assert offsets_of(log) == [1, 2, 4, 5, 6, 7, 8]
    log.truncate_to(Offset(end_offset))
    assert (offsets_of(log), log.log_end_offset) == (left, end_offset)
    if is_clean:
        log.close()
    else:
        disk.lose_power(Random(1))
    log = open_log(disk, clean=is_clean, recovery_point=log.recovery_point, **COMPACT)
    assert (offsets_of(log), log.log_end_offset) == (left, end_offset)
    put_each(log, "h")
    assert offsets_of(log) == [*left, end_offset]
