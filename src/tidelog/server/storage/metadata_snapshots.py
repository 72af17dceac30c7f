"""Snapshots of the metadata: files beside its log, in Kafka's own format, each with all that lies below its end.

```
 00000000000000004096-0000000007.checkpoint        of everything below 4096, whose last record is of leader epoch 7

 │ header [version of the quorum, voters] │ records, as many batches as it takes │ footer │
```
A file without its footer is not whole. It is written under another name, synced and renamed: what has the name is
whole, unless the disk rots.

Kafka: `RecordsSnapshotReader`, `RecordsSnapshotWriter`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from tidelog.base.errors import CorruptLogError, DiskError, KafkaError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.base.ports import Disk
from tidelog.log.files.leftovers import TEMPORARY_SUFFIX
from tidelog.metadata.records import decode_record, encode_record
from tidelog.quorum.values import SnapshotId, VoterSet
from tidelog.records import (
    BatchBuilder,
    check_crc,
    control_batch,
    read_control_record,
    read_records,
    split_batches,
    stamp,
)
from tidelog.records.control import KRaftVersion, QuorumControlRecord, SnapshotFooter, SnapshotHeader, Voters
from tidelog.server.storage.voter_records import voter_set_of, voters_record

SUFFIX = ".checkpoint"
PART_SUFFIX = ".checkpoint.part"
BATCH_RECORD_COUNT_MAX = 500
KRAFT_VERSION = 1
"""That of a quorum whose voters are in its log (KIP-853)."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The content of one snapshot.

    Attributes:
        records: metadata that leads from nothing to all there is.
        voters: None where they are not kept in the log.
        timestamp_ms: of the last record that it stands for, since 1970.
    """

    snapshot_id: SnapshotId
    records: tuple[object, ...]
    voters: VoterSet | None
    timestamp_ms: int


def file_name(snapshot_id: SnapshotId) -> str:
    return f"{snapshot_id.end_offset:020d}-{snapshot_id.leader_epoch:010d}{SUFFIX}"


def parse_snapshot_name(name: str) -> SnapshotId | None:
    """None for the name of anything else."""
    end_offset, dash, rest = name.removesuffix(SUFFIX).partition("-")
    is_one = name.endswith(SUFFIX) and dash and len(end_offset) == 20 and len(rest) == 10
    if not is_one or not (end_offset + rest).isdecimal() or not (end_offset + rest).isascii():
        return None
    return SnapshotId(Offset(int(end_offset)), LeaderEpoch(int(rest)))


def format_snapshot(snapshot: Snapshot) -> bytes:
    """The contents of the file."""
    now_ms, leader_epoch = snapshot.timestamp_ms, snapshot.snapshot_id.leader_epoch
    first: list[QuorumControlRecord] = [SnapshotHeader(last_contained_log_timestamp=now_ms)]
    if snapshot.voters is not None:
        first += [KRaftVersion(kraft_version=KRAFT_VERSION), voters_record(snapshot.voters)]
    pieces: list[bytes] = []
    offset = 0
    for batch, count in (
        (control_batch(*first, timestamp_ms=now_ms), len(first)),
        *_batches(snapshot.records, now_ms),
        (control_batch(SnapshotFooter(), timestamp_ms=now_ms), 1),
    ):
        stamped = bytearray(batch)
        stamp(stamped, 0, offset, leader_epoch)
        pieces.append(bytes(stamped))
        offset += count
    return b"".join(pieces)


def _batches(records: Iterable[object], now_ms: int) -> Iterator[tuple[bytes, int]]:
    rest = iter(records)
    while some := list(islice(rest, BATCH_RECORD_COUNT_MAX)):
        builder = BatchBuilder()
        for record in some:
            builder.append(now_ms, None, encode_record(record))
        yield builder.build(), len(some)


def parse_snapshot(data: bytes, snapshot_id: SnapshotId, *, path: str) -> Snapshot:
    """The inverse of `format_snapshot`; reads those of Kafka too.

    Raises:
        CorruptLogError: it is damaged, or not whole, or of a newer release.
    """
    records: list[object] = []
    controls: list[object] = []
    try:
        for position, header in split_batches(data):
            check_crc(data, position, header)
            for record in read_records(data, position, header):
                if header.is_control:
                    found = read_control_record(record)
                    controls += [] if found is None else [found[1]]
                elif record.value is None:
                    raise CorruptLogError(f"record {record.offset} has no value")
                else:
                    records.append(decode_record(record.value))
    except (CorruptLogError, KafkaError) as error:
        raise CorruptLogError(f"{path}: this snapshot of the metadata cannot be read: {error}") from error
    if not controls or not isinstance(controls[0], SnapshotHeader) or not isinstance(controls[-1], SnapshotFooter):
        raise CorruptLogError(f"{path}: this snapshot of the metadata is not whole: its header or footer is missing")
    voters = [voter_set_of(control) for control in controls if isinstance(control, Voters)]
    return Snapshot(
        snapshot_id, tuple(records), voters[-1] if voters else None, controls[0].last_contained_log_timestamp
    )


class MetadataSnapshots:
    """The snapshots in one directory.

    Args:
        directory: of the metadata log.

    Attributes:
        ids: of those that are there, the oldest first.
    """

    def __init__(self, directory: str, *, disk: Disk) -> None:
        self.ids: tuple[SnapshotId, ...] = ()
        self._directory = directory
        self._disk = disk

    @property
    def latest(self) -> SnapshotId | None:
        return self.ids[-1] if self.ids else None

    def path(self, snapshot_id: SnapshotId) -> str:
        return f"{self._directory}/{file_name(snapshot_id)}"

    def look(self) -> None:
        """Find those that are there; what was left unfinished is removed."""
        self._remove_parts()
        found = [parse_snapshot_name(name) for name in self._disk.list(self._directory)]
        self.ids = tuple(sorted((one for one in found if one is not None), key=_end_offset))

    def read(self, snapshot_id: SnapshotId) -> Snapshot:
        """Raises CorruptLogError, DiskError."""
        path = self.path(snapshot_id)
        return parse_snapshot(self._disk.read_bytes(path), snapshot_id, path=path)

    def write(self, snapshot: Snapshot) -> None:
        """Return once it would survive a loss of power. Raises DiskError; what was written of it is gone again."""
        path = self.path(snapshot.snapshot_id)
        try:
            self._disk.write_atomically(path, format_snapshot(snapshot))
        except DiskError:
            with suppress(DiskError):
                self._disk.remove(path + TEMPORARY_SUFFIX)  # the next one has another name, and the disk may be full
            raise

    def add(self, snapshot_id: SnapshotId) -> None:
        """Add a snapshot that was written to the list."""
        self.ids = tuple(sorted({*self.ids, snapshot_id}, key=_end_offset))

    def forget(self, snapshot_id: SnapshotId) -> None:
        """It cannot be read. Its file stays, for whoever wants to know why."""
        self.ids = tuple(one for one in self.ids if one != snapshot_id)

    def piece(self, snapshot_id: SnapshotId, position: int, size_bytes_max: int) -> tuple[int, bytes]:
        """The size of the whole, and what lies at a position of it. Raises DiskError: it is gone, for one thing."""
        file = self._disk.open(self.path(snapshot_id))
        try:
            return file.size(), file.read_at(position, size_bytes_max)
        finally:
            file.close()

    # As it comes from the leader, piece by piece.

    def append_part(self, snapshot_id: SnapshotId, position: int, piece: bytes) -> None:
        """What lies behind `position` is forgotten; at the start of one, what came of others that nobody finished."""
        if position == 0:
            self._remove_parts()
        file = self._disk.open(self._part(snapshot_id), create=True)
        try:
            file.truncate(position)
            file.append(piece)
        finally:
            file.close()

    def finish_part(self, snapshot_id: SnapshotId) -> Snapshot:
        """All of it is there: look at it, and keep it.

        Raises:
            CorruptLogError: it is no snapshot; what came is thrown away.
        """
        part = self._part(snapshot_id)
        data = self._disk.read_bytes(part)
        self._disk.remove(part)
        snapshot = parse_snapshot(data, snapshot_id, path=part)
        self._disk.write_atomically(self.path(snapshot_id), data)
        return snapshot

    def _remove_parts(self) -> None:
        for name in self._disk.list(self._directory):
            if name.endswith(PART_SUFFIX):
                self._disk.remove(f"{self._directory}/{name}")

    def _part(self, snapshot_id: SnapshotId) -> str:
        return self.path(snapshot_id).removesuffix(SUFFIX) + PART_SUFFIX

    def remove_before(self, snapshot_id: SnapshotId) -> tuple[SnapshotId, ...]:
        """Forget the older ones. Returns them: their files are to be removed by `remove_files`."""
        deleted = tuple(one for one in self.ids if one.end_offset < snapshot_id.end_offset)
        self.ids = tuple(one for one in self.ids if one not in deleted)
        return deleted

    def remove_files(self, deleted: Iterable[SnapshotId]) -> None:
        """Remove the files of snapshots. May take long: to be called off the loop."""
        for snapshot_id in deleted:
            self._disk.remove(self.path(snapshot_id))


def _end_offset(snapshot_id: SnapshotId) -> tuple[int, int]:
    return snapshot_id.end_offset, snapshot_id.leader_epoch
