"""Offset retention (KIP-211): what is forgotten, and when.

An offset is kept while its group has members that want its topic; afterwards for `offsets.retention.minutes`, counted
from when the group became empty, or, where there never was a member, from the commit. What remains of a group that is
empty and has no offsets goes as well.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.coordinator.group import Change, Group, GroupState
from tidelog.coordinator.ledger import Ledger
from tidelog.coordinator.records import decode_offset, group_key, offset_key
from tidelog.coordinator.values import KeyValue

STEP_OFFSETS_MAX = 5_000
"""Offsets looked at in one go, some milliseconds; others have their turn in between. One group is never cut."""


class OffsetExpiry:
    """Looks at all groups of one coordinator, some at a time, once per interval."""

    def __init__(self, ledger: Ledger, groups: dict[str, Group]) -> None:
        self._ledger = ledger
        self._groups = groups
        self._todo: list[str] = []
        self._next_ms: int | None = None

    @property
    def next_ms(self) -> int | None:
        """When there is something to look at; None before the start."""
        return self._next_ms

    def start(self) -> None:
        """The coordinator became active."""
        self._next_ms = self._ledger.now_ms + self._ledger.settings.retention_check_interval_ms

    def on_time(self) -> None:
        """Look at the next groups, if it is time to."""
        ledger = self._ledger
        if self._next_ms is None or ledger.now_ms < self._next_ms:
            return
        if not self._todo:
            recorded = ledger.state.offsets
            self._todo = [*recorded, *(group_id for group_id in self._groups if group_id not in recorded)]
        left = STEP_OFFSETS_MAX
        records: list[KeyValue] = []
        while self._todo and left > 0:
            left -= self._look_at(self._todo.pop(), records)
        ledger.write_in_parts(records)
        if self._todo:
            self._next_ms = ledger.now_ms
        else:
            self._next_ms = ledger.now_ms + ledger.settings.retention_check_interval_ms

    def _look_at(self, group_id: str, records: list[KeyValue]) -> int:
        """Add the records that forget what has expired of one group.

        Returns:
            How many offsets were looked at, and one for the group.
        """
        ledger = self._ledger
        group = self._groups.get(group_id)
        looked_at, expired = _expired(ledger, group_id, group)
        records += ((offset_key(group_id, topic, partition), None) for topic, partition in expired)
        keeps_offsets = len(expired) < sum(map(len, ledger.state.offsets.get(group_id, {}).values()))
        if group is not None and group.state is GroupState.EMPTY and not group.pending and not keeps_offsets:
            if group.is_recorded:
                records.append((group_key(group_id), None))
                group.is_recorded = False
            group.go(Change.DELETED, ledger.wall_ms)
            del self._groups[group_id]
        return looked_at + 1


def _expired(ledger: Ledger, group_id: str, group: Group | None) -> tuple[int, list[tuple[str, int]]]:
    """How many offsets of a group were looked at, and which of them are to go, as topic and partition."""
    topics: Mapping[str, Mapping[int, bytes]] = ledger.state.offsets.get(group_id, {})
    oldest_ms = ledger.wall_ms - ledger.settings.offsets_retention_ms
    since_ms = None
    if group is not None and group.protocol_type is not None:
        if group.state is GroupState.STABLE:
            wanted = group.wanted_topics()
            topics = {name: found for name, found in topics.items() if wanted is not None and name not in wanted}
        elif group.state is not GroupState.EMPTY:
            return 0, []
        else:
            since_ms = group.state_timestamp_ms
    looked_at = 0
    expired = []
    for name, positions in topics.items():
        for partition, value in positions.items():
            looked_at += 1
            offset = decode_offset(value)
            if offset.expire_timestamp_ms is not None:
                is_over = ledger.wall_ms >= offset.expire_timestamp_ms
            else:
                is_over = (offset.commit_timestamp_ms if since_ms is None else since_ms) <= oldest_ms
            if is_over:
                expired.append((name, partition))
    return looked_at, expired
