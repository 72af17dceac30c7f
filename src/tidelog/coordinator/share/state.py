"""What the log of one partition of `__share_group_state` says: how every share group stands with its partitions."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import cast

from tidelog.base.ids import LeaderEpoch, Offset, TopicId
from tidelog.coordinator.memory import CoordinatorMemory
from tidelog.coordinator.share.batches import combine
from tidelog.coordinator.share.records import (
    NOT_KNOWN,
    ShareRecordType,
    ShareSnapshotValue,
    encode_snapshot,
    read_batches,
    read_key,
    read_snapshot,
    read_update,
)
from tidelog.journal import KeyValue
from tidelog.share.key import ShareKey
from tidelog.share.state import NO_LEADER_EPOCH, NOT_NUMBERED, ShareState, StateBatch, StateChange

STATE_BYTES = 1_024
"""About what a state takes beside the group's name and its batches."""
BATCH_BYTES = 192


@dataclass(slots=True)
class KeptState:
    """How one share group stands with one partition.

    Attributes:
        snapshot_epoch: of the latest snapshot.
        leader_epoch: of the partition's leader that wrote or read it last; `NO_LEADER_EPOCH` if none has.
        start: all before it is done; `NOT_KNOWN` if the group has not begun.
        start_leader_epoch: of the record just before `start`.
        delivery_complete_count: how many records from the start on are done, or `NOT_KNOWN`.
        created_ms: when the state was begun.
        snapshot_ms: when the latest snapshot was written.
        update_count: since the latest snapshot.
        batches: by offset, without overlap.
        write_number: of the last change in `leader_epoch`.
    """

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: LeaderEpoch
    start: Offset
    start_leader_epoch: LeaderEpoch
    delivery_complete_count: int
    created_ms: int
    snapshot_ms: int
    update_count: int = 0
    batches: list[StateBatch] = field(default_factory=list)
    write_number: int = NOT_NUMBERED

    @property
    def told_start(self) -> Offset | None:
        """As `ShareState` has it."""
        return None if self.start == NOT_KNOWN else self.start

    def to_read(self) -> ShareState:
        """For the partition's leader."""
        return ShareState(self.state_epoch, self.told_start, self.start_leader_epoch, tuple(self.batches))

    def change(self, change: StateChange) -> None:
        """Take in what has changed. The state epoch is not looked at."""
        if change.leader_epoch not in (NO_LEADER_EPOCH, self.leader_epoch):
            self.leader_epoch, self.write_number = change.leader_epoch, NOT_NUMBERED
        self.write_number = max(self.write_number, change.number)
        if change.start is not None:
            self.start, self.start_leader_epoch = change.start, change.start_leader_epoch
        self.delivery_complete_count = change.delivery_complete_count
        combine(self.batches, change.batches, self.told_start)

    def clone(self) -> KeptState:
        """A copy down to the batches, which nobody changes."""
        return replace(self, batches=list(self.batches))

    def anew(self, wall_ms: int) -> KeptState:
        """A copy, to be written as the next snapshot."""
        copy = self.clone()
        copy.snapshot_epoch += 1
        copy.snapshot_ms = wall_ms
        copy.update_count = 0
        return copy

    def encoded(self) -> bytes:
        """The value of its snapshot."""
        snapshot = ShareSnapshotValue(
            snapshot_epoch=self.snapshot_epoch,
            state_epoch=self.state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=self.start,
            delivery_complete_count=self.delivery_complete_count,
            create_timestamp=self.created_ms,
            write_timestamp=self.snapshot_ms,
            start_leader_epoch=self.start_leader_epoch,
            write_number=self.write_number,
        )
        return encode_snapshot(snapshot, self.batches)

    @staticmethod
    def decoded(value: bytes) -> KeptState:
        """The inverse. What others wrote is put in order. Raises CorruptLogError."""
        snapshot = read_snapshot(value)
        state = KeptState(
            snapshot_epoch=snapshot.snapshot_epoch,
            state_epoch=snapshot.state_epoch,
            leader_epoch=LeaderEpoch(snapshot.leader_epoch),
            start=Offset(snapshot.start_offset),
            start_leader_epoch=LeaderEpoch(snapshot.start_leader_epoch),
            delivery_complete_count=snapshot.delivery_complete_count,
            created_ms=snapshot.create_timestamp,
            snapshot_ms=snapshot.write_timestamp,
            write_number=snapshot.write_number,
        )
        combine(state.batches, read_batches(snapshot.state_batches), state.told_start)
        return state


