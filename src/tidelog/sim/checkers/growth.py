"""Which part of a log was looked at already, so that a check after every step costs what the step did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.base.ids import BrokerId
from tidelog.sim.checkers.history import PartitionHistory
from tidelog.sim.checkers.views import PartitionView, Record, ReplicaView

Changes = Mapping[BrokerId, int]
"""From which offset on each log may differ from the last look at it; a log that is not named has not changed."""


class _Seen(NamedTuple):
    log_end_offset: int
    last: Record | None


class LogGrowth:
    """What has changed since the last look, of the logs of the brokers that are up.

    A log that has the record that was its last one still in its place has only grown. That is so between two looks
    with one step between them: none both removes a record and brings it back. A broker that returns is looked at anew.
    """

    def __init__(self) -> None:
        self._seen: dict[BrokerId, _Seen] = {}

    def changes(self, view: PartitionView) -> Changes:
        """Since the last call."""
        found: dict[BrokerId, int] = {}
        for broker, replica in view.replicas.items():
            if not replica.is_up:
                self._seen.pop(broker, None)
                continue
            offset = self._changed_from(replica)
            if offset is not None:
                found[broker] = offset
        return found

    def _changed_from(self, replica: ReplicaView) -> int | None:
        end_offset = replica.log_end_offset
        last = replica.at(end_offset - 1)
        seen = self._seen.get(replica.broker_id)
        if seen is not None and seen.log_end_offset == end_offset and seen.last == last:
            return None
        self._seen[replica.broker_id] = _Seen(end_offset, last)
        if seen is None or not replica.log_start_offset < seen.log_end_offset <= end_offset:
            return replica.log_start_offset
        has_grown = replica.at(seen.log_end_offset - 1) == seen.last
        return seen.log_end_offset if has_grown else replica.log_start_offset


class Compared:
    """Up to which offset something is known to be as it must, by whom it is about."""

    def __init__(self) -> None:
        self._offsets: dict[tuple[BrokerId, ...], int] = {}
        self._overwritten = 0

    def __getitem__(self, who: tuple[BrokerId, ...]) -> int:
        return self._offsets.get(who, 0)

    def __setitem__(self, who: tuple[BrokerId, ...], offset: int) -> None:
        self._offsets[who] = offset

    def forget(self, changes: Changes, history: PartitionHistory) -> None:
        """What has changed is to be compared again; all is, when something else was promised than before."""
        if history.overwritten != self._overwritten:
            self._overwritten = history.overwritten
            self._offsets.clear()
        elif changes:
            for who, offset in self._offsets.items():
                self._offsets[who] = min(offset, *(changes.get(broker, offset) for broker in who))
