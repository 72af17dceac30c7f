"""The files of the metadata: the log itself, its snapshots, and what its voter must not forget.

Kafka: `KafkaMetadataLog`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from tidelog.base.errors import ConfigError, CorruptLogError
from tidelog.base.ids import CLUSTER_METADATA, TopicPartition
from tidelog.base.ports import Disk
from tidelog.controller.values import FirstMetadata
from tidelog.log import Log, LogConfig
from tidelog.log.continuity import holds_whole_batch, is_unsynced
from tidelog.log.files.leftovers import START_SUFFIX
from tidelog.log.files.lineage_file import LINEAGE_FILE
from tidelog.log.recovery import TRUNCATED_SUFFIX, lost_segments
from tidelog.log.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, file_name, parse_file_name
from tidelog.quorum import QuorumLog, QuorumState, format_quorum_state, parse_quorum_state
from tidelog.quorum.state_file import NOTHING_VOTED
from tidelog.server.storage.bootstrap_file import read_first_metadata
from tidelog.server.storage.checkpoints import Checkpoints
from tidelog.server.storage.log_dir import LogDir
from tidelog.server.storage.metadata_snapshots import MetadataSnapshots, Snapshot

INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
SEGMENT_SUFFIXES = (LOG_SUFFIX, LOG_SUFFIX + START_SUFFIX)
"""Of the segments of a log, one that is about to take the place of all others included."""
logger = logging.getLogger("tidelog.server.metadata_files")

METADATA_BATCH_SIZE_BYTES_MAX = 256 << 20
"""A decision is one batch, however many partitions it is about (30,000 that change hands take 1 MiB)."""
METADATA_LOG_CONFIG = LogConfig(
    retention_ms=None, message_timestamp_after_ms_max=None, message_size_bytes_max=METADATA_BATCH_SIZE_BYTES_MAX
)


class OpenedMetadata(NamedTuple):
    """All that a node has of the metadata.

    Attributes:
        snapshot: of everything below the log start, or further on; None where the log starts at 0 and there is none.
        state: what this voter must not forget, and whether it lost that, or its log, and has yet to recover.
        directory_id: by which the voters tell this log from another of the same node (KIP-853).
        checkpoints: of the directory that the log lies in.
    """

    log: Log
    snapshots: MetadataSnapshots
    snapshot: Snapshot | None
    state: QuorumState
    directory_id: UUID
    checkpoints: Checkpoints


class MetadataFiles:
    """`__cluster_metadata-0`, in whichever directory it lies."""

    def __init__(self, directory: LogDir, *, disk: Disk) -> None:
        self._directory = directory
        self._disk = disk

    def check_not_lost(self, orphans: list[TopicPartition]) -> None:
        """Of a node that is alone: without it the logs of topics are nobody's. Raises ConfigError."""
        path = self._directory.log_path(CLUSTER_METADATA)
        if orphans and not self._disk.exists(path):
            raise ConfigError(
                f"{path} is missing, and with it all that is known of the {len(orphans)} logs beside it, {orphans[0]} "
                "the first: is a disk not mounted, or metadata.log.dir another? Put it back, or name an empty directory"
            )

    def open(self, *, now_ms: int, has_run: bool = False) -> OpenedMetadata:
        """Open the log, and read the latest snapshot and the state of the voter.

        What is lost is noted, synced, before anything is made in its place: whenever the node ends, the next start
        knows of it.

        Args:
            has_run: whether there are other files of this node that tell so.

        Raises:
            CorruptLogError: as `Log.open`, where committed metadata lies behind damage, and where what lies below the
                log start is in no snapshot that can be read.
            DiskError: the disk refused.
        """
        state = self._resolve_state(has_run=has_run)
        log = self._open_log(now_ms=now_ms)
        try:
            snapshots = MetadataSnapshots(log.directory, disk=self._disk)
            snapshots.look()
            snapshot = self._read_latest(snapshots, log)
            self._resolve_start(log, snapshots, snapshot)
            self._directory.checkpoints.on_shorter(log)
            log.flush()  # what a process that was killed had written may not have been synced; from now on it counts
        except CorruptLogError:
            del self._directory.logs[CLUSTER_METADATA]
            log.release()
            raise
        return OpenedMetadata(
            log, snapshots, snapshot, state, self._directory.directory_id, self._directory.checkpoints
        )

    def _resolve_state(self, *, has_run: bool) -> QuorumState:
        """What the voter must not forget, with the mark of a loss if something of it, or the log, is not there.

        Raises CorruptLogError: the file cannot be read; DiskError.
        """
        state, path = self.read_quorum_state(), self._directory.log_path(CLUSTER_METADATA)
        names = self._disk.list(path) if self._disk.exists(path) else []
        segments = [name for name in names if any(parse_file_name(name, each) is not None for each in SEGMENT_SUFFIXES)]
        loss = None
        if state is None:
            has_records = any(self._disk.read_bytes(f"{path}/{name}") for name in segments)
            if self._directory.has_quorum_state or has_run or has_records:
                loss = f"{self._quorum_state_path}, which says for whom this node voted, is gone"
                state = replace(NOTHING_VOTED, has_records=bool(segments))
        elif state.has_records and not segments:
            loss = f"the metadata log in {path} is gone"
        if loss is not None and not segments:
            self._forget_log(path, names)
        if state is None or loss is not None:
            state = replace(state or NOTHING_VOTED, is_lost=loss is not None)
            self._disk.make_dirs(path)
            self.write_quorum_state(state)
            self._disk.sync_dir(self._directory.path)
        self._directory.note_quorum_state()
        if state.is_lost:
            logger.error(
                "%s: what this node kept for the metadata quorum is LOST%s. It neither votes nor stands for election "
                "until it has what the other voters commit from now on, and only follows their leader meanwhile. If "
                "nobody is elected, put back what is gone, with this node stopped, or see docs/cluster.md, When the "
                "metadata log is lost",
                *(path, "" if loss is None else f": {loss}"),
            )
        return state

    def _forget_log(self, path: str, names: Iterable[str]) -> None:
        """What speaks of records that are not there is in the way of those to come. Snapshots stand for themselves."""
        self._directory.checkpoints.forget_metadata_log()
        for name in names:
            if name == LINEAGE_FILE or any(parse_file_name(name, each) is not None for each in INDEX_SUFFIXES):
                self._disk.remove(f"{path}/{name}")

    def _read_latest(self, snapshots: MetadataSnapshots, log: Log) -> Snapshot | None:
        """The latest that can be read. An older one does where the log still has all that came after it."""
        error: CorruptLogError | None = None
        for snapshot_id in reversed(snapshots.ids):
            if error is not None and snapshot_id.end_offset < log.log_start_offset:
                break
            try:
                return snapshots.read(snapshot_id)
            except CorruptLogError as found:
                error = error or found
                snapshots.forget(snapshot_id)
                logger.warning("%s; an older one will do if the log reaches back to it", found)
        if error is not None and log.log_start_offset > 0:
            raise CorruptLogError(f"{error}; put back a copy of this directory that is whole") from error
        if log.log_start_offset > 0:
            raise CorruptLogError(
                f"{log.directory}: the metadata log starts at offset {log.log_start_offset}, and there is no snapshot "
                "of what lies before; put back a copy of this directory that is whole"
            )
        return None

    def _resolve_start(self, log: Log, snapshots: MetadataSnapshots, snapshot: Snapshot | None) -> None:
        """The log starts at the oldest snapshot, or, where the latest was to replace it, at the end of that."""
        if snapshot is None:
            return
        snapshot_id = snapshot.snapshot_id
        if not QuorumLog(log.log_start_offset, log.log_end_offset, log.lineage).continues(snapshot_id):
            logger.info("%s: the log starts anew behind the snapshot up to %d", log.directory, snapshot_id.end_offset)
            self._directory.checkpoints.start_anew(log, snapshot_id.end_offset)
            log.assign_leader_epoch(snapshot_id.leader_epoch)
        log.advance_log_start_offset(max(log.log_start_offset, snapshots.ids[0].end_offset))

    def _open_log(self, *, now_ms: int) -> Log:
        """Raises CorruptLogError: as `Log.open`, and where committed metadata is gone or damaged; and DiskError."""
        path = self._directory.log_path(CLUSTER_METADATA)
        lost = lost_segments(self._disk.list(path)) if self._disk.exists(path) else []
        if lost:
            raise CorruptLogError(
                f"{path}: the file of metadata from offset {lost[0]} on is gone, its index is there. Put back a copy "
                "of the directory; or, where other voters have it all, remove it: this node then learns it from them"
            )
        log = self._directory.open_log(CLUSTER_METADATA, METADATA_LOG_CONFIG, topic_id=None, now_ms=now_ms)
        try:
            self._check_nothing_committed_was_truncated(log)
        except CorruptLogError:
            del self._directory.logs[CLUSTER_METADATA]
            log.release()
            raise
        return log

    def _check_nothing_committed_was_truncated(self, log: Log) -> None:
        """Every batch of metadata is synced before it counts: a whole one behind damage may have been committed.

        To go on without it would forget topics, and give their offsets, and tokens, to others. But where the damage is
        that of a page which was never synced, what lies behind was not synced either, and counted for nobody.
        """
        self._remove_unsynced(log)
        for name in self._disk.list(log.directory):
            path = f"{log.directory}/{name}"
            if TRUNCATED_SUFFIX in name and holds_whole_batch(self._disk.read_bytes(path), log.log_end_offset):
                raise CorruptLogError(
                    f"{log.directory}: damaged at offset {log.log_end_offset}, committed metadata behind the damage "
                    f"(set aside in {name}). Put back a copy of the directory; or, to go on without what was committed "
                    f"since (topics made since are then set aside as strays), move {name} elsewhere and start again"
                )

    def read_quorum_state(self) -> QuorumState | None:
        """What this voter must not forget; None if there is no such file. Raises CorruptLogError."""
        path = self._quorum_state_path
        return parse_quorum_state(self._disk.read_bytes(path), path=path) if self._disk.exists(path) else None

    def _remove_unsynced(self, log: Log) -> None:
        truncation = log.recovery.truncation
        if truncation is None:
            return
        tail = f"{log.directory}/{file_name(truncation.end_offset, TRUNCATED_SUFFIX)}"
        if tail in truncation.kept_as and is_unsynced(self._disk.read_bytes(tail), truncation.position):
            logger.warning("%s: what was cut off was never synced, and nobody was told of it", log.directory)
            for path in truncation.kept_as:
                self._disk.remove(path)

    def read_first_metadata(self) -> FirstMetadata:
        """What a new cluster begins with. Raises CorruptLogError, DiskError."""
        return read_first_metadata(self._disk, self._directory.path)

    def write_quorum_state(self, state: QuorumState) -> None:
        """Return once it would survive a loss of power."""
        self._disk.write_atomically(self._quorum_state_path, format_quorum_state(state))

    @property
    def _quorum_state_path(self) -> str:
        return f"{self._directory.log_path(CLUSTER_METADATA)}/quorum-state"
