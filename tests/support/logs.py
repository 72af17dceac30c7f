"""Logs for tests: batches as producers send them, a log on a disk in memory, and all that can be read from it."""

from __future__ import annotations

from typing import Any

from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicPartition
from tidelog.base.ports import Disk, Rng
from tidelog.log import AppendResult, Log, LogConfig
from tidelog.records import BatchBuilder, BatchHeader, Record, read_records, split_batches

DIRECTORY = "data/flights-0"
FLIGHTS = TopicPartition("flights", PartitionIndex(0))
NOW_MS = 1_700_000_000_000


def make_batch(
    *values: str | bytes | None,
    timestamp: int = NOW_MS,
    timestamps: list[int] | None = None,
    key: bytes | None = b"k",
    base_offset: int = 0,
    leader_epoch: int = -1,
    **settings: Any,
) -> bytearray:
    """A batch with one record for each value; `settings` are `BatchBuilder`'s."""
    builder = BatchBuilder(**settings)
    for index, value in enumerate(values):
        content = value.encode() if isinstance(value, str) else value
        builder.append(timestamp if timestamps is None else timestamps[index], key, content)
    return bytearray(builder.build(base_offset, leader_epoch))


def open_log(
    disk: Disk,
    *,
    clean: bool = True,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    directory: str = DIRECTORY,
    rng: Rng | None = None,
    **settings: Any,
) -> Log:
    """Open a log; `settings` are `LogConfig`'s."""
    return Log.open(
        disk,
        directory,
        FLIGHTS,
        LogConfig(**settings),
        topic_id=None,
        clean_shutdown=clean,
        recovery_point=Offset(recovery_point),
        now_ms=NOW_MS,
        log_start_offset=Offset(log_start_offset),
        rng=rng,
    )


def append(log: Log, *values: str | bytes, epoch: int = 0, **settings: Any) -> AppendResult:
    """Append one batch of a client."""
    return log.append_as_leader(make_batch(*values, **settings), leader_epoch=LeaderEpoch(epoch), now_ms=NOW_MS)


def batches_of(log: Log) -> list[tuple[BatchHeader, bytes]]:
    """Every batch from the log start to the log end, read in as many slices as it takes."""
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, size_bytes_max=1 << 20, end_offset=log.log_end_offset).read_all()
        if not data:
            break
        for position, header in split_batches(data):
            found.append((header, data[position : position + header.size_bytes]))
            offset = Offset(header.next_offset)
    return found


def records_of(log: Log) -> list[Record]:
    """Every record that the batches hold, control records left out."""
    return [record for header, data in batches_of(log) if not header.is_control for record in read_records(data)]


def values_of(log: Log) -> list[str]:
    """The values of all records from the log start on."""
    return [(record.value or b"").decode() for record in records_of(log) if record.offset >= log.log_start_offset]


def lineage_of(log: Log) -> list[tuple[int, int]]:
    return [(entry.leader_epoch, entry.start_offset) for entry in log.lineage.entries]
