"""Compaction of transactions: what was aborted goes and supersedes nothing, and no marker goes too early."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from support.examples import examples
from support.fixtures.cleaning import clean
from support.fixtures.logs import DIRECTORY, NOW_MS, append, batches_of, make_batch, open_log
from support.fixtures.memory_disk import MemoryDisk
from support.fixtures.transactions import abort, begun, commit, committed, entries_of, send
from tidelog.base.errors import CorruptLogError
from tidelog.base.ids import Offset
from tidelog.log import Log
from tidelog.log.files.aborted_segments import ABORTED_SEGMENTS_FILE
from tidelog.log.recovery import lost_segments
from tidelog.records import BatchHeader

COMPACT: dict[str, Any] = {
    "cleanup_policy": frozenset({"compact"}),
    "segment_size_bytes": 1 << 20,
    "min_cleanable_dirty_ratio": 0.0,
    "delete_retention_ms": 1000,
}


def opened(disk: MemoryDisk | None = None, **settings: Any) -> Log:
    return open_log(disk or MemoryDisk(), **{**COMPACT, **settings})


def seal(log: Log) -> None:
    log.roll(NOW_MS)
    log.flush()
    log.producers.on_high_watermark(log.log_end_offset)


def again(log: Log, now_ms: int = NOW_MS) -> None:
    """Compact once more: something has to be dirty."""
    append(log, "-", key=b"dirt")
    seal(log)
    assert clean(log, now_ms=now_ms)


def forget(log: Log, *producers: int) -> None:
    """They have been silent for long enough."""
    for producer in producers:
        del log.producers._states[producer]  # type: ignore[arg-type]


def left(log: Log) -> list[tuple[int, str]]:
    """What each batch that is left is, by its offset; those of `again` left out."""

    def kind(header: BatchHeader, data: bytes) -> str:
        if header.is_control:
            return "marker" + ("!" if header.delete_horizon_ms is not None else "")
        return "records" if header.record_count else "empty"

    return [(header.base_offset, kind(header, data)) for header, data in batches_of(log) if b"dirt" not in data]


def values(log: Log) -> dict[bytes, str]:
    return {record.key or b"": (record.value or b"").decode() for record in committed(log) if record.key != b"dirt"}


def test_what_was_aborted_supersedes_nothing_and_goes() -> None:
    log = opened()
    send(log, 1, "committed", key=b"a")  # 0
    commit(log, 1)  # 1
    send(log, 2, "aborted", key=b"a")  # 2
    send(log, 2, "aborted", key=b"b")  # 3
    abort(log, 2)  # 4
    append(log, "last", key=b"c")  # 5
    seal(log)
    forget(log, 1, 2)
    assert values(log) == {b"a": "committed", b"c": "last"}
    assert clean(log) == 6
    assert left(log) == [(0, "records"), (1, "marker"), (4, "marker"), (5, "records")]
    assert values(log) == {b"a": "committed", b"c": "last"}
    assert log.log_end_offset == 6


def test_what_was_committed_supersedes_what_came_before() -> None:
    log = opened()
    append(log, "old", key=b"a")  # 0
    send(log, 1, "new", key=b"a")  # 1
    append(log, "between", key=b"a")  # 2
    send(log, 1, "newest", key=b"a")  # 3
    commit(log, 1)  # 4
    seal(log)
    clean(log)
    assert left(log) == [(3, "records"), (4, "marker")]
    assert values(log) == {b"a": "newest"}


@pytest.mark.parametrize("decide", [commit, abort])
def test_a_marker_goes_when_its_time_has_come_after_its_records(decide: Any) -> None:
    log = opened()
    send(log, 1, "x", key=b"a")  # 0
    decide(log, 1)  # 1
    append(log, "y", key=b"a")  # 2
    seal(log)
    forget(log, 1)
    clean(log, now_ms=NOW_MS)
    assert left(log) == [(1, "marker"), (2, "records")]  # its records were there when this began
    again(log, NOW_MS + 10)
    assert left(log) == [(1, "marker!"), (2, "records")]
    header = batches_of(log)[0][0]
    assert (header.delete_horizon_ms, header.max_timestamp) == (NOW_MS + 10 + 1000, NOW_MS)
    again(log, NOW_MS + 1009)
    assert left(log) == [(1, "marker!"), (2, "records")]
    again(log, NOW_MS + 1010)
    assert left(log) == [(2, "records")]


def test_the_index_holds_an_entry_for_as_long_as_there_were_batches() -> None:
    disk = MemoryDisk()
    log = opened(disk)
    append(log, "y", key=b"b")  # 0
    send(log, 1, "x", key=b"a")  # 1
    abort(log, 1)  # 2
    seal(log)
    assert entries_of(log) == [(1, 1, 2, 3)]
    clean(log)
    assert left(log) == [(0, "records"), (1, "empty"), (2, "marker")]  # the producer's last sequence
    assert entries_of(log) == [(1, 1, 2, 3)]
    again(log)
    assert left(log) == [(0, "records"), (1, "empty"), (2, "marker")]
    assert entries_of(log) == [(1, 1, 2, 3)]
    forget(log, 1)
    again(log)
    again(log)
    assert left(log) == [(0, "records"), (2, "marker!")]
    assert entries_of(log) == []
    assert not [name for name in disk.list(DIRECTORY) if "txnindex" in name]


def test_the_last_batch_of_a_producer_stays_and_its_marker_with_it() -> None:
    log = opened()
    for _ in range(3):
        send(log, 1, "x", key=b"a")  # 0, 1, 2
    abort(log, 1)  # 3
    append(log, "y", key=b"a")  # 4
    seal(log)
    for _ in range(4):
        again(log, NOW_MS + 10_000)
        assert left(log) == [(2, "empty"), (3, "marker"), (4, "records")]
    follower = opened()
    for _, data in batches_of(log):
        follower.append_as_follower(data, now_ms=NOW_MS)
    assert follower.producers.open_transactions == []
    assert entries_of(follower) == [(1, 2, 3, 4)]
    assert send(follower, 1) == follower.log_end_offset - 1
    state = follower.producers.get(1)
    assert state is not None
    assert state.batches[-1].base_sequence == 3


def test_the_marker_that_fences_a_producer_stays() -> None:
    """In transaction version 2 the producer's newest epoch is that of its last marker, and of no batch."""
    log = opened()
    send(log, 1, "x", key=b"a", epoch=0)  # 0
    commit(log, 1, epoch=1)  # 1
    send(log, 1, "x", key=b"a", epoch=1)  # 2
    commit(log, 1, epoch=2)  # 3
    append(log, "y", key=b"a")  # 4
    seal(log)
    for _ in range(4):
        again(log, NOW_MS + 10_000)
    assert left(log) == [(1, "marker!"), (3, "marker"), (4, "records")]
    again(log, NOW_MS + 12_000)
    assert left(log) == [(3, "marker"), (4, "records")]
    forget(log, 1)
    again(log, NOW_MS + 12_000)
    again(log, NOW_MS + 14_000)
    assert left(log) == [(4, "records")]


