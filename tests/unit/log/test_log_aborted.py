"""The transaction index: what was aborted is known to readers, and stays known, whatever happens to the files."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from struct import Struct

import pytest

from support.examples import examples
from support.fixtures.logs import DIRECTORY, NOW_MS, append, batches_of, make_batch, open_log
from support.fixtures.memory_disk import MemoryDisk
from support.fixtures.transactions import abort, begun, commit, entries_of, send, txn_batch
from tidelog.base.errors import CorruptLogError, DiskError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.log import Log, NotCachedError, without_waiting
from tidelog.log.files.aborted_segments import ABORTED_SEGMENTS_FILE
from tidelog.records import split_batches

ENTRY = Struct(">hqqqq")
SIZE = len(make_batch("a"))


def index_path(base_offset: int = 0) -> str:
    return f"{DIRECTORY}/{base_offset:020d}.txnindex"


def aborted(log: Log, start: int = 0, end: int | None = None) -> list[tuple[int, int]]:
    end_offset = log.log_end_offset if end is None else Offset(end)
    return [(each.producer_id, each.first_offset) for each in log.aborted_transactions(Offset(start), end_offset)]


# What is written.


def test_an_abort_marker_writes_an_entry_at_once_in_kafkas_format() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, "x")
    send(log, 7)
    send(log, 8)
    commit(log, 8)
    assert not disk.exists(index_path())
    marker = abort(log, 7)
    assert bytes(disk.files[index_path()].data) == ENTRY.pack(0, 7, 1, marker, marker + 1)


def test_the_last_stable_offset_of_an_entry_is_where_the_oldest_other_transaction_begins() -> None:
    log = open_log(MemoryDisk())
    send(log, 1)  # 0
    send(log, 2)  # 1
    send(log, 3)  # 2
    abort(log, 2)  # 3
    abort(log, 1)  # 4
    send(log, 1)  # 5
    abort(log, 3)  # 6
    abort(log, 1)  # 7
    assert entries_of(log) == [(2, 1, 3, 0), (1, 0, 4, 2), (3, 2, 6, 5), (1, 5, 7, 8)]


def test_a_marker_without_records_aborts_nothing() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, "x")
    abort(log, 7)
    assert (disk.exists(index_path()), aborted(log)) == (False, [])


def test_a_follower_writes_the_same_entries() -> None:
    leader_disk, disk = MemoryDisk(), MemoryDisk()
    leader = begun(leader_disk, segment_size_bytes=4 * SIZE)
    follower = open_log(disk, segment_size_bytes=4 * SIZE)
    for _, data in batches_of(leader):
        follower.append_as_follower(data, now_ms=NOW_MS)
    assert follower.segments.base_offsets == leader.segments.base_offsets
    assert entries_of(follower) == entries_of(leader)
    assert entries_of(leader)


def test_an_entry_that_could_not_be_written_is_known_and_written_before_the_next_batch() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    send(log, 7)
    disk.refusals.add(".txnindex")
    marker = abort(log, 7)
    assert (log.log_end_offset, aborted(log)) == (marker + 1, [(7, 0)])
    with pytest.raises(DiskError):
        append(log, "x")
    assert log.log_end_offset == marker + 1
    log.flush()
    assert log.recovery_point == marker  # what is above it is read again after a crash
    disk.refusals.clear()
    append(log, "x")
    log.flush()
    assert log.recovery_point == log.log_end_offset
    assert bytes(disk.files[index_path()].data) == ENTRY.pack(0, 7, 0, marker, marker + 1)


# What is found.


def test_those_that_reach_into_the_range_are_found_across_segments() -> None:
    log = begun(MemoryDisk(), segment_size_bytes=4 * SIZE)
    assert len(log.segments.base_offsets) > 4
    known = entries_of(log)
    for start in range(log.log_end_offset):
        for end in range(start + 1, log.log_end_offset + 1):
            wanted = [(pid, first) for pid, first, last, _ in known if last >= start and first < end]
            assert aborted(log, start, end) == wanted, (start, end)


def test_the_search_ends_where_the_rest_is_stable() -> None:
    disk = MemoryDisk()
    log = open_log(disk, segment_size_bytes=4 * SIZE)
    for _ in range(100):
        send(log, 7)
        abort(log, 7)
    reads = disk.read_count
    assert aborted(log, 0, 3) == [(7, 0), (7, 2)]
    assert disk.read_count - reads <= 3


def test_nothing_is_read_or_opened_where_nothing_was_aborted() -> None:
    disk = MemoryDisk()
    log = open_log(disk, segment_size_bytes=3 * SIZE)
    for _ in range(20):
        send(log, 7)
    commit(log, 7)
    log.close()
    log = open_log(disk, segment_size_bytes=3 * SIZE)
    disk.is_unplugged = True
    assert aborted(log) == []


def test_what_is_not_in_memory_is_fetched_by_another_thread() -> None:
    disk = MemoryDisk()
    log = begun(disk, segment_size_bytes=4 * SIZE)
    wanted = aborted(log)
    log.close()
    log = open_log(disk, segment_size_bytes=4 * SIZE)
    disk.is_cold = lambda: True
    with pytest.raises(NotCachedError) as missing:
        without_waiting(lambda: aborted(log))
    missing.value.fetch()
    assert aborted(log) == wanted
    disk.is_cold = lambda: False
    assert without_waiting(lambda: aborted(log)) == wanted


def test_a_long_index_is_searched_by_its_markers() -> None:
    log = open_log(MemoryDisk())
    for _ in range(500):
        send(log, 7)
        abort(log, 7)
    for start in (0, 1, 2, 499, 500, 997, 998, 999):
        assert aborted(log, start) == [(7, first) for first in range(0, 1000, 2) if first + 1 >= start]
        assert aborted(log, start, start + 1) == [(7, start - start % 2)]


# What becomes of the file.


@pytest.mark.parametrize("segment_size_bytes", [4 * SIZE, 1 << 20])
@pytest.mark.parametrize("how", ["clean", "killed", "killed, and the files are gone"])
def test_a_restart_knows_the_same(how: str, segment_size_bytes: int) -> None:
    disk = MemoryDisk()
    log = begun(disk, segment_size_bytes=segment_size_bytes)
    known = entries_of(log)
    if how == "clean":
        log.close()
    if "gone" in how:
        for path in [path for path in disk.files if path.endswith(".txnindex")]:
            disk.remove(path)
    again = open_log(disk, clean=how == "clean", segment_size_bytes=segment_size_bytes)
    assert entries_of(again) == known
    assert again.recovery.lines() == []
    third = open_log(disk, clean=False, segment_size_bytes=segment_size_bytes)
    assert entries_of(third) == known


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "torn": lambda data: data[:-5],
    "of another version": lambda data: b"\x00\x01" + data[2:],
    "zeros": lambda data: bytes(len(data)),
    "an entry twice": lambda data: data + data[-34:],
    "of another segment": lambda data: ENTRY.pack(0, 7, 0, 1 << 40, 1 << 40),
    "a first offset behind the last": lambda data: data[:10] + ENTRY.pack(0, 0, 1 << 30, 0, 0)[10:18] + data[18:],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_not_trusted_and_made_anew(damage: str) -> None:
    disk = MemoryDisk()
    log = begun(disk, segment_size_bytes=4 * SIZE)
    known = entries_of(log)
    log.close()
    paths = [path for path in sorted(disk.files) if path.endswith(".txnindex")]
    assert len(paths) >= 3
    before = {path: bytes(disk.files[path].data) for path in paths}
    for path in paths[:2]:
        disk.files[path].data[:] = DAMAGES[damage](bytes(disk.files[path].data))
    again = open_log(disk, segment_size_bytes=4 * SIZE)
    assert entries_of(again) == known
    assert len(again.recovery.rebuilt_indexes) == 2
    assert {path: bytes(disk.files[path].data) for path in paths} == before


@pytest.mark.parametrize("was_clean", [True, False])
@pytest.mark.parametrize("number", range(3))
def test_a_file_that_is_gone_is_missed_and_made_anew(number: int, was_clean: bool) -> None:
    disk = MemoryDisk()
    log = begun(disk, segment_size_bytes=4 * SIZE)
    known, point = entries_of(log), log.log_end_offset
    log.close()
    path = [path for path in sorted(disk.files) if path.endswith(".txnindex")][number]
    before = bytes(disk.files[path].data)
    disk.remove(path)
    again = open_log(disk, segment_size_bytes=4 * SIZE, clean=was_clean, recovery_point=point)
    assert entries_of(again) == known
    assert bytes(disk.files[path].data) == before
    assert any("missing" in each for each in again.recovery.rebuilt_indexes)


@pytest.mark.parametrize("data", [None, b"", b"0\n", b"0\n2\n0\n", b"1\n1\n0\n", b"0\n1\nx\n", b"\xff\n\n"])
def test_a_list_of_segments_that_is_gone_or_damaged_is_made_anew(data: bytes | None) -> None:
    disk = MemoryDisk()
    log = begun(disk, segment_size_bytes=4 * SIZE)
    known = entries_of(log)
    log.close()
    listed = f"{DIRECTORY}/{ABORTED_SEGMENTS_FILE}"
    before = bytes(disk.files[listed].data)
    disk.remove(listed)
    if data is not None:
        disk.write_atomically(listed, data)
    again = open_log(disk, segment_size_bytes=4 * SIZE)
    assert (entries_of(again), again.recovery.rebuilt_indexes) == (known, [])
    again.flush()
    assert bytes(disk.files[listed].data) == before


def test_a_list_without_room_is_written_later(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    log = begun(disk, segment_size_bytes=4 * SIZE)
    listed = f"{DIRECTORY}/{ABORTED_SEGMENTS_FILE}"

    def refuse(self: MemoryDisk, path: str, data: bytes) -> None:
        raise DiskError(path, "no room")

    with monkeypatch.context() as patched:
        patched.setattr(MemoryDisk, "write_atomically", refuse)
        log.flush()
    assert (disk.exists(listed), log.recovery_point) == (False, log.log_end_offset)
    log.flush()
    assert disk.exists(listed)


def test_a_file_that_is_gone_and_cannot_be_derived_is_refused_to_readers() -> None:
    disk = MemoryDisk()
    log = begun(disk, segment_size_bytes=4 * SIZE)
    log.close()
    first, *_ = [path for path in sorted(disk.files) if path.endswith(".txnindex")]
    disk.remove(first)
    disk.files[first.removesuffix(".txnindex") + ".log"].data[8:12] = b"\xff" * 4
    for path in [path for path in disk.files if path.endswith(".snapshot")][:-1]:
        disk.remove(path)
    again = open_log(disk, segment_size_bytes=4 * SIZE)
    with pytest.raises(CorruptLogError, match="missing"):
        aborted(again)


def test_what_cannot_be_derived_is_refused_to_readers() -> None:
    disk = MemoryDisk()
    log = begun(disk, segment_size_bytes=4 * SIZE)
    log.close()
    first, *_ = [path for path in sorted(disk.files) if path.endswith(".txnindex")]
    disk.files[first].data[:] = b"\x00\x09" * 17
    segment = first.removesuffix(".txnindex") + ".log"
    disk.files[segment].data[8:12] = b"\xff" * 4
    for path in [path for path in disk.files if path.endswith(".snapshot")][:-1]:
        disk.remove(path)
    again = open_log(disk, segment_size_bytes=4 * SIZE)
    assert again.recovery.damages
    with pytest.raises(CorruptLogError):
        aborted(again)
    assert bytes(disk.files[first].data) == b"\x00\x09" * 17


def test_an_index_without_its_segment_goes() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, "x")
    log.close()
    disk.open(index_path(77), create=True).append(ENTRY.pack(0, 7, 78, 79, 80))
    again = open_log(disk)
    assert again.recovery.leftovers == ["00000000000000000077.txnindex"]
    assert not disk.exists(index_path(77))


@pytest.mark.parametrize("reopened", [False, True])
def test_truncation_takes_back_what_was_decided_behind_it(reopened: bool) -> None:
    for end_offset in range(begun(MemoryDisk()).log_end_offset + 1):
        disk = MemoryDisk()
        log = begun(disk, segment_size_bytes=4 * SIZE)
        known = entries_of(log)
        if reopened:
            log.close()
            log = open_log(disk, segment_size_bytes=4 * SIZE)
        log.truncate_to(Offset(end_offset))
        left = [entry for entry in known if entry[2] < end_offset]
        assert entries_of(log) == left
        for producer in [each.producer_id for each in log.producers if each.transaction_first_offset is not None]:
            abort(log, producer)
        entries = entries_of(log)
        assert entries[: len(left)] == left
        again = open_log(disk, clean=False, segment_size_bytes=4 * SIZE)
        assert entries_of(again) == entries


def test_deleting_from_the_start_deletes_the_index_too() -> None:
    disk = MemoryDisk()
    log = begun(disk, segment_size_bytes=4 * SIZE)
    known = entries_of(log)
    base = log.segments.base_offsets[3]
    log.advance_log_start_offset(base)
    log.delete_segments_before(base)
    names = [name for name in disk.list(DIRECTORY) if "txnindex" in name]
    assert [name for name in names if int(name[:20]) < base] == [n for n in names if n.endswith(".deleted")]
    assert any(name.endswith(".deleted") for name in names)
    log.segments.remove_deleted_files()
    assert all(int(name[:20]) >= base for name in disk.list(DIRECTORY) if "txnindex" in name)
    assert entries_of(log) == [entry for entry in known if entry[2] >= base]


def test_starting_anew_forgets_all() -> None:
    disk = MemoryDisk()
    log = begun(disk, segment_size_bytes=4 * SIZE)
    log.truncate_fully_and_start_at(Offset(1000))
    assert entries_of(log) == []
    assert not [name for name in disk.list(DIRECTORY) if "txnindex" in name]


def test_a_closed_segments_index_is_synced_where_the_recovery_point_moves() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    send(log, 7)
    abort(log, 7)
    log.roll(NOW_MS)
    log.flush()
    assert disk.files[index_path()].synced == bytes(disk.files[index_path()].data)
    disk.lose_power(Random(1))
    assert entries_of(open_log(disk, clean=False, recovery_point=log.recovery_point)) == [(7, 0, 1, 2)]


@pytest.mark.parametrize("seed", range(examples(40)))
def test_power_may_fail_at_any_time(seed: int) -> None:
    """Whatever is left of the log, the index says of it what a reader of its batches finds."""
    rng = Random(seed)
    disk = MemoryDisk()
    log = open_log(disk, segment_size_bytes=5 * SIZE)
    for _ in range(rng.randrange(60)):
        producer = rng.randrange(1, 4)
        state = log.producers.get(producer)
        is_open = state is not None and state.transaction_first_offset is not None
        rng.choice([send, abort if is_open else send, commit if is_open else send])(log, producer)
        if not rng.randrange(9):
            log.flush()
    point = log.recovery_point
    disk.lose_power(rng)
    again = open_log(disk, clean=False, recovery_point=point, segment_size_bytes=5 * SIZE)
    assert not again.recovery.damages
    plain = open_log(MemoryDisk(), segment_size_bytes=5 * SIZE)
    for _, data in batches_of(again):
        plain.append_as_follower(data, now_ms=NOW_MS)
    assert entries_of(again) == entries_of(plain)


def test_several_markers_come_with_one_fetch() -> None:
    leader = begun(MemoryDisk())
    data = leader.read(Offset(0), size_bytes_max=1 << 20, end_offset=leader.log_end_offset).read_all()
    follower = open_log(MemoryDisk(), segment_size_bytes=4 * SIZE)
    follower.append_as_follower(data, now_ms=NOW_MS)
    assert entries_of(follower) == entries_of(leader)
    assert len(split_batches(data)) == leader.log_end_offset


def test_a_transactional_batch_is_what_it_says() -> None:
    batch = txn_batch(7, "a")
    log = open_log(MemoryDisk())
    log.append_as_leader(batch, leader_epoch=LeaderEpoch(0), now_ms=NOW_MS)
    assert log.producers.first_unstable_offset == 0
