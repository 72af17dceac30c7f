"""A node's log directory: one directory for each partition, and the files that speak of all of them.

.lock                              held while a node uses the directory
meta.properties                    whose it is
.kafka_cleanshutdown               there if the last stop was a clean one
.tidelog_stopped                   the marker of a clean stop after the next start, until that run serves
.tidelog_incarnation               which broker epoch writes here, and in which run of the machine
.tidelog_replicas                  whose logs lie here: what is listed and not there is lost
recovery-point-offset-checkpoint   up to where each log is synced
replication-offset-checkpoint      the high watermarks
log-start-offset-checkpoint        where each log starts: a log whose first segment lies above has lost its beginning
flights-0/                         partition 0 of the topic `flights`
flights-0.<32 hex digits>-delete/  one that is to be removed
flights-0.<32 hex digits>-stray/   one that the metadata does not assign to this node
flights-0.<32 hex digits>-future/  one that is being made, and is to be the copy of one in another directory

Kafka: `LogManager`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import replace

from tidelog.base.errors import CorruptLogError
from tidelog.base.ids import Offset, PartitionIndex, TopicId, TopicPartition
from tidelog.base.ports import Disk, Lock, Rng
from tidelog.log.files.checkpoint import (
    MetaProperties,
    format_meta_properties,
    format_offsets,
    format_partition_metadata,
    parse_meta_properties,
    parse_offsets,
    parse_partition_metadata,
)
from tidelog.log.files.future_mark import FUTURE_MARK_FILE, FutureMark, format_future_mark
from tidelog.log.files.lineage_file import LINEAGE_FILE
from tidelog.log.files.replica_list import REPLICA_LIST_FILE, ListedReplica, format_replica_list, parse_replica_list
from tidelog.log.recovery import PARTITION_METADATA_FILE
from tidelog.log.segment import LOG_SUFFIX, parse_file_name

LOCK_FILE = ".lock"
META_PROPERTIES_FILE = "meta.properties"
RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
"""Without it recovery reads more than it would have to."""
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
"""Without it a high watermark starts at its log's start."""
LOG_START_OFFSET_FILE = "log-start-offset-checkpoint"
"""Without it a log starts at its first segment, whichever that is. Written before segments below a new start go."""
DELETE_SUFFIX = "-delete"
FUTURE_SUFFIX = "-future"
STRAY_SUFFIX = "-stray"
NAME_SIZE_MAX = 255
"""What file systems allow; Kafka cuts a topic's name to fit before `.<32 hex digits>-delete`."""


def parse_directory_name(name: str) -> TopicPartition | None:
    """The partition whose log a directory of this name holds; None if it is no log's, or one that is to be removed."""
    topic, dash, partition = name.rpartition("-")
    if not topic or not dash or not (partition.isascii() and partition.isdigit()) or name.startswith("."):
        return None
    return TopicPartition(topic, PartitionIndex(int(partition)))


def _has_unique_suffix(name: str, suffix: str) -> bool:
    """Whether this class, or Kafka, named it. Somebody's own `to-delete` is not ours to remove."""
    unique = name.removesuffix(suffix).rpartition(".")[2]
    return name.endswith(suffix) and len(unique) == 32 and set(unique) <= set("0123456789abcdef")


