"""`__cluster_metadata-0` as the quorum needs it: whole decisions in, whole decisions out, and what its machine asks.

Its methods run on the loop or, one at a time, on the executor; whoever drives it sees to that. Only `sync` may run
while others do.

Kafka: `KafkaMetadataLog`, `BatchAccumulator`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tidelog.base.errors import CorruptLogError, KafkaError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.base.invariant import invariant
from tidelog.base.ports import Buffer, Clock
from tidelog.log import Log, LogSlice
from tidelog.metadata.records import decode_record, encode_record
from tidelog.quorum.values import SnapshotId
from tidelog.records import BatchBuilder, BatchHeader, check_crc, read_control_record, read_records, split_batches
from tidelog.records.control import ControlRecord
from tidelog.records.lineage import LeaderEpochLineage
from tidelog.server.storage.checkpoints import Checkpoints
from tidelog.server.storage.metadata_snapshots import MetadataSnapshots

READ_SIZE_BYTES_MAX = 1 << 20
FETCHED_SIZE_BYTES_MAX = 8 << 20
"""Of the records in one answer; a decision is never cut, whatever it takes."""


class MetadataBatch(NamedTuple):
    """One decision, or what the quorum wrote for itself.

    Attributes:
        end_offset: exclusive.
        timestamp_ms: of its latest record, since 1970.
    """

    base_offset: Offset
    end_offset: Offset
    leader_epoch: LeaderEpoch
    timestamp_ms: int
    size_bytes: int
    records: tuple[object, ...]
    controls: tuple[ControlRecord, ...]


def read_batch(data: Buffer, position: int, header: BatchHeader) -> MetadataBatch:
    """Decode a batch. Raises CorruptLogError, KafkaError: it is damaged, or of a newer release."""
    check_crc(data, position, header)  # after a clean stop nobody else looked at it
    records: list[object] = []
    controls: list[ControlRecord] = []
    for record in read_records(data, position, header):
        if header.is_control:
            found = read_control_record(record)
            if found is not None:
                controls.append(found[1])
        elif record.value is None:
            raise CorruptLogError(f"the record at offset {record.offset} has no value")
        else:
            records.append(decode_record(record.value))
    return MetadataBatch(
        base_offset=Offset(header.base_offset),
        end_offset=Offset(header.next_offset),
        leader_epoch=LeaderEpoch(header.leader_epoch),
        timestamp_ms=header.max_timestamp,
        size_bytes=header.size_bytes,
        records=tuple(records),
        controls=tuple(controls),
    )


def encode_decision(records: Iterable[object], timestamp_ms: int) -> bytes:
    """The records of one decision as one batch."""
    builder = BatchBuilder()
    for record in records:
        builder.append(timestamp_ms, None, encode_record(record))
    return builder.build()


class MetadataLog:
    """See the module; what the machine asks is its `QuorumLog`.

    Args:
        log: open; nobody else writes to it.
        snapshots: beside it.
        checkpoints: which say up to where it is synced.
    """

    def __init__(self, log: Log, snapshots: MetadataSnapshots, checkpoints: Checkpoints, *, clock: Clock) -> None:
        self._log = log
        self._snapshots = snapshots
        self._checkpoints = checkpoints
        self._clock = clock

    @property
    def directory(self) -> str:
        return self._log.directory

    @property
    def log_start_offset(self) -> Offset:
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> Offset:
        """The exclusive end of the metadata log."""
        return self._log.log_end_offset

    @property
    def lineage(self) -> LeaderEpochLineage:
        return self._log.lineage

    @property
    def snapshot(self) -> SnapshotId | None:
        """The latest snapshot."""
        return self._snapshots.latest

    # Append.

    def open_epoch(self, leader_epoch: LeaderEpoch, batches: Sequence[bytes]) -> Offset:
        """Persist that an epoch starts here (rule 1), and append its control batches. Returns where it starts."""
        epoch_start = self.log_end_offset
        self._log.assign_leader_epoch(leader_epoch)
        for batch in batches:
            self.append(batch, leader_epoch)
        return epoch_start

    def append(self, batch: bytes, leader_epoch: LeaderEpoch) -> Offset:
        """Append one batch as the leader, which counts once it is synced. Returns the offset of its first record."""
        now_ms = self._clock.wall_ms()
        view = memoryview(bytearray(batch))
        return self._log.append_as_leader(
            view, leader_epoch=leader_epoch, now_ms=now_ms, origin="controller"
        ).first_offset

    def append_fetched(self, batches: bytes) -> Offset:
        """Append what the leader has, as it has it, and sync it. Returns the end of the log."""
        self._log.append_as_follower(batches, now_ms=self._clock.wall_ms())
        self._log.flush()
        return self.log_end_offset

    def sync(self, end_offset: Offset) -> None:
        """Return once all below would survive a loss of power."""
        self._log.flush(end_offset)

    # Read.

    def records_from(self, offset: Offset) -> LogSlice:
        """What an answer to a fetch carries: all that there is from there on, as far as one answer goes."""
        return self._log.read(offset, size_bytes_max=FETCHED_SIZE_BYTES_MAX, end_offset=self.log_end_offset)

    def batches(self, offset: Offset, end_offset: Offset) -> Iterator[MetadataBatch]:
        """The batches of [offset, end_offset), which is where batches start and end.

        Raises:
            CorruptLogError: names the offset from which on the metadata cannot be read.
        """
        for data, position, header in self._stored(offset, end_offset):
            try:
                yield read_batch(data, position, header)
            except (CorruptLogError, KafkaError) as error:
                raise CorruptLogError(
                    f"{self.directory}: the metadata from offset {header.base_offset} on cannot be read: {error}; "
                    "put back a copy of this directory that is whole"
                ) from error

    def control_batches(self, offset: Offset) -> Iterator[MetadataBatch]:
        """From there on, those in which the quorum wrote of itself, committed or not; no others are looked into."""
        for data, position, header in self._stored(offset, self.log_end_offset):
            if header.is_control:
                yield read_batch(data, position, header)

    def _stored(self, offset: Offset, end_offset: Offset) -> Iterator[tuple[Buffer, int, BatchHeader]]:
        while offset < end_offset:
            found = self._log.read(offset, size_bytes_max=READ_SIZE_BYTES_MAX, end_offset=end_offset)
            data = found.read_all()
            batches = split_batches(data)
            invariant(bool(batches), "{}: no whole batch in [{}, {})", self.directory, offset, end_offset)
            for position, header in batches:
                yield data, position, header
            offset = Offset(batches[-1][1].next_offset)

    # Cut.

    def truncate_to(self, end_offset: Offset) -> Offset:
        """Forget what lies there and beyond, synced. Returns the end of the log."""
        self._checkpoints.truncate(self._log, end_offset)
        self._log.flush()
        return self.log_end_offset

    def start_at(self, snapshot: SnapshotId) -> None:
        """Forget everything: a snapshot says it all. The log goes on, empty, behind it, and knows its epoch."""
        self._checkpoints.start_anew(self._log, snapshot.end_offset)
        self._log.assign_leader_epoch(snapshot.leader_epoch)
        self._log.flush()

    @property
    def is_synced(self) -> bool:
        """Whether a loss of power would leave all of it."""
        return self._log.recovery_point >= self.log_end_offset

    def roll(self) -> None:
        """Start a new segment. Where not all is synced, a loss of power may leave a hole before it."""
        self._log.roll(self._clock.wall_ms())

    def trim(self, log_start_offset: Offset) -> None:
        """Forget what lies below: a snapshot that reaches there is on disk. `remove_trimmed` gives the space back."""
        self._log.advance_log_start_offset(log_start_offset)
        self._log.delete_segments_before(self._log.log_start_offset)

    def remove_trimmed(self) -> None:
        """Remove the files of trimmed segments. May take long: to be called off the loop."""
        self._log.segments.remove_deleted_files()
