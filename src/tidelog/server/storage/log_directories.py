"""Which of the configured directories a node may use at its start: whose they are, and what keeps one from use.

A directory of another node, of another cluster or in use by another process refuses the start: somebody has to decide.
One that cannot be read, or that is empty or missing though others are formatted (a disk that was not mounted?), is
left out, and the others serve; but for that of the metadata log.

Kafka: `MetaPropertiesEnsemble`.
"""

from __future__ import annotations

import errno
import logging
from dataclasses import replace
from uuid import UUID

from tidelog.base.errors import ConfigError, DiskError
from tidelog.base.ids import BrokerId, ClusterId, parse_uuid, uuid_text
from tidelog.base.ports import Disk, Rng
from tidelog.log.directory import LOCK_FILE, LogDirectory
from tidelog.log.files.checkpoint import MetaProperties
from tidelog.log.files.replica_list import REPLICA_LIST_FILE
from tidelog.log.run_files import CLEAN_SHUTDOWN_FILE, INCARNATION_FILE, STOPPED_FILE
from tidelog.server.storage.disk_health import PROBE_FILE
from tidelog.server.storage.log_dir import LogDir

logger = logging.getLogger("tidelog.server.log_files")

OWN_FILES = {
    LOCK_FILE,
    CLEAN_SHUTDOWN_FILE,
    STOPPED_FILE,
    INCARNATION_FILE,
    REPLICA_LIST_FILE,
    PROBE_FILE,
    f"{PROBE_FILE}.tmp",
    "lost+found",
}
"""What an empty directory may hold."""
FORMAT = "tidelog storage format --cluster-id ID --config-file FILE"


