"""The voters as of each offset of the metadata log: the latest counts, committed or not, until it is cut off again.

Kafka: `VoterSetHistory`.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.base.ids import Offset
from tidelog.quorum.values import VoterSet
from tidelog.records.control import Voters
from tidelog.server.quorum.metadata_log import MetadataBatch
from tidelog.server.storage.voter_records import IN_THE_LOG, voter_set_of


class VoterHistory:
    """See the module.

    Args:
        base: of the configuration.
    """

    def __init__(self, base: VoterSet) -> None:
        self._base = base
        self._base_end_offset = Offset(0)
        self._changes: list[tuple[Offset, VoterSet]] = []

    @property
    def current(self) -> VoterSet:
        return self._changes[-1][1] if self._changes else self._base

    @property
    def end_offset(self) -> Offset:
        """Exclusive end of the record, or the snapshot, that says so; 0 where the configuration does."""
        return self._changes[-1][0] if self._changes else self._base_end_offset

    @property
    def previous(self) -> VoterSet | None:
        """The set before the current one: until that is committed, who was in it may be needed to lead."""
        sets = [self._base, *(voters for _, voters in self._changes)]
        return sets[-2] if len(sets) > 1 else None

    @property
    def is_in_log(self) -> bool:
        """Whether the log, not the configuration, says who votes."""
        return self.current.version >= IN_THE_LOG

    def at(self, end_offset: Offset) -> VoterSet:
        """As of the records below `end_offset`."""
        return next((voters for end, voters in reversed(self._changes) if end <= end_offset), self._base)

    def on_batches(self, batches: Iterable[MetadataBatch]) -> bool:
        """The log grew by these. Returns whether there is another set now."""
        before = self.current
        for batch in batches:
            for control in batch.controls:
                if isinstance(control, Voters):
                    self._changes.append((batch.end_offset, voter_set_of(control)))
        return self.current != before

    def on_truncated(self, end_offset: Offset) -> bool:
        """The log ends there now. Returns whether there is another set now."""
        before = self.current
        self._changes = [change for change in self._changes if change[0] <= end_offset]
        return self.current != before

    def on_snapshot(self, voters: VoterSet | None, end_offset: Offset) -> bool:
        """A snapshot takes the place of the log. Returns whether there is another set now."""
        before = self.current
        if voters is not None:
            self._base, self._base_end_offset = voters, end_offset
        self._changes.clear()
        return self.current != before