class RecordedShareStates:
    """A state for `Journal`; its records are keys and values as bytes.

    Attributes:
        states: of each group and partition.
        by_topic: the keys of those, by topic.
        size_bytes: about what they take.
        record_count: how many records of the log tell of them.
    """

    def __init__(self) -> None:
        self.states: dict[ShareKey, KeptState] = {}
        self.by_topic: dict[TopicId, dict[ShareKey, None]] = {}
        self.size_bytes = 0
        self.record_count = 0
        self._memory = CoordinatorMemory(sys.maxsize)  # its own, until there is a coordinator
        self._meaning: KeptState | StateChange | None = None

    def apply(self, record: object) -> None:
        """Take a record in. What is of no known kind is skipped, and so is an update of what is not there: its
        snapshot was pruned, for a newer one follows.
        """
        raw_key, value = cast(KeyValue, record)
        meaning, self._meaning = self._meaning, None
        read = read_key(raw_key)
        if read is None:
            return
        kind, key = read
        before = self.states.get(key)
        if kind is ShareRecordType.SNAPSHOT:
            after = None
            if value is not None:
                after = meaning if isinstance(meaning, KeptState) else KeptState.decoded(value)
            self._put(key, before, after)
        elif before is not None and value is not None:
            change = meaning if isinstance(meaning, StateChange) else read_update(value)
            batch_count = len(before.batches)
            before.change(change)
            before.update_count += 1
            self.record_count += 1
            self._resize(BATCH_BYTES * (len(before.batches) - batch_count))

    def expect(self, meaning: KeptState | StateChange | None) -> None:
        """Say what the next record decodes to, so that it need not be decoded: there may be thousands of batches.

        A `KeptState` is not to be changed by anybody else from now on.
        """
        self._meaning = meaning

    def _put(self, key: ShareKey, before: KeptState | None, after: KeptState | None) -> None:
        if after is not None:
            self.states[key] = after
            self.by_topic.setdefault(key.topic_id, {})[key] = None
        elif before is not None:
            del self.states[key]
            of_topic = self.by_topic[key.topic_id]
            del of_topic[key]
            if not of_topic:
                del self.by_topic[key.topic_id]
        self.record_count += _record_count(after) - _record_count(before)
        self._resize(size_bytes(key, after) - size_bytes(key, before))

    def charge(self, memory: CoordinatorMemory) -> None:
        """Have what it takes count there from now on."""
        self._memory.used_bytes -= self.size_bytes
        self._memory = memory
        memory.used_bytes += self.size_bytes

    def _resize(self, more_bytes: int) -> None:
        self.size_bytes += more_bytes
        self._memory.used_bytes += more_bytes

    def clone(self) -> RecordedShareStates:
        """A copy down to the batches, which nobody changes."""
        copy = RecordedShareStates()
        for key, state in self.states.items():
            copy._put(key, None, state.clone())
        return copy


def size_bytes(key: ShareKey, state: KeptState | None) -> int:
    """About what a state takes in memory; nothing where there is none."""
    if state is None:
        return 0
    return STATE_BYTES + len(key.group_id) + BATCH_BYTES * len(state.batches)


def _record_count(state: KeptState | None) -> int:
    return 0 if state is None else 1 + state.update_count
