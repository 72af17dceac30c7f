"""What one log directory shows of the run before this one, and is told of this one.

Kafka: `CleanShutdownFileHandler`; what shows more than a clean stop does is Tidelog's.
"""

from __future__ import annotations

import logging

from tidelog.base.errors import DiskError
from tidelog.base.ids import BrokerEpoch, TopicPartition
from tidelog.base.ports import Disk
from tidelog.log.files.incarnation import NOTHING, Incarnation
from tidelog.log.run_files import RunFiles
from tidelog.server.storage.disk_health import is_full

logger = logging.getLogger("tidelog.server.log_files")


class RunEvidence:
    """See the module. On the executor's threads.

    Attributes:
        was_clean: how the last stop went.
        previous: who wrote here before this run, if nothing of that can be lost: it stopped cleanly, or the machine
            runs on.
        failed_logs: those that are not to be trusted; while there are any, nothing is shown of this run.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self.was_clean = False
        self.previous = NOTHING
        self.failed_logs: set[TopicPartition] = set()
        self._files = RunFiles(disk, path)
        self._path = path

    def take_clean_shutdown(self) -> None:
        """Learn how the last stop went; from now on a crash is one."""
        self.was_clean, broker_epoch = self._files.take_clean_shutdown()
        self.previous = Incarnation(broker_epoch) if self.was_clean else self._files.read_incarnation()

    def write_registering(self, incarnation: Incarnation) -> None:
        """Say who is about to register; synced when it returns.

        Where there is no room for that, the last note stays: who is killed before it serves has written nothing here.

        Raises:
            DiskError: as `write_incarnation`.
        """
        try:
            if not self.failed_logs:
                self._files.write_registering(incarnation)
                return
        except DiskError as error:
            logger.error("%s: who is about to register cannot be noted: %s", self._path, error)
            if is_full(error):
                return
        self._files.forget_incarnation()

    def write_incarnation(self, incarnation: Incarnation) -> None:
        """Say who writes here from now on; synced when it returns.

        Nobody does where a log failed: what that one holds would be shown as well. Nor where the disk refuses the note.

        Raises:
            DiskError: it keeps the last note, too, which must not count after the next crash.
        """
        try:
            if not self.failed_logs:
                self._files.write_incarnation(incarnation)
                return
        except DiskError as error:
            logger.error("%s: after a crash what lies there counts as lost: %s", self._path, error)
        self._files.forget_incarnation()

    def forget_incarnation(self) -> None:
        """After an error of the disk nobody knows what of the last writes it has, though the machine runs on."""
        try:
            self._files.forget_incarnation()
        except DiskError as error:
            logger.warning("%s: %s", self._path, error)

    def mark_clean_shutdown(self, broker_epoch: BrokerEpoch) -> None:
        """All that is here is closed and checkpointed. Says nothing where a log failed. Raises DiskError."""
        if not self.failed_logs:
            self._files.mark_clean_shutdown(broker_epoch)
