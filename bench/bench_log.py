"""A log alone, in this process: what an append, a read and a recovery cost, beside the bare system calls.

The peer of an append is `pwrite` of the same bytes; of a read, `pread` of the same file; of a recovery, the checksum of
the same bytes. Everything lies in the page cache; nothing is synced.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from harness import LONG, figure

from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicPartition
from tidelog.io.disk import RealDisk
from tidelog.log import Log, LogConfig
from tidelog.records import BatchBuilder
from tidelog.records.crc32c import crc32c

ROUNDS = 9 if LONG else 5
NOW_MS = 1_700_000_000_000
PIECE_SIZE_BYTES = 1024 * 1024


def open_log(directory: Path, *, clean: bool = True) -> Log:
    return Log.open(
        RealDisk(),
        str(directory),
        TopicPartition("bench", PartitionIndex(0)),
        LogConfig(),
        topic_id=None,
        clean_shutdown=clean,
        now_ms=NOW_MS,
    )


def make_batch(record_count: int) -> bytearray:
    builder = BatchBuilder()
    for _ in range(record_count):
        builder.append(NOW_MS, None, b"x" * 100)
    return bytearray(builder.build())


def best(measure: Callable[[], float]) -> float:
    return min(measure() for _ in range(ROUNDS))


def append(log: Log, batch: bytearray, count: int) -> float:
    """Seconds per append."""
    view = memoryview(batch)
    no_offset = bytes(8)
    started = time.perf_counter()
    for _ in range(count):
        view[:8] = no_offset  # as it comes from a producer
        log.append_as_leader(view, leader_epoch=LeaderEpoch(0), now_ms=NOW_MS)
    return (time.perf_counter() - started) / count


def write(path: Path, batch: bytearray, count: int) -> float:
    """Seconds per bare write."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        started = time.perf_counter()
        position = 0
        for _ in range(count):
            position += os.pwrite(descriptor, batch, position)
        return (time.perf_counter() - started) / count
    finally:
        os.close(descriptor)


def read(log: Log) -> float:
    """Seconds to read all of it, a slice of at most a mebibyte at a time."""
    started = time.perf_counter()
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        found = log.read(offset, size_bytes_max=PIECE_SIZE_BYTES, end_offset=log.log_end_offset)
        for _ in found.pieces():
            pass
        offset = found.next_offset
    return time.perf_counter() - started


def read_plainly(path: Path, look: Callable[[bytes], object]) -> float:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        started = time.perf_counter()
        position = 0
        while data := os.pread(descriptor, PIECE_SIZE_BYTES, position):
            look(data)
            position += len(data)
        return time.perf_counter() - started
    finally:
        os.close(descriptor)


def recover(directory: Path) -> float:
    started = time.perf_counter()
    log = open_log(directory, clean=False)
    seconds = time.perf_counter() - started
    assert log.recovery.scanned_size_bytes == log.segments.size_bytes
    log.release()
    return seconds


def look_up(log: Log, offsets: list[int]) -> float:
    """Seconds to find where one offset is."""
    started = time.perf_counter()
    for offset in offsets:
        log.read(Offset(offset), size_bytes_max=PIECE_SIZE_BYTES, end_offset=log.log_end_offset)
    return (time.perf_counter() - started) / len(offsets)


def measure(directory: Path, record_count: int, append_count: int, *, append_us_at_most: float | None) -> None:
    """All figures for a log of batches of one size."""
    kind = f"batches of {record_count}"
    path = directory / str(record_count)
    segment = path / "00000000000000000000.log"
    batch = make_batch(record_count)
    log = open_log(path)
    seconds = best(lambda: append(log, batch, append_count))
    bare_seconds = best(lambda: write(directory / "bare", batch, append_count))
    figure(
        f"log: append, {kind}",
        seconds * 1e6,
        "us",
        peer="pwrite",
        peer_value=bare_seconds * 1e6,
        at_most=append_us_at_most,
    )
    size_bytes, end = log.segments.size_bytes, log.log_end_offset
    plain_seconds = best(lambda: read_plainly(segment, len))
    figure(
        f"log: read, {kind}",
        size_bytes / best(lambda: read(log)) / 1e9,
        "GB/s",
        peer="pread",
        peer_value=size_bytes / plain_seconds / 1e9,
        at_least=1,
    )
    figure(f"log: find an offset, {kind}", look_up(log, [*range(0, end, end // 999)]) * 1e6, "us")
    figure(f"log: find the last batch, {kind}", look_up(log, [end - 1] * 5000) * 1e6, "us")
    log.release()
    summing_seconds = best(lambda: read_plainly(segment, crc32c))
    figure(
        f"log: recover, {kind}",
        size_bytes / recover(path) / 1e6,
        "MB/s",
        peer="CRC32C alone",
        peer_value=size_bytes / summing_seconds / 1e6,
    )


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as name:
        measure(Path(name), 1, 50_000, append_us_at_most=12)
        measure(Path(name), 140, 8_000, append_us_at_most=None)


if __name__ == "__main__":
    main()
