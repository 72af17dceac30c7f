"""A damaged segment is written anew with what another replica has, or stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from support.fixtures.logs import NOW_MS, append, batches_of, open_log
from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import CorruptLogError
from tidelog.base.ids import Offset
from tidelog.log import Log
from tidelog.log.damage import Damage
from tidelog.log.scrub import SegmentScrub
from tidelog.log.segment_rebuild import SegmentRebuild
from tidelog.records import stamp

BATCHES, RECORDS = 60, 10
Fetch = Callable[[Offset], bytes]


def make_log(disk: MemoryDisk) -> Log:
    log = open_log(disk, index_interval_bytes=300)
    for index in range(BATCHES):
        append(log, *(f"{index}-{each}" for each in range(RECORDS)), epoch=index // 20)
    log.roll(NOW_MS)
    append(log, "active", epoch=3)
    log.flush()
    return log


def look_through(disk: MemoryDisk, log: Log) -> tuple[Damage, ...]:
    scrub = SegmentScrub(
        disk, log.segments.first, log.lineage.clone(), cleaned_end_offset=log.compaction.mark.end_offset
    )
    while scrub.step() is not None:
        pass
    log.segments.first.damages = scrub.damages
    return scrub.damages


def new_rebuild(disk: MemoryDisk, log: Log) -> SegmentRebuild:
    segment = log.segments.first
    return SegmentRebuild(
        disk,
        log.directory,
        segment,
        segment.damages,
        log.lineage.clone(),
        mark=log.compaction.mark,
        config=log.config,
        aborted=segment.indexes.transactions.file_now(),
        log_start_offset=log.log_start_offset,
        now_ms=NOW_MS,
    )


def run(rebuild: SegmentRebuild, log: Log, damages: tuple[Damage, ...], fetch: Fetch) -> bool:
    for _ in damages:
        while rebuild.copy():
            pass
        while not rebuild.is_filled:
            rebuild.fill(fetch(rebuild.next_offset))
    while rebuild.copy():
        pass
    group = rebuild.finish()
    assert log.compaction.announce(group, rebuild.end_offset_mark)
    log.compaction.sync_names()
    return log.compaction.complete(group)


def fetch_from(other: Log, size_bytes_max: int = 200) -> Fetch:
    def fetch(offset: Offset) -> bytes:
        return other.read(offset, size_bytes_max=size_bytes_max, end_offset=other.log_end_offset).read_all()

    return fetch


@pytest.mark.parametrize("seed", range(40))
def test_what_rotted_comes_from_the_other_replica_and_the_log_is_as_it_was(seed: int) -> None:
    random = Random(seed)
    disk, other = MemoryDisk(), make_log(MemoryDisk())
    log = make_log(disk)
    before = batches_of(log)
    for _ in range(random.choice([1, 2, 5])):
        disk.rot(log.segments.first.path, random)
    damages = look_through(disk, log)
    assert run(new_rebuild(disk, log), log, damages, fetch_from(other, random.choice([1, 300, 1 << 20])))
    log.segments.remove_deleted_files()
    assert look_through(disk, log) == ()
    assert batches_of(log) == before
    assert sorted(name for name in disk.files if "cleaned" in name or "swap" in name) == []
    log.close()
    assert batches_of(open_log(disk)) == before


def damaged(disk: MemoryDisk) -> tuple[Log, tuple[Damage, ...]]:
    log = make_log(disk)
    position = log.segments.first.position_of(300)
    disk.files[log.segments.first.path].data[position + 70] ^= 1
    return log, look_through(disk, log)


def wrong(change: Callable[[bytearray], None]) -> Fetch:
    good = fetch_from(make_log(MemoryDisk()))

    def fetch(offset: Offset) -> bytes:
        data = bytearray(good(offset))
        change(data)
        return bytes(data)

    return fetch


WRONG: dict[str, Fetch] = {
    "it rotted there too": wrong(lambda data: data.__setitem__(80, data[80] ^ 2)),
    "another leader epoch": wrong(lambda data: stamp(memoryview(data), 0, base_offset=300, leader_epoch=2)),
    "another offset": wrong(lambda data: stamp(memoryview(data), 0, base_offset=302, leader_epoch=1)),
    "nothing": lambda offset: b"",
    "half a batch": wrong(lambda data: data.__delitem__(slice(100, None))),
    "what comes later": lambda offset: fetch_from(make_log(MemoryDisk()))(Offset(offset + 10)),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_does_not_fit_is_not_taken_and_the_segment_stays_as_it_is(what: str) -> None:
    disk = MemoryDisk()
    log, damages = damaged(disk)
    before = dict.fromkeys(disk.files)
    data = bytes(disk.files[log.segments.first.path].data)
    rebuild = new_rebuild(disk, log)
    with pytest.raises(CorruptLogError):
        run(rebuild, log, damages, WRONG[what])
    rebuild.abandon()
    assert dict.fromkeys(disk.files) == before
    assert bytes(disk.files[log.segments.first.path].data) == data
    assert log.segments.first.damages == damages


def test_a_log_that_was_truncated_meanwhile_is_left_alone() -> None:
    disk, other = MemoryDisk(), make_log(MemoryDisk())
    log, damages = damaged(disk)
    rebuild = new_rebuild(disk, log)
    fetch = fetch_from(other)
    for _ in damages:
        while rebuild.copy():
            pass
        while not rebuild.is_filled:
            rebuild.fill(fetch(rebuild.next_offset))
    while rebuild.copy():
        pass
    group = rebuild.finish()
    log.truncate_to(Offset(200))
    assert not log.compaction.announce(group, rebuild.end_offset_mark)
    assert log.segments.first.damages == ()
    rebuild.abandon()


def test_on_a_compacted_topic_the_other_may_have_removed_more() -> None:
    disk, other_disk = MemoryDisk(), MemoryDisk()
    logs = []
    for one in (disk, other_disk):
        log = open_log(one, index_interval_bytes=300, cleanup_policy=frozenset(("compact",)))
        for index in range(BATCHES):
            append(log, *(f"{index}-{each}" for each in range(RECORDS)))
        log.roll(NOW_MS)
        append(log, "active")
        log.flush()
        logs.append(log)
    log, other = logs
    position = log.segments.first.position_of(300)
    disk.files[log.segments.first.path].data[position + 70] ^= 1
    damages = look_through(disk, log)
    good = fetch_from(other, 1 << 20)
    batches = batches_of(other)
    rest = b"".join(data for header, data in batches if header.base_offset >= 320)
    assert good(Offset(320))[:200] == rest[:200]
    assert run(new_rebuild(disk, log), log, damages, lambda offset: rest)
    assert log.compaction.mark.end_offset == 310
    assert [header.base_offset for header, _ in batches_of(log)][29:32] == [290, 310, 320]
    log.close()
    assert [header.base_offset for header, _ in batches_of(open_log(disk))][29:32] == [290, 310, 320]


def test_a_log_that_was_truncated_and_filled_again_meanwhile_is_left_alone() -> None:
    """After an unclean election: the segment is as long as it was, and holds what another leader wrote."""
    disk, other = MemoryDisk(), make_log(MemoryDisk())
    log, damages = damaged(disk)
    rebuild = new_rebuild(disk, log)
    fetch = fetch_from(other)
    for _ in damages:
        while rebuild.copy():
            pass
        while not rebuild.is_filled:
            rebuild.fill(fetch(rebuild.next_offset))
    while rebuild.copy():
        pass
    group = rebuild.finish()
    size_bytes = log.segments.first.size_bytes
    log.truncate_to(Offset(590))
    append(log, *(f"59+{each}" for each in range(RECORDS)), epoch=7)
    log.roll(NOW_MS)
    log.flush()
    assert log.segments.first is group.replaced[0]
    assert log.segments.first.size_bytes == size_bytes
    assert not log.compaction.announce(group, rebuild.end_offset_mark)
    rebuild.abandon()
