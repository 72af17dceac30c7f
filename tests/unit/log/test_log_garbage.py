"""Whatever bytes stand in a log's files: opening it ends in a log that works, or in an error that says why not."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from support.examples import examples
from support.fixtures.logs import DIRECTORY, NOW_MS, append, batches_of, make_batch, open_log
from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import CorruptLogError, DiskError, KafkaError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.log import Log
from tidelog.log.dump import dump

SIZE = len(make_batch("0"))


def filled() -> MemoryDisk:
    disk = MemoryDisk()
    log = open_log(disk, segment_size_bytes=6 * SIZE, index_interval_bytes=SIZE)
    for index in range(20):
        producer: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "base_sequence": index}
        append(log, str(index), epoch=index // 5, timestamp=NOW_MS + index, **producer)
    log.close()
    return disk


NAMES = sorted(filled().files)

garbage = st.one_of(
    st.tuples(st.just("replace"), st.binary(max_size=200)),
    st.tuples(st.just("overwrite"), st.binary(min_size=1, max_size=40)),
    st.tuples(st.just("insert"), st.binary(min_size=1, max_size=40)),
    st.tuples(st.just("cut"), st.just(b"")),
    st.tuples(st.just("remove"), st.just(b"")),
)


def damage(disk: MemoryDisk, path: str, how: str, junk: bytes, at: int) -> None:
    data = disk.files[path].data
    at %= len(data) + 1
    if how == "replace":
        data[:] = junk
    elif how == "overwrite":
        data[at : at + len(junk)] = junk
    elif how == "insert":
        data[at:at] = junk
    elif how == "cut":
        del data[at:]
    else:
        disk.remove(path)


def use(log: Log) -> None:
    """Read everything, look up times, append, truncate: each may be refused, none may fail in another way."""
    for offset in range(log.log_start_offset, min(log.log_end_offset, log.log_start_offset + 25)):
        with suppress(CorruptLogError, KafkaError):
            log.read(Offset(offset), size_bytes_max=100, end_offset=log.log_end_offset).read_all()
            log.offset_for_timestamp(NOW_MS + offset, log.log_end_offset)
    with suppress(CorruptLogError, KafkaError):
        log.max_timestamp_offset()
    latest = log.lineage.latest_leader_epoch
    if latest is None or latest < 2**31 - 1:
        first = log.log_end_offset
        epoch = 0 if latest is None else latest + 1
        log.append_as_leader(make_batch("new"), leader_epoch=LeaderEpoch(epoch), now_ms=NOW_MS)
        found = log.read(first, size_bytes_max=100, end_offset=log.log_end_offset)
        assert found.first_offset == first
    log.flush()


@given(
    damages=st.lists(st.tuples(st.sampled_from(NAMES), garbage, st.integers(0, 10_000)), min_size=1, max_size=4),
    clean=st.booleans(),
    recovery_point=st.integers(0, 25),
)
@settings(max_examples=examples(300), report_multiple_bugs=False)
def test_any_damage_is_survived(
    damages: list[tuple[str, tuple[str, bytes], int]], clean: bool, recovery_point: int
) -> None:
    disk = filled()
    for path, (how, junk), at in damages:
        if disk.exists(path):
            damage(disk, path, how, junk, at)
    for found in dump(disk, DIRECTORY):
        list(found.rows)
    for found in dump(disk, DIRECTORY, records=True):
        list(found.rows)
    settings_: dict[str, Any] = {"segment_size_bytes": 6 * SIZE, "index_interval_bytes": SIZE}
    try:
        log = open_log(disk, clean=clean, recovery_point=recovery_point, **settings_)
    except (CorruptLogError, DiskError):
        return
    log.recovery.lines()
    if not clean and recovery_point == 0:
        for header, _ in batches_of(log):  # all of it was checked
            assert header.last_offset < log.log_end_offset
    use(log)
    again = open_log(disk, clean=False, **settings_)
    use(again)
