"""What all log directories of a node show together of who wrote in them, and are told of this run.

Kafka: `LogManager.readBrokerEpochFromCleanShutdownFiles`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from tidelog.base.errors import DiskError
from tidelog.base.ids import BrokerEpoch
from tidelog.base.ports import Executor
from tidelog.log.files.incarnation import NOTHING, Incarnation, incarnation_of_all
from tidelog.server.storage.run_evidence import RunEvidence

if TYPE_CHECKING:
    from tidelog.server.storage.log_files import LogFiles


class Incarnations:
    """See the module; each directory's own is its `RunEvidence`."""

    def __init__(self, files: LogFiles, *, executor: Executor) -> None:
        self._files = files
        self._executor = executor

    @property
    def previous(self) -> Incarnation:
        """Who wrote in the directories before this run, if nothing of that can be lost in any of them."""
        if self._files.left_out:
            return NOTHING
        found = incarnation_of_all(
            [each.evidence.previous if each.failure is None else NOTHING for each in self._files.directories]
        )
        if found.registers is not None and not found.directory_ids <= set(self._files.directory_ids):
            return Incarnation(found.broker_epoch)  # what it would be told may count on one that is gone
        return found

    @property
    def previous_broker_epoch(self) -> BrokerEpoch | None:
        """The broker epoch of the last run, if nothing that it wrote in any directory can be lost; None else."""
        return self.previous.broker_epoch

    async def write_registering(self, presents: BrokerEpoch | None, incarnation_id: UUID) -> None:
        """Return once every directory says which incarnation is about to register, and what it presents."""
        incarnation = Incarnation(presents, incarnation_id, frozenset(self._files.directory_ids))
        await self._in_each(partial(RunEvidence.write_registering, incarnation=incarnation))

    async def write_incarnation(self, broker_epoch: BrokerEpoch, incarnation_id: UUID | None = None) -> None:
        """Return once every directory says that this broker epoch writes to it. One that refuses proves nothing.

        Raises:
            DiskError: one refuses even to forget what it said before, and there is no other.
        """
        incarnation = Incarnation(broker_epoch, incarnation_id=incarnation_id)
        await self._in_each(partial(RunEvidence.write_incarnation, incarnation=incarnation))

    async def _in_each(self, write: Callable[[RunEvidence], None]) -> None:
        for log_dir in self._files.online:
            try:
                await self._executor.run(partial(write, log_dir.evidence))
            except DiskError as error:
                self._files.give_up(log_dir, error)
                return  # the others have been told to forget
