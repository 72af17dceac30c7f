"""What the log of a coordinator says: offsets, committed and pending, and classic groups as they were last recorded.

Both are kept as the bytes of their values, which is a third of what objects of them would take: a million offsets are
read at a start, and hardly any of them is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import intern
from typing import cast

from tidelog.base.errors import CorruptLogError
from tidelog.coordinator.groups.consumer import recorded
from tidelog.coordinator.groups.consumer.group import ConsumerGroup
from tidelog.coordinator.groups.pending_offsets import OffsetKey, PendingOffsets
from tidelog.coordinator.groups.records import (
    GROUP_KEY_VERSION,
    NAME_SIZE_BYTES_MAX,
    OFFSET_KEY_VERSIONS,
    check_offset,
    decode_group,
    names_in,
    split_offset_key,
)
from tidelog.coordinator.groups.share import recorded as recorded_shares
from tidelog.coordinator.groups.share.group import ShareGroup
from tidelog.coordinator.memory import Charge
from tidelog.journal import KeyValue, TransactionEnd, TransactionRecord

KNOWN_TOPICS_MAX = 10_000
"""Pairs of group and topic whose names need not be decoded again; at the limit all are forgotten."""

Positions = dict[int, bytes]
"""The offsets of one group in one topic, by partition, as `records.decode_offset` reads them."""


OFFSET_BYTES = 160
"""About what a committed offset takes beside its value."""
NAMES_BYTES = 500
"""About what a group that has offsets takes, or a topic in which it has some, beside its name."""


class RecordedGroups:
    """A state for `Journal`; its records are keys and values as bytes, also within transactions, and the ends of those.

    Attributes:
        offsets: by group and topic; neither is there without an offset.
        offsets_charge: about what they take in memory.
        pending: offsets that wait for the end of a transaction.
        groups: the classic groups by id, as `records.decode_group` reads them.
        consumer_groups: by id, as objects: nothing but a record changes them.
        consumer_groups_bytes: about what they take in memory.
        share_groups: likewise, by id.
        share_groups_bytes: about what they take in memory.
    """

    def __init__(self) -> None:
        self.offsets: dict[str, dict[str, Positions]] = {}
        self.offsets_charge = Charge()
        self.pending = PendingOffsets()
        self.groups: dict[str, bytes] = {}
        self.consumer_groups: dict[str, ConsumerGroup] = {}
        self.consumer_groups_bytes = 0
        self.share_groups: dict[str, ShareGroup] = {}
        self.share_groups_bytes = 0
        self.offsets_count = 0
        self._known: dict[bytes, Positions] = {}

    def apply(self, record: object) -> None:
        """Take a record in. What is of no known kind is skipped."""
        if type(record) is not tuple:
            self._apply_in_transaction(record)
            return
        key, value = cast(KeyValue, record)
        version = key[:2]
        if version in OFFSET_KEY_VERSIONS:
            names = key[2:-4]
            partition = int.from_bytes(key[-4:], "big", signed=True)
            positions = self._known.get(names)
            if positions is None:
                positions = self._positions(names)
            if value is not None:
                self._keep(positions, partition, value)
            else:
                before = positions.pop(partition, None)
                if before is not None:
                    self.offsets_count -= 1
                    self.offsets_charge.resize(-OFFSET_BYTES - len(before))
                if not positions:
                    self._forget(names)
            if self.pending.groups:
                self.pending.drop(OffsetKey(*_group_and_topic(names), partition))
        elif version == GROUP_KEY_VERSION:
            (group_id,) = names_in(key[2:])
            if value is None:
                self.groups.pop(group_id, None)
            else:
                self.groups[group_id] = value
        elif version in recorded.KEY_VERSIONS:
            self.consumer_groups_bytes += recorded.apply(self.consumer_groups, (key, value))
        elif version in recorded_shares.KEY_VERSIONS:
            self.share_groups_bytes += recorded_shares.apply(self.share_groups, (key, value))

    def clone(self) -> RecordedGroups:
        """A copy down to the values, which nobody changes."""
        copy = RecordedGroups()
        copy.offsets = {
            group_id: {topic: dict(positions) for topic, positions in topics.items()}
            for group_id, topics in self.offsets.items()
        }
        copy.offsets_charge = Charge(self.offsets_charge.size_bytes)
        copy.pending = self.pending.clone()
        copy.groups = dict(self.groups)
        copy.consumer_groups = {group_id: group.clone() for group_id, group in self.consumer_groups.items()}
        copy.consumer_groups_bytes = self.consumer_groups_bytes
        copy.share_groups = {group_id: group.clone() for group_id, group in self.share_groups.items()}
        copy.share_groups_bytes = self.share_groups_bytes
        copy.offsets_count = self.offsets_count
        return copy

    def has_offsets(self, group_id: str) -> bool:
        """Whether a group is there by its offsets, be they pending."""
        return group_id in self.offsets or group_id in self.pending.groups

    def offset_of(self, group_id: str, topic: str, partition: int) -> bytes | None:
        """The value of a committed offset."""
        return self.offsets.get(group_id, {}).get(topic, {}).get(partition)

    def positions_of(self, group_id: str) -> Iterator[tuple[str, int, bytes]]:
        """The topic, partition and value of each offset of a group."""
        for topic, positions in self.offsets.get(group_id, {}).items():
            for partition, value in positions.items():
                yield topic, partition, value

    def _apply_in_transaction(self, record: object) -> None:
        """As Kafka: of what is part of a transaction offsets alone wait for its end."""
        if isinstance(record, TransactionEnd):
            for position, value in self.pending.end(record.producer_id, is_committed=record.is_committed):
                positions = self._positions_in(position.group_id, position.topic)
                self._keep(positions, position.partition, value)
        elif isinstance(record, TransactionRecord):
            key, offset = cast(KeyValue, record.record)
            if key[:2] in OFFSET_KEY_VERSIONS and offset is not None:
                names, partition = split_offset_key(key)
                group_id, topic = _group_and_topic(names)
                self.pending.add(record.producer_id, OffsetKey(group_id, intern(topic), partition), offset)
            else:
                self.apply(record.record)

    def _keep(self, positions: Positions, partition: int, value: bytes) -> None:
        before = positions.get(partition)
        if before is None:
            self.offsets_count += 1
            self.offsets_charge.resize(OFFSET_BYTES + len(value))
        elif len(before) != len(value):
            self.offsets_charge.resize(len(value) - len(before))
        positions[partition] = value

    def _positions(self, names: bytes) -> Positions:
        """Those that `names`, as they stand in a key, stand for; made if there are none."""
        positions = self._positions_in(*_group_and_topic(names))
        if len(self._known) >= KNOWN_TOPICS_MAX:
            self._known.clear()
        self._known[names] = positions
        return positions

    def _positions_in(self, group_id: str, topic: str) -> Positions:
        topics = self.offsets.get(group_id)
        if topics is None:
            topics = self.offsets[group_id] = {}
            self.offsets_charge.resize(NAMES_BYTES + len(group_id))
        positions = topics.get(topic)
        if positions is None:
            positions = topics[intern(topic)] = {}
            self.offsets_charge.resize(NAMES_BYTES + len(topic))
        return positions

    def _forget(self, names: bytes) -> None:
        self._known.pop(names, None)
        group_id, topic = _group_and_topic(names)
        topics = self.offsets[group_id]
        del topics[topic]
        self.offsets_charge.resize(-NAMES_BYTES - len(topic))
        if not topics:
            del self.offsets[group_id]
            self.offsets_charge.resize(-NAMES_BYTES - len(group_id))


def _group_and_topic(names: bytes) -> tuple[str, str]:
    """Those in the key of an offset; as `names_in`, at half its cost."""
    end = 2 + int.from_bytes(names[:2])
    try:
        size = int.from_bytes(names[end : end + 2])
        if end + 2 + size == len(names) and end - 2 <= NAME_SIZE_BYTES_MAX and size <= NAME_SIZE_BYTES_MAX:
            return names[2:end].decode(), names[end + 2 :].decode()
    except UnicodeDecodeError:
        pass  # told by what follows
    found = names_in(names)
    raise CorruptLogError(f"the key of an offset holds {len(found)} names, not two")


def check_record(record: KeyValue) -> None:
    """Return if a record that was read from the log is whole. Of newer groups, `RecordedGroups.apply` finds out.

    Raises:
        CorruptLogError: it is not, or has a version that this release does not know.
    """
    key, value = record
    version = key[:2]
    if version in OFFSET_KEY_VERSIONS:
        if value is not None:
            check_offset(value)
    elif version == GROUP_KEY_VERSION:
        if len(names_in(key[2:])) != 1:
            raise CorruptLogError("the key of a group does not hold one name")
        if value is not None:
            members = decode_group(value).members
            if len({one.member_id for one in members}) != len(members):
                raise CorruptLogError("a group holds a member twice")
    elif len(version) < 2:
        raise CorruptLogError(f"a key of {len(key)} bytes holds no version")