class LogDirectory:
    """One log directory, held by this process. See `open`.

    Attributes:
        path: of the directory.
        faults: what could not be read since, and was taken for missing: for the node to log.
    """

    def __init__(self, disk: Disk, path: str, lock: Lock) -> None:
        """Made by `open`."""
        self._disk = disk
        self._lock = lock
        self.path = path
        self.faults: list[str] = []

    @staticmethod
    def open(disk: Disk, path: str) -> LogDirectory:
        """Take a directory into use, making it if it is missing.

        Raises:
            DiskError: another process uses it, or the disk refused.
        """
        disk.make_dirs(path)
        return LogDirectory(disk, path, disk.lock(f"{path}/{LOCK_FILE}"))

    def close(self) -> None:
        """Let another process have it."""
        self._lock.release()

    # Whose it is.

    def read_meta_properties(self) -> MetaProperties | None:
        """None for a directory that was never formatted. Raises `CorruptLogError`, saying what to do."""
        path = f"{self.path}/{META_PROPERTIES_FILE}"
        return parse_meta_properties(self._disk.read_bytes(path), path) if self._disk.exists(path) else None

    def format(self, properties: MetaProperties) -> None:
        """Say whose an empty directory is. Nothing lies in it."""
        self.write_replica_list((), ())
        self.write_meta_properties(replace(properties, has_replica_list=True))

    def write_meta_properties(self, properties: MetaProperties) -> None:
        """Replace the file; synced when this returns."""
        self._disk.write_atomically(f"{self.path}/{META_PROPERTIES_FILE}", format_meta_properties(properties))

    # Which replicas it has.

    def read_replica_list(self) -> tuple[Set[ListedReplica], Set[ListedReplica]] | None:
        """All, and those that were found to have lost records.

        None if the file is missing or cannot be read: whatever is not here may have been lost.
        """
        path = f"{self.path}/{REPLICA_LIST_FILE}"
        if not self._disk.exists(path):
            return None
        try:
            return parse_replica_list(self._disk.read_bytes(path), path)
        except CorruptLogError as error:
            self.faults.append(str(error))
            return None

    def write_replica_list(self, lines: Collection[str], found_lost: Collection[ListedReplica]) -> None:
        """Replace the file; synced when this returns.

        Args:
            lines: of the replicas that are not lost (`entry_lines`).
        """
        self._disk.write_atomically(f"{self.path}/{REPLICA_LIST_FILE}", format_replica_list(lines, found_lost))

    # Checkpoints.

    def read_offsets(self, name: str) -> dict[TopicPartition, Offset]:
        """What the file of this name says. Empty if it is missing or cannot be read: see each name for what follows."""
        path = f"{self.path}/{name}"
        if not self._disk.exists(path):
            return {}
        try:
            return parse_offsets(self._disk.read_bytes(path), path)
        except CorruptLogError as error:
            self.faults.append(str(error))
            return {}

    def write_offsets(self, name: str, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Replace the file of this name; all partitions have to be named."""
        self._disk.write_atomically(f"{self.path}/{name}", format_offsets(offsets))

    # Logs.

    def log_path(self, topic_partition: TopicPartition) -> str:
        """Where the log of a partition is, or would be."""
        return f"{self.path}/{topic_partition}"

    def partitions(self) -> list[TopicPartition]:
        """The partitions whose logs are here, sorted. Whether the metadata still assigns them is not known here."""
        found = (parse_directory_name(name) for name in self._disk.list_directories(self.path))
        return sorted(each for each in found if each is not None)

    def is_log(self, topic_partition: TopicPartition) -> bool:
        """Whether there are files of ours in a directory with the name of a log: not every `backup-2024` is one."""
        path = self.log_path(topic_partition)
        if self._disk.exists(f"{path}/{PARTITION_METADATA_FILE}"):
            return True
        names = self._disk.list(path)
        return LINEAGE_FILE in names or any(parse_file_name(name, LOG_SUFFIX) is not None for name in names)

    def is_unmade_log(self, topic_partition: TopicPartition) -> bool:
        """Whether a log was being made in a directory with the name of one, and nothing was written to it."""
        return set(self._disk.list(self.log_path(topic_partition))) <= {f"{PARTITION_METADATA_FILE}.tmp"}

    def remove_unmade_log(self, topic_partition: TopicPartition) -> None:
        """Remove such a directory."""
        self._disk.remove_tree(self.log_path(topic_partition))

    def topic_id_in(self, path: str) -> TopicId | None:
        """Of the topic that a log's directory belongs to, if it says so. Raises `CorruptLogError`."""
        file = f"{path}/{PARTITION_METADATA_FILE}"
        return parse_partition_metadata(self._disk.read_bytes(file), file) if self._disk.exists(file) else None

    def mark_for_deletion(self, topic_partition: TopicPartition, rng: Rng) -> str:
        """Rename a log's directory, so that it is gone for every start to come. Returns the new path.

        Its files are to be removed by `remove_marked`, which may take long. The log is to be released before.
        """
        return self._rename(self.log_path(topic_partition), topic_partition, DELETE_SUFFIX, rng)

    def set_aside(self, topic_partition: TopicPartition, rng: Rng) -> str:
        """Rename a log's directory, so that it is a stray. Returns the new path."""
        return self._rename(self.log_path(topic_partition), topic_partition, STRAY_SUFFIX, rng)

    def strays(self) -> list[tuple[str, TopicPartition]]:
        """The directories that were set aside, with their partitions; a long name of a topic may be cut short."""
        found = []
        for name in self._disk.list(self.path):
            if _has_unique_suffix(name, STRAY_SUFFIX):
                topic_partition = parse_directory_name(name.removesuffix(STRAY_SUFFIX).rpartition(".")[0])
                if topic_partition is not None:
                    found.append((f"{self.path}/{name}", topic_partition))
        return found

    def mark_stray_for_deletion(self, path: str, topic_partition: TopicPartition, rng: Rng) -> str:
        """As `mark_for_deletion`, of a directory that was set aside."""
        return self._rename(path, topic_partition, DELETE_SUFFIX, rng)

    def _rename(self, path: str, topic_partition: TopicPartition, suffix: str, rng: Rng) -> str:
        renamed = self._unique_path(topic_partition, suffix, rng)
        self._disk.rename(path, renamed)
        self._disk.sync_dir(self.path)
        return renamed

    def remove_marked(self) -> int:
        """Remove the directories that are to be removed, those of earlier runs included. Returns how many.

        May take long: call it on another thread.
        """
        marked = [name for name in self._disk.list(self.path) if _has_unique_suffix(name, DELETE_SUFFIX)]
        for name in marked:
            self._disk.remove_tree(f"{self.path}/{name}")
        return len(marked)

    def make_future(self, topic_partition: TopicPartition, topic_id: TopicId, rng: Rng) -> str:
        """Make the directory of a copy: there at once with what says that it is one. Returns its path.

        Raises:
            DiskError: it is not there.
        """
        path = self._unique_path(topic_partition, FUTURE_SUFFIX, rng)
        self._disk.make_dirs(path)
        self._disk.write_all_atomically(
            {
                f"{path}/{PARTITION_METADATA_FILE}": format_partition_metadata(topic_id),
                f"{path}/{FUTURE_MARK_FILE}": format_future_mark(FutureMark.COPYING),
            }
        )
        self._disk.rename(path, self.log_path(topic_partition))
        self._disk.sync_dir(self.path)
        return self.log_path(topic_partition)

    def remove_unmade(self) -> None:
        """Remove what `make_future` did not come to an end with. Before anybody calls that."""
        for name in self._disk.list(self.path):
            if _has_unique_suffix(name, FUTURE_SUFFIX) and self._is_unmade(name):
                self._disk.remove_tree(f"{self.path}/{name}")

    def _is_unmade(self, name: str) -> bool:
        """Whether `make_future` did not come to its end there. Kafka's own copies have other files."""
        ours = {PARTITION_METADATA_FILE, FUTURE_MARK_FILE}
        return {each.removesuffix(".tmp") for each in self._disk.list(f"{self.path}/{name}")} <= ours

    def _unique_path(self, topic_partition: TopicPartition, suffix: str, rng: Rng) -> str:
        suffix = f".{rng.uuid().hex}{suffix}"
        partition = f"-{topic_partition.partition}"
        topic = topic_partition.topic[: NAME_SIZE_MAX - len(suffix) - len(partition)]
        return f"{self.path}/{topic}{partition}{suffix}"
