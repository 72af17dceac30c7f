"""The files of the metadata log: the log itself, and what its voter must not forget."""

from __future__ import annotations

from tidelog.base.errors import ConfigError, CorruptLogError
from tidelog.base.ids import CLUSTER_METADATA, TopicPartition
from tidelog.base.ports import Disk
from tidelog.log import Log, LogConfig
from tidelog.log.continuity import holds_whole_batch
from tidelog.log.recovery import CUT_SUFFIX
from tidelog.quorum import QuorumState, format_quorum_state, parse_quorum_state
from tidelog.server.held_directory import HeldDirectory

METADATA_BATCH_SIZE_BYTES_MAX = 256 << 20
"""A decision is one batch, however many partitions it is about (30,000 that change hands take 1 MiB)."""
METADATA_LOG_CONFIG = LogConfig(
    retention_ms=None, message_timestamp_after_ms_max=None, message_size_bytes_max=METADATA_BATCH_SIZE_BYTES_MAX
)


class MetadataFiles:
    """`__cluster_metadata-0`, in whichever directory it lies."""

    def __init__(self, directory: HeldDirectory, *, disk: Disk) -> None:
        self._directory = directory
        self._disk = disk

    def check_not_gone(self, orphans: list[TopicPartition]) -> None:
        """Without it the logs of topics are nobody's. Raises ConfigError."""
        path = self._directory.log_path(CLUSTER_METADATA)
        if orphans and not self._disk.exists(path):
            raise ConfigError(
                f"{path} is missing, and with it all that is known of the {len(orphans)} logs beside it, {orphans[0]} "
                "the first: is a disk not mounted, or metadata.log.dir another? Put it back, or name an empty directory"
            )

    def open_log(self, *, now_ms: int) -> Log:
        """Raises CorruptLogError: as `Log.open`, and where committed metadata lies behind damage; and DiskError."""
        log = self._directory.open_log(CLUSTER_METADATA, METADATA_LOG_CONFIG, topic_id=None, now_ms=now_ms)
        try:
            self._check_nothing_committed_was_cut(log)
        except CorruptLogError:
            del self._directory.logs[CLUSTER_METADATA]
            log.release()
            raise
        return log

    def _check_nothing_committed_was_cut(self, log: Log) -> None:
        """Every batch of metadata is synced before it counts: a whole one behind damage was committed.

        To go on without it would forget topics, and give their offsets, and tokens, to others.
        """
        for name in self._disk.list(log.directory):
            path = f"{log.directory}/{name}"
            if CUT_SUFFIX in name and holds_whole_batch(self._disk.read_bytes(path), log.log_end_offset):
                raise CorruptLogError(
                    f"{log.directory}: damaged at offset {log.log_end_offset}, committed metadata behind the damage "
                    f"(set aside in {name}). Put back a copy of the directory; or, to go on without what was committed "
                    f"since (topics made since are then set aside as strays), move {name} elsewhere and start again"
                )

    def read_quorum_state(self) -> QuorumState | None:
        """What this voter must not forget; None on the first start. Raises CorruptLogError."""
        path = self._quorum_state_path
        return parse_quorum_state(self._disk.read_bytes(path), path=path) if self._disk.exists(path) else None

    def write_quorum_state(self, state: QuorumState) -> None:
        """Return once it would survive a loss of power."""
        self._disk.write_atomically(self._quorum_state_path, format_quorum_state(state))

    @property
    def _quorum_state_path(self) -> str:
        return f"{self._directory.log_path(CLUSTER_METADATA)}/quorum-state"
