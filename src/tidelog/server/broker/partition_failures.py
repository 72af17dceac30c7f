"""What fails under the partitions of a broker: a disk, a log, or what must hold of them.

A partition that fails goes offline, and the others serve on. A disk that is merely full takes nothing offline: what is
there is served, and the next append may find room. Nor does a node that may not open another file. A probe of the disk,
off the loop, says whether its whole directory has failed; then all that lies there goes offline.

Kafka: `LogDirFailureHandler`, `LogDirFailureChannel`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from tidelog.base.errors import CorruptLogError, DiskError, InvariantBrokenError
from tidelog.base.ports import Executor
from tidelog.server.broker.hosted_partitions import HostedPartitions
from tidelog.server.broker.listeners import BrokerListener
from tidelog.server.replication.partition import Partition
from tidelog.server.storage.disk_health import is_full, is_passing
from tidelog.server.storage.log_dir import LogDir
from tidelog.server.storage.log_files import LogFiles
from tidelog.server.tasks import Tasks

logger = logging.getLogger("tidelog.server.broker")

OUT_OF_FILES_LOGGED_SECONDS = 60.0
"""Of many such errors, one is logged in so long."""


class PartitionFailures:
    """See the module. Of a partition that is not here any more nothing is heard.

    Args:
        hosted: the partitions.
        files: their logs, and the directories where these lie.
        listener: told of a directory that failed.
        on_failed: told when the node has to stop: the metadata log was in that directory, or none is left.
    """

    def __init__(
        self,
        hosted: HostedPartitions,
        files: LogFiles,
        listener: BrokerListener,
        *,
        executor: Executor,
        tasks: Tasks,
        on_failed: Callable[[str], None],
    ) -> None:
        self._hosted = hosted
        self._files = files
        self._listener = listener
        self._executor = executor
        self._on_failed = on_failed
        self._out_of_files_logged: float | None = None
        self._probed: set[LogDir] = set()
        self._probes = tasks.branch("probes of directories")

    # What happened.
    def on_disk_error(self, partition: Partition, error: DiskError) -> None:
        """The disk failed under a partition: it goes offline, unless the next try may go well."""
        if not self._hosted.is_here(partition):
            return
        held = self._files.directory_of(partition.topic_partition)
        if held is not None and is_passing(error) and partition.log.segments.failure is None:
            if is_full(error):
                held.health.on_full()
            else:
                self._log_out_of_files(partition, error)
            return
        self._hosted.take_offline(partition.topic_partition, str(error))
        if held is not None:
            self.on_suspicion(held)

    def on_not_led(self, partition: Partition, error: CorruptLogError | DiskError) -> bool:
        """It is to be led here, and where its epoch starts could not be noted. Returns whether to try again."""
        self.on_log_failed(partition, error)
        return self._hosted.is_here(partition)

    def _log_out_of_files(self, partition: Partition, error: DiskError) -> None:
        now = asyncio.get_running_loop().time()
        if self._out_of_files_logged is None or now >= self._out_of_files_logged + OUT_OF_FILES_LOGGED_SECONDS:
            self._out_of_files_logged = now
            logger.error("%s: what was refused is tried again: %s", partition.topic_partition, error)

    def on_read_error(self, partition: Partition) -> None:
        """Some place could not be read, which was refused. Whether it is more than that place, the disk is asked."""
        held = self._files.directory_of(partition.topic_partition)
        if held is not None:
            self.on_suspicion(held)

    def on_suspicion(self, directory: LogDir) -> None:
        """The disk refused something: probe it off the loop, to learn whether it still works at all."""
        if directory.failure is None and directory not in self._probed:
            self._probed.add(directory)
            self._probes.start(self._probe(directory))

    def on_log_failed(self, partition: Partition, error: CorruptLogError | DiskError) -> None:
        """The log of a follower cannot be written any more, or not for want of room."""
        if isinstance(error, DiskError):
            self.on_disk_error(partition, error)
        elif self._hosted.is_here(partition):
            self._hosted.take_offline(partition.topic_partition, str(error))

    def on_bug(self, partition: Partition, error: InvariantBrokenError) -> None:
        """What must hold of a partition does not: it stops, before it does more harm."""
        if self._hosted.is_here(partition):
            self._hosted.take_offline(partition.topic_partition, f"a bug in Tidelog: {error}")

    # What is known.
    def has_room(self, partition: Partition) -> bool:
        """Whether the disk under a partition is not known to be full."""
        held = self._files.directory_of(partition.topic_partition)
        return held is None or not held.health.is_known_full

    async def stop(self) -> None:
        """Probe nothing more."""
        await self._probes.end()

    async def _probe(self, directory: LogDir) -> None:
        try:
            refused = await self._executor.run(directory.health.probe)
        finally:
            self._probed.discard(directory)
        if refused is not None and directory.failure is None:
            self._fail_directory(directory, str(refused))

    def _fail_directory(self, directory: LogDir, reason: str) -> None:
        """All that lies in it goes offline. The rest serves on, unless the metadata log was there or none is left."""
        self._files.on_directory_failed(directory, reason)
        for topic_partition in list(directory.logs):
            if topic_partition in self._hosted.by_name:
                self._hosted.take_offline(
                    topic_partition, f"log directory {directory.path} failed: {reason}", is_alone=False
                )
        self._listener.on_directory_failed()
        if self._files.must_stop:
            self._on_failed(f"log directory {directory.path} failed: {reason}")