def test_the_end_of_the_range_stays_even_if_it_is_a_marker() -> None:
    log = opened()
    append(log, "y", key=b"a")
    abort(log, 1)
    seal(log)
    forget(log, 1)
    clean(log)
    assert left(log) == [(0, "records"), (1, "marker")]


def test_a_transaction_across_segments_is_one() -> None:
    log = opened(segment_size_bytes=len(make_batch("x")) * 2)
    send(log, 1, "x", key=b"a")
    for index in range(10):
        send(log, 2, "y", key=b"b%d" % index)
        send(log, 1, "z", key=b"c%d" % index)
    end = abort(log, 1)
    commit(log, 2)
    append(log, "y", key=b"a")
    seal(log)
    before = values(log)
    middle = log.segments.base_offsets[5]
    clean(log, end_offset_max=middle)  # the marker lies beyond
    assert values(log) == before
    assert all(header.record_count == 0 or header.producer_id == 2 for header, _ in batches_of(log)[:4])
    clean(log)
    assert values(log) == before == {b"a": "y", **{b"b%d" % index: "y" for index in range(10)}}
    assert [entry[2] for entry in entries_of(log)] == [end]


def test_nothing_is_compacted_beyond_what_is_stable() -> None:
    log = opened()
    append(log, "1", key=b"a")
    append(log, "2", key=b"a")
    send(log, 1, "3", key=b"a")
    seal(log)
    compaction = log.compaction
    dirty = compaction.dirty_range(
        log.config, first_dirty_offset=Offset(0), end_offset_max=log.log_end_offset, now_ms=NOW_MS
    )
    assert dirty is not None
    job = compaction.cleaner(dirty, log.config, log.producers, dedupe_size_bytes=1 << 20, now_ms=NOW_MS)
    steps = [job.step() for _ in range(20)]
    assert steps[-1].is_done
    assert job.end_offset <= 2
    job.abandon()


def test_what_the_index_does_not_know_of_is_not_compacted() -> None:
    disk = MemoryDisk()
    log = opened(disk)
    append(log, "1", key=b"a")
    send(log, 1, "2", key=b"a")
    abort(log, 1)
    seal(log)
    log.close()
    for name in (f"{0:020d}.txnindex", ABORTED_SEGMENTS_FILE):  # with the list alone it would be derived anew
        disk.remove(f"{DIRECTORY}/{name}")
    log = opened(disk)
    with pytest.raises(CorruptLogError, match="in no transaction index"):
        clean(log)
    assert [kind for _, kind in left(log)] == ["records", "records", "marker"]


def test_a_marker_that_another_cleaner_emptied_goes() -> None:
    log = opened()
    emptied = make_batch(producer_id=1, producer_epoch=0, transactional=True, control=True)
    emptied = bytearray(emptied)
    log.append_as_follower(emptied, now_ms=NOW_MS)
    append(log, "y", key=b"a")
    seal(log)
    clean(log)
    forget_all = [state.producer_id for state in log.producers]
    forget(log, *forget_all)
    again(log)
    assert left(log) == [(1, "records")]