class LogDirectories:
    """The directories of one node, as they are found; see `open`.

    Attributes:
        cluster_id: whose they are.
        held: those in use, by their paths.
        left_out: why each of the others is not.
    """

    def __init__(self, node_id: BrokerId, *, disk: Disk, rng: Rng) -> None:
        self.cluster_id = ClusterId("")
        self.log_dir: dict[str, LogDir] = {}
        self.left_out: dict[str, str] = {}
        self._node_id = node_id
        self._disk = disk
        self._rng = rng
        self._locked: dict[str, LogDirectory] = {}
        self._refused: dict[str, DiskError] = {}

    def open(self, paths: tuple[str, ...], metadata_path: str, *, is_alone: bool = True) -> None:
        """Take the directories into use, formatting them if none is yet and this node is alone in its cluster.

        Args:
            is_alone: nobody else can know the id of the cluster, so this node may make one up.

        Raises:
            ConfigError: a directory is another node's or cluster's, or holds something that is not ours; none is
                formatted, and this node is not alone.
            CorruptLogError: its meta.properties cannot be read, or is of another release.
            DiskError: another process uses one, or the disk refused where that cannot be borne.
        """
        every_path = list(dict.fromkeys([*paths, metadata_path]))
        found = {path: self._look_at(path) for path in every_path}
        formatted = {path: properties for path, properties in found.items() if properties is not None}
        if metadata_path in self._refused:
            raise self._refused[metadata_path]
        if not formatted and self._refused:
            raise next(iter(self._refused.values()))
        self._check_one_owner(formatted)
        if not formatted and not is_alone:
            raise ConfigError(
                f"{metadata_path} is not formatted, and node {self._node_id} is one of several, whose cluster has an "
                f"id already. If this node is new: {FORMAT}, with the same id at every node. If it had a directory, "
                f"put that back (is a disk not mounted?); where it is lost: {FORMAT} --lost, else the node could vote "
                "a second time in an epoch"
            )
        self.cluster_id = next(
            (properties.cluster_id for properties in formatted.values()), ClusterId(uuid_text(self._rng.uuid()))
        )
        for path in every_path:
            properties = formatted.get(path)
            if path in self._refused:
                self._leave_out(path, f"{self._refused[path]}: repair or replace the disk, then start again")
            elif properties is None and formatted and path != metadata_path:
                other = next(iter(formatted))
                self._leave_out(
                    path,
                    f"it is empty, though {other} is in use: is a disk not mounted? Mount it and start again; a new "
                    "one has to be formatted first: tidelog storage format --ignore-formatted "
                    f"--cluster-id {self.cluster_id} --config-file FILE",
                )
            else:
                try:
                    self._hold(path, properties, is_replaced=bool(formatted))
                except DiskError as error:
                    if path == metadata_path or error.errno == errno.EAGAIN:
                        raise
                    self._leave_out(path, f"{error}: repair or replace the disk, then start again")
        if not any(path in self.log_dir for path in paths):
            raise DiskError(paths[0], f"no log directory can be used: {self.left_out[paths[0]]}")

    def close(self) -> None:
        """Let another process have them."""
        for directory in self._locked.values():
            directory.close()

    def _look_at(self, path: str) -> MetaProperties | None:
        """Lock a directory that is there, and read whose it is; None for an empty one."""
        try:
            if not self._disk.exists(path):
                return None
            directory = self._locked[path] = LogDirectory.open(self._disk, path)
            properties = directory.read_meta_properties()
            if properties is None and set(self._disk.list(path)) - OWN_FILES:
                raise ConfigError(
                    f"{path} is neither empty nor formatted: name an empty directory, "
                    "or put back the meta.properties that was here"
                )
        except DiskError as error:
            if error.errno == errno.EAGAIN:  # another process has it
                raise
            self._refused[path] = error
            return None
        return properties

    def _check_one_owner(self, formatted: dict[str, MetaProperties]) -> None:
        clusters: dict[ClusterId, str] = {}
        ids: dict[str, str] = {}
        for path, properties in formatted.items():
            if properties.node_id != self._node_id:
                raise ConfigError(
                    f"{path} belongs to node {properties.node_id}, this is node {self._node_id}: "
                    "correct node.id, or name another directory"
                )
            clusters.setdefault(properties.cluster_id, path)
            if len(clusters) > 1:
                (cluster_id, first), *_ = clusters.items()
                raise ConfigError(
                    f"{path} belongs to cluster {properties.cluster_id}, the other log directory {first} to cluster "
                    f"{cluster_id}: name directories of one cluster"
                )
            if properties.directory_id and ids.setdefault(properties.directory_id, path) != path:
                raise ConfigError(
                    f"{path} and {ids[properties.directory_id]} have the same directory.id: one is a copy of the "
                    "other; take one of them out of log.dirs"
                )

    def _hold(self, path: str, properties: MetaProperties | None, *, is_replaced: bool) -> None:
        """`is_replaced`: if it is empty, then it is so in place of one that is gone, for the node has others."""
        directory = self._locked.get(path)
        if directory is None:
            directory = self._locked[path] = LogDirectory.open(self._disk, path)
        directory_id = None if properties is None else _directory_uuid(properties)
        if properties is None:
            logger.info("%s: formatted for node %s of cluster %s", path, self._node_id, self.cluster_id)
            directory_id = self._rng.uuid()
            properties = MetaProperties(self.cluster_id, self._node_id, uuid_text(directory_id))
            directory.format(replace(properties, has_quorum_state=is_replaced))
        elif directory_id is None:
            directory_id = self._rng.uuid()
            directory.write_meta_properties(replace(properties, directory_id=uuid_text(directory_id)))
        self.log_dir[path] = LogDir(directory, directory_id, disk=self._disk, rng=self._rng)

    def _leave_out(self, path: str, reason: str) -> None:
        self.left_out[path] = reason
        logger.error("log directory %s is left out, and what lies in it is offline: %s", path, reason)


def _directory_uuid(properties: MetaProperties) -> UUID | None:
    """None where it says none, as before Kafka 3.7."""
    try:
        return parse_uuid(properties.directory_id)
    except ValueError:
        return None
