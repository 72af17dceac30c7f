"""A replica whose node is down loses the end of its log, as a loss of power takes what was not synced.

    0 1 2 3 | 4 5 6 | 7 8 9        what the log holds, in batches
    0 1 2 3 | 4 5                  end_offset=6: the batch is cut between two of its records

A loss of power takes bytes, so what a log keeps of a batch that was hit is nothing. Here it keeps the records below
`end_offset`, for a test to lose exactly what it names: no reader can tell how records were put in batches.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.base.ids import Offset, TopicPartition
from tidelog.io.disk import RealDisk
from tidelog.log import Log
from tidelog.log.config import LogConfig
from tidelog.log.directory import (
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    LogDirectory,
)
from tidelog.log.run_files import RunFiles
from tidelog.records import BATCH_OVERHEAD, compress, decompress, read_header, read_records
from tidelog.records.batch import DECOMPRESSED_SIZE_BYTES_MAX
from tidelog.records.header import write_batch

if TYPE_CHECKING:
    from tidelog.base.ports import Buffer


def lose_tail(directory: Path, topic_partition: TopicPartition, end_offset: int) -> None:
    """Let a replica forget all records from an offset on, and its node what shows that nothing can be lost.

    So the node registers as one that comes back from a loss of power, and leaves every ISR that it was in.

    Args:
        directory: the log directory that the replica lies in; no node may use it.
        end_offset: exclusive, above the log start.

    Raises:
        DiskError: a node uses the directory, or the disk refused.
    """
    disk = RealDisk()
    held = LogDirectory.open(disk, str(directory))
    try:
        recovery_points = held.read_offsets(RECOVERY_POINT_FILE)
        high_watermarks = held.read_offsets(HIGH_WATERMARK_FILE)
        now_ms = int(time.time() * 1_000)
        log = Log.open(
            disk,
            str(directory / str(topic_partition)),
            topic_partition,
            LogConfig(),
            topic_id=None,
            clean_shutdown=True,
            recovery_point=recovery_points.get(topic_partition, Offset(0)),
            log_start_offset=held.read_offsets(LOG_START_OFFSET_FILE).get(topic_partition, Offset(0)),
            high_watermark=high_watermarks.get(topic_partition),
            now_ms=now_ms,
        )
        if end_offset < log.log_end_offset:
            kept = _start_of_batch(log, end_offset)
            log.truncate_to(Offset(end_offset))
            if kept is not None:
                log.append_as_follower(kept, now_ms=now_ms)
        log.close()
        recovery_points[topic_partition] = log.recovery_point
        high_watermarks[topic_partition] = min(high_watermarks.get(topic_partition, Offset(0)), log.log_end_offset)
        held.write_offsets(RECOVERY_POINT_FILE, recovery_points)
        held.write_offsets(HIGH_WATERMARK_FILE, high_watermarks)
        evidence = RunFiles(disk, str(directory))
        evidence.take_clean_shutdown()
        evidence.forget_incarnation()
    finally:
        held.close()


def end_of_log(directory: Path) -> tuple[int, int]:
    """Where the log of a replica ends (exclusive), and the leader epoch of its last batch; -1 for an empty log."""
    end_offset, leader_epoch = 0, -1
    for segment in sorted(directory.glob("*.log")):
        end_offset = int(segment.stem)
        with segment.open("rb") as file:
            while len(head := file.read(BATCH_OVERHEAD)) == BATCH_OVERHEAD:
                header = read_header(head.ljust(BATCH_OVERHEAD))
                end_offset, leader_epoch = header.next_offset, header.leader_epoch
                file.seek(header.size_bytes - BATCH_OVERHEAD, 1)
    return end_offset, leader_epoch


def _start_of_batch(log: Log, end_offset: int) -> bytes | None:
    """The batch that holds `end_offset`, without that record and what follows it; None if it begins there."""
    found = log.read(Offset(end_offset), size_bytes_max=1, end_offset=log.log_end_offset)
    batch = found.read(0, len(found))
    header = read_header(batch)
    records = [record for record in read_records(batch, 0, header) if record.offset < end_offset]
    if not records:
        return None
    compressed = memoryview(batch)[BATCH_OVERHEAD : header.size_bytes]
    encoded = decompress(header.compression, compressed, size_bytes_max=DECOMPRESSED_SIZE_BYTES_MAX)
    shorter = header._replace(
        last_offset_delta=end_offset - 1 - header.base_offset,
        record_count=len(records),
        max_timestamp=header.max_timestamp
        if header.is_log_append_time
        else max(record.timestamp for record in records),
    )
    return write_batch(shorter, compress(header.compression, _first(encoded, len(records))))


def _first(encoded: Buffer, count: int) -> memoryview:
    """The first of some records as they are encoded: each begins with its length, a zigzag varint."""
    view = memoryview(encoded)
    position = 0
    for _ in range(count):
        length, shift = 0, 0
        while True:
            byte = view[position]
            position += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        position += length >> 1
    return view[:position]
