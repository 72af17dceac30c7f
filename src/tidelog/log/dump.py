"""The files of a log as rows, for people to look at. They may have been written by Apache Kafka.

Nothing is changed, and nothing has to be right: where a file does not go on as it should, the last row says `problem`.

Kafka: `DumpLogSegments`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct

from tidelog.base.errors import CorruptLogError, KafkaError, MalformedBatchError
from tidelog.base.ids import Offset, uuid_text
from tidelog.base.ports import Disk
from tidelog.log import directory
from tidelog.log.continuity import BatchFaultError, whole_batches
from tidelog.log.files import offset_index, time_index
from tidelog.log.files.checkpoint import parse_meta_properties, parse_offsets, parse_partition_metadata
from tidelog.log.files.lineage_file import LINEAGE_FILE, read_lineage
from tidelog.log.files.producer_snapshot import parse_snapshot
from tidelog.log.files.transaction_index import parse_entries
from tidelog.log.recovery import PARTITION_METADATA_FILE, TRUNCATED_SUFFIX
from tidelog.log.segment import (
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_file_name,
)
from tidelog.records.batch import BatchHeader, Record, check_crc, read_records
from tidelog.records.compression import COMPRESSION_NAMES
from tidelog.records.control import read_control_record

SNAPSHOT_OF_METADATA_SUFFIX = ".checkpoint"
"""Batches, as in a segment; `bootstrap.checkpoint` too."""
UNUSED = (0, 0)

Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class Dump:
    """The dump of one file.

    Attributes:
        path: of the file.
        kind: batches, records, offset index, time index, transaction index, producers, leader epochs, offsets or
            properties.
        rows: each with the same keys, but for a last one that may hold a `problem`.
    """

    path: str
    kind: str
    rows: Iterator[Row]


def dump(disk: Disk, path: str, *, records: bool = False) -> Iterator[Dump]:
    """A file, or every file of a partition's directory, in the order of their names.

    Args:
        disk: where it lies.
        path: of the file or directory.
        records: each record of the segments, instead of each batch.

    Raises:
        CorruptLogError: the name is not one of a log's files.
        DiskError: it cannot be read.
    """
    if not disk.is_directory(path):
        found = _dump_file(disk, path, records=records)
        if found is None:
            raise CorruptLogError(f"{path}: not the name of a file of a log")
        yield found
        return
    for name in disk.list(path):
        found = _dump_file(disk, f"{path}/{name}", records=records)
        if found is not None:
            yield found


def _dump_file(disk: Disk, path: str, *, records: bool) -> Dump | None:
    name = path.rpartition("/")[2]
    base = _base_offset(name)
    if name == LINEAGE_FILE:
        return Dump(path, "leader epochs", _guarded(path, lambda: _leader_epochs(disk, path)))
    if name == PARTITION_METADATA_FILE:
        return Dump(path, "properties", _guarded(path, lambda: _partition_metadata(disk, path)))
    if name == directory.META_PROPERTIES_FILE:
        return Dump(path, "properties", _guarded(path, lambda: _meta_properties(disk, path)))
    if name.endswith(SNAPSHOT_OF_METADATA_SUFFIX):
        return Dump(path, "records", _records(disk, path)) if records else Dump(path, "batches", _batches(disk, path))
    if name.endswith("-offset-checkpoint"):
        return Dump(path, "offsets", _guarded(path, lambda: _offsets(disk, path)))
    if base is None:
        return None
    if INDEX_SUFFIX in name:
        return Dump(path, "offset index", _offset_index(disk, path, base))
    if TIME_INDEX_SUFFIX in name:
        return Dump(path, "time index", _time_index(disk, path, base))
    if TRANSACTION_INDEX_SUFFIX in name:
        return Dump(path, "transaction index", _guarded(path, lambda: _transaction_index(disk, path)))
    if SNAPSHOT_SUFFIX in name:
        return Dump(path, "producers", _guarded(path, lambda: _producers(disk, path)))
    if records:
        return Dump(path, "records", _records(disk, path))
    return Dump(path, "batches", _batches(disk, path))


_SUFFIXES = (LOG_SUFFIX, *INDEX_SUFFIXES, SNAPSHOT_SUFFIX, TRUNCATED_SUFFIX)


def _base_offset(name: str) -> Offset | None:
    """Of a file of a segment, whatever was being done to it: `.deleted`, `.cleaned`, `.swap` or `.start` may follow."""
    for ending in ("", ".deleted", ".cleaned", ".swap", ".start"):
        if name.endswith(ending):
            for suffix in _SUFFIXES:
                offset = parse_file_name(name.removesuffix(ending), suffix)
                if offset is not None:
                    return offset
    return None


def _guarded(path: str, rows: Callable[[], Iterator[Row]]) -> Iterator[Row]:
    try:
        yield from rows()
    except CorruptLogError as error:
        yield {"problem": str(error).removeprefix(f"{path}: ")}
    except UnicodeDecodeError:
        yield {"problem": "not text"}


# Segments.


def _batches(disk: Disk, path: str) -> Iterator[Row]:
    for position, header, window, at in _readable(disk, path):
        if header is None:
            yield {"position": position, "problem": window}
            return
        assert not isinstance(window, str)
        yield {
            "base_offset": header.base_offset,
            "last_offset": header.last_offset,
            "record_count": header.record_count,
            "leader_epoch": header.leader_epoch,
            "max_timestamp": header.max_timestamp,
            "timestamp_type": header.timestamp_type,
            "compression": COMPRESSION_NAMES.get(header.compression, str(header.compression)),
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "last_sequence": header.last_sequence,
            "is_transactional": header.is_transactional,
            "is_control": header.is_control,
            "position": position,
            "size_bytes": header.size_bytes,
            "crc": header.crc,
            "crc_is_right": _is_crc_right(window, at, header),
        }


def _records(disk: Disk, path: str) -> Iterator[Row]:
    for position, header, window, at in _readable(disk, path):
        if header is None:
            yield {"position": position, "problem": window}
            return
        assert not isinstance(window, str)
        try:
            for record in read_records(window, at, header):
                yield {
                    "offset": record.offset,
                    "timestamp": record.timestamp,
                    "leader_epoch": record.leader_epoch,
                    "key": record.key,
                    "value": record.value,
                    "headers": record.headers,
                    "control": _control(record) if header.is_control else None,
                }
        except KafkaError as error:
            yield {"position": position, "problem": str(error)}


def _readable(disk: Disk, path: str) -> Iterator[tuple[int, BatchHeader | None, bytes | str, int]]:
    """Every batch; at the end, if something is wrong there, its position and what that is."""
    file = disk.open(path)
    try:
        yield from whole_batches(file, file.size())
    except BatchFaultError as fault:
        yield fault.position, None, fault.reason, 0
    finally:
        file.close()


def _is_crc_right(window: bytes, at: int, header: BatchHeader) -> bool:
    try:
        check_crc(window, at, header)
    except MalformedBatchError:
        return False
    return True


def _control(record: Record) -> str:
    try:
        found = read_control_record(record)
    except KafkaError as error:
        return str(error)
    return "unknown" if found is None else f"{found[0].name} {found[1]!r}"


# Indexes. One that a crash left has unused space behind its entries, all zeros.


def _offset_index(disk: Disk, path: str, base_offset: Offset) -> Iterator[Row]:
    last = (-1, -1)
    for entry in _entries(disk, path, offset_index.ENTRY):
        if entry == UNUSED:
            return
        if entry[0] <= last[0] or entry[1] <= last[1]:
            yield {"problem": f"the entry {entry} does not lie after {last}"}
            return
        last = (entry[0], entry[1])
        yield {"offset": base_offset + entry[0], "position": entry[1]}


def _time_index(disk: Disk, path: str, base_offset: Offset) -> Iterator[Row]:
    last = (-1, -1)
    for entry in _entries(disk, path, time_index.ENTRY):
        if entry == UNUSED:
            return
        if entry[0] <= last[0] or entry[1] < last[1]:
            yield {"problem": f"the entry {entry} does not lie after {last}"}
            return
        last = (entry[0], entry[1])
        yield {"timestamp": entry[0], "offset": base_offset + entry[1]}


def _transaction_index(disk: Disk, path: str) -> Iterator[Row]:
    for entry in parse_entries(disk.read_bytes(path), path):
        yield entry._asdict()


def _entries(disk: Disk, path: str, entry: Struct) -> Iterator[tuple[int, ...]]:
    data = disk.read_bytes(path)
    whole = len(data) - len(data) % entry.size
    return entry.iter_unpack(data[:whole])


# Small files.


def _producers(disk: Disk, path: str) -> Iterator[Row]:
    for state in parse_snapshot(disk.read_bytes(path), path):
        last = state.batches[-1] if state.batches else None
        yield {
            "producer_id": state.producer_id,
            "producer_epoch": state.producer_epoch,
            "first_sequence": None if last is None else last.base_sequence,
            "last_sequence": None if last is None else last.last_sequence,
            "last_offset": None if last is None else last.last_offset,
            "last_timestamp": state.last_timestamp,
            "coordinator_epoch": state.coordinator_epoch,
            "transaction_first_offset": state.transaction_first_offset,
        }


def _leader_epochs(disk: Disk, path: str) -> Iterator[Row]:
    for entry in read_lineage(disk, path.rpartition("/")[0] or ".").entries:
        yield {"leader_epoch": entry.leader_epoch, "start_offset": entry.start_offset}


def _offsets(disk: Disk, path: str) -> Iterator[Row]:
    for (topic, partition), offset in parse_offsets(disk.read_bytes(path), path).items():
        yield {"topic": topic, "partition": partition, "offset": offset}


def _partition_metadata(disk: Disk, path: str) -> Iterator[Row]:
    yield {"key": "topic_id", "value": uuid_text(parse_partition_metadata(disk.read_bytes(path), path))}


def _meta_properties(disk: Disk, path: str) -> Iterator[Row]:
    properties = parse_meta_properties(disk.read_bytes(path), path)
    yield {"key": "cluster.id", "value": properties.cluster_id}
    yield {"key": "node.id", "value": properties.node_id}
    yield {"key": "directory.id", "value": properties.directory_id}
