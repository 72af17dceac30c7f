"""Offset retention (KIP-211): what is forgotten, and when.

An offset is kept while its group has members that want its topic; afterwards for `offsets.retention.minutes`, counted
from when the group became empty, or, where there never was a member, from the commit. In a consumer group (KIP-848) it
is always counted from the commit. What remains of a group that is empty and has no offsets goes as well. An offset that
an open transaction may move stays, and so does its group.

Kafka: `OffsetExpirationCondition`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.coordinator.groups.consumer import recorded
from tidelog.coordinator.groups.group import Change, Group, GroupState
from tidelog.coordinator.groups.group_journal import GroupJournal
from tidelog.coordinator.groups.records import decode_offset, group_key, offset_key
from tidelog.journal import KeyValue, Moment

STEP_OFFSETS_MAX = 5_000
"""Offsets looked at in one go, some milliseconds; others have their turn in between. One group is never cut."""


class OffsetExpiry:
    """Looks at all groups of one coordinator, some at a time, once per interval."""

    def __init__(self, journal: GroupJournal, groups: dict[str, Group]) -> None:
        self._journal = journal
        self._groups = groups
        self._todo: list[str] = []
        self._next_ms: int | None = None

    @property
    def next_ms(self) -> int | None:
        """When there is something to look at; None before the start."""
        return self._next_ms

    def start(self, at: Moment) -> None:
        """The coordinator became active."""
        self._next_ms = at.now_ms + self._journal.settings.retention_check_interval_ms

    def on_time(self, at: Moment) -> None:
        """Look at the next groups, if it is time to."""
        journal = self._journal
        if self._next_ms is None or at.now_ms < self._next_ms:
            return
        if not self._todo:
            recorded = journal.state.offsets
            others = (*self._groups, *journal.state.consumer_groups)
            self._todo = [*recorded, *(group_id for group_id in others if group_id not in recorded)]
        left = STEP_OFFSETS_MAX
        records: list[KeyValue] = []
        while self._todo and left > 0:
            left -= self._look_at(self._todo.pop(), at, records)
        journal.write_in_parts(records)
        if self._todo:
            self._next_ms = at.now_ms
        else:
            self._next_ms = at.now_ms + journal.settings.retention_check_interval_ms

    def _look_at(self, group_id: str, at: Moment, records: list[KeyValue]) -> int:
        """Add the records that forget what has expired of one group.

        Returns:
            How many offsets were looked at, and one for the group.
        """
        journal = self._journal
        group = self._groups.get(group_id)
        looked_at, expired = _expired(journal, at, group_id, group)
        records += ((offset_key(group_id, topic, partition), None) for topic, partition in expired)
        keeps_offsets = group_id in journal.state.pending.groups or len(expired) < sum(
            map(len, journal.state.offsets.get(group_id, {}).values())
        )
        if group is not None and group.state is GroupState.EMPTY and not group.pending and not keeps_offsets:
            if group.is_recorded:
                records.append((group_key(group_id), None))
            group.go(Change.DELETED, at.wall_ms)
            del self._groups[group_id]
        consumer_group = journal.state.consumer_groups.get(group_id)
        if consumer_group is not None and not consumer_group.subscriptions and not keeps_offsets:
            records += recorded.group_tombstones(consumer_group)
        return looked_at + 1


def _expired(
    journal: GroupJournal, at: Moment, group_id: str, group: Group | None
) -> tuple[int, list[tuple[str, int]]]:
    """How many offsets of a group were looked at, and which of them are to go, as topic and partition."""
    topics: Mapping[str, Mapping[int, bytes]] = journal.state.offsets.get(group_id, {})
    oldest_ms = at.wall_ms - journal.settings.offsets_retention_ms
    since_ms = None
    if group is not None and group.protocol_type is not None:
        if group.state is GroupState.STABLE:
            wanted = group.wanted_topics()
            topics = {name: found for name, found in topics.items() if wanted is not None and name not in wanted}
        elif group.state is not GroupState.EMPTY:
            return 0, []
        else:
            since_ms = group.state_timestamp_ms
    consumer_group = journal.state.consumer_groups.get(group_id)
    if consumer_group is not None:
        topics = {name: found for name, found in topics.items() if name not in consumer_group.topics}
    looked_at = 0
    expired = []
    for name, positions in topics.items():
        for partition, value in positions.items():
            looked_at += 1
            offset = decode_offset(value)
            if offset.expire_timestamp_ms is not None:
                is_over = at.wall_ms >= offset.expire_timestamp_ms
            else:
                is_over = (offset.commit_timestamp_ms if since_ms is None else since_ms) <= oldest_ms
            if is_over and not journal.state.pending.has(group_id, name, partition):
                expired.append((name, partition))
    return looked_at, expired