def test_a_swap_that_was_broken_off_is_completed_with_what_was_aborted() -> None:
    """The new index goes with the swap; what stands behind the compacted part is known from the batches."""
    disk = MemoryDisk()
    log = begun(disk)
    known = entries_of(log)
    log.close()
    base = f"{DIRECTORY}/{0:020d}"
    disk.rename(f"{base}.log", f"{base}.log.swap")
    for suffix in (".index", ".timeindex", ".txnindex"):
        disk.rename(base + suffix, f"{base}{suffix}.cleaned")
    assert lost_segments(disk.list(DIRECTORY)) == []
    log = open_log(disk)
    assert (entries_of(log), log.recovery.damages) == (known, [])
    log.close()
    disk.rename(f"{base}.log", f"{base}.log.swap")  # its indexes have their names already
    assert lost_segments(disk.list(DIRECTORY)) == []
    assert entries_of(open_log(disk)) == known


class PowerCutError(BaseException):
    """Nobody catches it but the test."""


class CutDisk(MemoryDisk):
    """Stops at the `stop_at`-th change."""

    def __init__(self) -> None:
        super().__init__()
        self.stop_at: int | None = None
        self.changes = 0

    def admit(self, path: str, operation: str) -> None:
        super().admit(path, operation)
        self.changes += 1
        if self.changes == self.stop_at:
            raise PowerCutError(path, operation)


class Model:
    """A compacted log with transactions, and the table that its readers should come to."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = CutDisk()
        self.settings = {"segment_size_bytes": self.random.choice([300, 700, 5000]), "delete_retention_ms": 3}
        self.log = opened(self.disk, **self.settings)
        self.pending: dict[int, list[tuple[bytes, str, int]]] = {}
        self.table: dict[bytes, tuple[int, str]] = {}
        self.now_ms = NOW_MS

    def put(self, rows: list[tuple[bytes, str, int]]) -> None:
        for key, value, offset in rows:
            self.table[key] = max(self.table.get(key, (-1, "")), (offset, value))

    def step(self) -> None:
        random = self.random
        producer, key = random.randrange(1, 5), random.choice([b"a", b"b", b"c", b"d"])
        value = f"{self.log.log_end_offset}"
        choice = random.randrange(10)
        if choice < 5:
            offset = send(self.log, producer, value, key=key)
            self.pending.setdefault(producer, []).append((key, value, offset))
        elif choice < 6:
            self.put([(key, value, append(self.log, value, key=key).first_offset)])
        elif choice < 8:
            state = self.log.producers.get(producer)
            epoch = (0 if state is None else state.producer_epoch) + random.randrange(2)
            rows = self.pending.pop(producer, [])
            if random.randrange(2):
                commit(self.log, producer, epoch=epoch)
                self.put(rows)
            else:
                abort(self.log, producer, epoch=epoch)
        elif choice < 9:
            seal(self.log)

    def check(self) -> None:
        """Of each key the last record that was committed is there, by its offset, and what is behind it is newer."""
        found: dict[bytes, tuple[int, str]] = {}
        undecided = {(key, offset) for rows in self.pending.values() for key, _, offset in rows}
        for record in committed(self.log):
            if (record.key, record.offset) not in undecided:
                assert record.key is not None
                found[record.key] = (record.offset, (record.value or b"").decode())
        assert found == self.table
        open_now = sorted(each.producer_id for each in self.log.producers.open_transactions)
        assert open_now == sorted(self.pending)

    def clean(self) -> None:
        self.now_ms += 2
        self.log.producers.on_high_watermark(self.log.log_end_offset)
        clean(self.log, now_ms=self.now_ms, first_dirty_offset=None)

    def follow(self) -> None:
        """A follower that copies what is left knows as much."""
        follower = opened(segment_size_bytes=400)
        for _, data in batches_of(self.log):
            follower.append_as_follower(data, now_ms=NOW_MS)
        open_here = sorted((e.producer_id, e.producer_epoch) for e in self.log.producers.open_transactions)
        assert sorted((e.producer_id, e.producer_epoch) for e in follower.producers.open_transactions) == open_here
        log, self.log = self.log, follower
        self.check()
        self.log = log


@pytest.mark.parametrize("seed", range(examples(60)))
def test_a_reader_comes_to_the_same_table_whatever_compaction_and_crashes_do(seed: int) -> None:
    model = Model(seed)
    for _ in range(6):
        for _ in range(model.random.randrange(25)):
            model.step()
        seal(model.log)  # the disk may lose anything but what was there before compaction
        point = model.log.recovery_point
        if model.random.randrange(2):
            model.disk.changes, model.disk.stop_at = 0, model.random.randrange(1, 40)
        try:
            model.clean()
        except PowerCutError:
            model.disk.stop_at = None
            if model.random.randrange(2):
                model.disk.lose_power(model.random)
            model.disk.crash()
            model.log = open_log(model.disk, clean=False, recovery_point=point, **{**COMPACT, **model.settings})
            assert not model.log.recovery.damages
        model.disk.stop_at = None
        model.check()
        model.follow()
    model.log.close()
    model.log = opened(model.disk, **model.settings)
    assert model.log.recovery.lines() == []
    model.check()
