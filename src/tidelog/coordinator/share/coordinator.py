"""The coordinator of the share groups' states in one partition of `__share_group_state`.

```
 Initialize, Write, Delete ──► check epochs ──► journal: a snapshot, an update, a tombstone ──► answer
 Read ──► raise the leader epoch ──┘
```

A leader reads before it writes, with its leader epoch; that is recorded, so whoever led before is fenced from then on.
A state that is initialized anew has a higher state epoch, which fences whoever has read it before. One that was deleted
and begun again may have the same epoch: it takes no change until it was read, other than in Kafka. The coordinator of a
group raises a state's epoch by a write of nothing else: what was asked with a lower one does nothing if it comes late.
A leader numbers its changes, other than in Kafka: one that comes once more, after a later one, does nothing either.

Pure: a shell appends the batches, says what is committed, sends the answers, and keeps the clocks.

Kafka: `ShareCoordinatorShard`.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Collection, Container, Sequence

from tidelog.base.errors import Code, CorruptLogError, KafkaError, refusal
from tidelog.base.ids import LeaderEpoch, Offset, TopicId
from tidelog.coordinator.memory import CoordinatorMemory
from tidelog.coordinator.share.records import (
    NO_STATE_EPOCH,
    NOT_KNOWN,
    ShareRecordType,
    encode_update,
    read_key,
    snapshot_key,
    update_key,
)
from tidelog.coordinator.share.redundancy import SnapshotOffsets
from tidelog.coordinator.share.settings import BATCHES_MAX, ShareCoordinatorSettings
from tidelog.coordinator.share.state import BATCH_BYTES, KeptState, RecordedShareStates, size_bytes
from tidelog.journal import CoordinatorJournal, CoordinatorReady, RequestId, SendId
from tidelog.share.key import ShareKey
from tidelog.share.state import NO_LEADER_EPOCH, NOT_NUMBERED, StateChange
from tidelog.share.summary import ShareSummary

SNAPSHOT_STEP_MAX = 64
"""Snapshots of cold partitions, or tombstones of deleted topics, in one go: some milliseconds."""
BATCHES_STEP_MAX = 1_000
"""In those snapshots, unless the first has more."""

SNAPSHOT_BYTES = 256
"""More than a snapshot takes beside the group's name and its batches, with its key."""
SNAPSHOT_BATCH_BYTES = 28
"""More than a batch takes in it."""


class ShareCoordinator:
    """Replays, becomes active, answers, resigns; then it is spent, and another leadership takes a new one.

    Every request is about one key and gets one answer, unless `on_disconnected` says that nobody waits for it.
    `is_known` says whether the metadata has the partition.

    Args:
        partition: of `__share_group_state`, for messages.
        memory: of the states of all coordinators of a node; None for no bound.
    """

    def __init__(
        self, partition: int, settings: ShareCoordinatorSettings, *, memory: CoordinatorMemory | None = None
    ) -> None:
        self.partition = partition
        self._settings = settings
        self._memory = CoordinatorMemory(sys.maxsize) if memory is None else memory
        self._journal = CoordinatorJournal(RecordedShareStates())
        self._snapshots = SnapshotOffsets()
        self._to_forget: deque[ShareKey] = deque()
        self._cold_due_ms: int | None = None

    @property
    def batch_size_bytes_max(self) -> int:
        """Of the log behind it, in force from now on, whenever it is set."""
        return self._journal.batch_size_bytes_max

    @batch_size_bytes_max.setter
    def batch_size_bytes_max(self, size_bytes: int) -> None:
        self._journal.batch_size_bytes_max = size_bytes

    @property
    def is_active(self) -> bool:
        """Whether it answers; before that COORDINATOR_LOAD_IN_PROGRESS is all it says, afterwards NOT_COORDINATOR."""
        return self._journal.is_active

    @property
    def states(self) -> dict[ShareKey, KeptState]:
        """Only to be read."""
        return self._journal.state.states

    @property
    def redundant_before(self) -> Offset:
        """What of the log lies below this offset is needed by nobody, whatever is lost of what is not committed."""
        return self._snapshots.redundant_before(self._journal.committed_end_offset)

    # Loading.

    def replay(
        self, key: bytes | None, value: bytes | None, offset: Offset, *, transaction_of: int | None = None
    ) -> None:
        """A committed record was read from the log. One of a kind that is not known here is skipped.

        Args:
            transaction_of: nobody writes to this log in a transaction, so what says so is skipped as well.

        Raises:
            CorruptLogError: it is not what it claims; names the offset. The partition is not to be led.
        """
        if key is None or transaction_of is not None:
            return
        try:
            self._journal.replay((key, value), offset)
            read = read_key(key)
        except CorruptLogError as error:
            raise CorruptLogError(f"__share_group_state-{self.partition}, offset {offset}: {error}") from error
        if read is not None and read[0] is ShareRecordType.SNAPSHOT:
            self._snapshots.on_written(read[1], offset, is_tombstone=value is None)

    def replay_end(self, producer_id: int, *, is_committed: bool) -> None:
        """See `replay`: there was none."""

    def restore(self) -> None:
        """There is nothing to make of what was replayed."""

    def become_active(self, leader_epoch: LeaderEpoch, next_offset: Offset, *, now_ms: int, wall_ms: int) -> None:
        """All was replayed."""
        self._journal.state.charge(self._memory)
        self._journal.become_active(leader_epoch, next_offset)
        self._snapshots.on_committed(next_offset)
        self._cold_due_ms = now_ms + self._settings.cold_snapshot_interval_ms

    def resign(self, error: KafkaError | None = None) -> None:
        """Leadership is lost, or the log refused a batch: whoever waits is told NOT_COORDINATOR, or `error`."""
        self._journal.resign(error)
        self._journal.state.charge(CoordinatorMemory(sys.maxsize))
        self._to_forget.clear()
        self._cold_due_ms = None

    # What the coordinators of groups ask.

    def on_initialize(
        self,
        request_id: RequestId,
        key: ShareKey,
        *,
        state_epoch: int,
        start: Offset | None,
        is_known: bool,
        now_ms: int,
        wall_ms: int,
    ) -> None:
        """Begin a state, in place of the one that there may be. Answered with `Code.NONE`.

        One that has this epoch already stays: it was asked for twice. Members may have worked on it since, or it is of
        an earlier group: then it takes a higher epoch.
        """

        def initialize() -> None:
            kept = self.states.get(key)
            if kept is not None:
                _check_state_epoch(key, kept, state_epoch)
            _check_known(key, is_known)
            if kept is not None and kept.state_epoch == state_epoch:
                _check_is_as_begun(key, kept, start)
                self._journal.answer(request_id, Code.NONE)
                return
            begun = KeptState(
                snapshot_epoch=0 if kept is None else kept.snapshot_epoch + 1,
                state_epoch=state_epoch,
                leader_epoch=NO_LEADER_EPOCH if kept is None else kept.leader_epoch,
                start=Offset(NOT_KNOWN) if start is None else start,
                start_leader_epoch=NO_LEADER_EPOCH,
                delivery_complete_count=NOT_KNOWN if start is None else 0,
                created_ms=wall_ms,
                snapshot_ms=wall_ms,
            )
            self._check_room(key, size_bytes(key, begun) - size_bytes(key, kept))
            if not self._journal.fits([(snapshot_key(key), begun.encoded())]):
                raise refusal(Code.INVALID_REQUEST, f"{key}: the name is too long for the log of share groups")
            self._write_snapshot(key, begun, request_id, Code.NONE)

        self._run(request_id, key, initialize)

    def on_summarize(self, request_id: RequestId, key: ShareKey, *, is_known: bool, now_ms: int, wall_ms: int) -> None:
        """Answered with a `ShareSummary`: of nothing, where nothing is kept."""

        def summarize() -> None:
            _check_known(key, is_known)
            kept = self.states.get(key)
            if kept is None:
                self._journal.answer(request_id, ShareSummary())
                return
            leader_epoch = LeaderEpoch(max(kept.leader_epoch, 0))
            summary = ShareSummary(kept.state_epoch, leader_epoch, kept.told_start, kept.delivery_complete_count)
            self._journal.answer(request_id, summary)

        self._run(request_id, key, summarize)

    def on_delete(
        self,
        request_id: RequestId,
        key: ShareKey,
        *,
        state_epoch: int = NO_STATE_EPOCH,
        is_known: bool,
        now_ms: int,
        wall_ms: int,
    ) -> None:
        """Answered with `Code.NONE`, also where nothing is kept.

        Args:
            state_epoch: a state with a higher one was begun after this was asked for, and stays.
        """

        def delete() -> None:
            _check_known(key, is_known)
            kept = self.states.get(key)
            if kept is not None and (state_epoch == NO_STATE_EPOCH or kept.state_epoch <= state_epoch):
                self._write_tombstones([key])
            self._journal.answer(request_id, Code.NONE)

        self._run(request_id, key, delete)

    # What the leaders of partitions ask.

    def on_read(
        self,
        request_id: RequestId,
        key: ShareKey,
        *,
        leader_epoch: LeaderEpoch,
        is_known: bool,
        now_ms: int,
        wall_ms: int,
    ) -> None:
        """Answered with a `ShareState`, once the leader epoch is recorded, which fences those of older ones.

        Args:
            leader_epoch: in which the asker leads the partition; `NO_LEADER_EPOCH` is not checked, nor recorded.
        """

        def read() -> None:
            kept = self._kept(key, "read")
            _check_leader_epoch(key, kept, leader_epoch)
            _check_known(key, is_known)
            state = kept.to_read()
            if leader_epoch in (NO_LEADER_EPOCH, kept.leader_epoch):
                self._journal.answer(request_id, state)
                return
            raised = StateChange(
                kept.state_epoch, leader_epoch, None, delivery_complete_count=kept.delivery_complete_count
            )
            self._change(key, kept, raised, request_id, outcome=state, wall_ms=wall_ms)

        self._run(request_id, key, read)

    def on_write(
        self,
        request_id: RequestId,
        key: ShareKey,
        change: StateChange,
        *,
        is_known: bool,
        now_ms: int,
        wall_ms: int,
    ) -> None:
        """Answered with `Code.NONE`. A leader epoch above the recorded one is recorded, other than in Kafka."""

        def write() -> None:
            kept = self._kept(key, "written")
            _check_leader_epoch(key, kept, change.leader_epoch)
            if change.is_raise and change.state_epoch != NO_STATE_EPOCH:
                _check_state_epoch(key, kept, change.state_epoch)
                _check_known(key, is_known)
                self._raise(key, kept, change.state_epoch, request_id, wall_ms)
                return
            _check_is_read(key, kept, change.state_epoch)
            _check_is_newest(key, kept, change)
            _check_known(key, is_known)
            self._check_size(key, kept, change)
            self._change(key, kept, change, request_id, outcome=Code.NONE, wall_ms=wall_ms)

        self._run(request_id, key, write)

    # What else happens.

    def on_topics_deleted(self, topic_ids: Collection[TopicId], *, now_ms: int, wall_ms: int) -> None:
        """States of topics that are no more go, in steps."""
        by_topic = self._journal.state.by_topic
        for topic_id in topic_ids:
            self._to_forget += by_topic.get(topic_id, ())
        self._forget()

    def on_topics(self, known: Container[TopicId], *, now_ms: int, wall_ms: int) -> None:
        """States of all topics but these go, in steps."""
        unknown = [topic_id for topic_id in self._journal.state.by_topic if topic_id not in known]
        self.on_topics_deleted(unknown, now_ms=now_ms, wall_ms=wall_ms)

    def on_committed(self, end_offset: Offset) -> None:
        """Everything below `end_offset` (exclusive) is there to stay."""
        self._journal.on_committed(end_offset)
        self._snapshots.on_committed(self._journal.committed_end_offset)

    def on_time(self, *, now_ms: int, wall_ms: int) -> None:
        """Do what is due. May be called early, and late."""
        if not self._journal.is_active:
            return
        self._forget()
        if self._cold_due_ms is not None and self._cold_due_ms <= now_ms:
            is_done = self._snapshot_cold(wall_ms)
            self._cold_due_ms = now_ms + self._settings.cold_snapshot_interval_ms if is_done else now_ms

    def next_deadline_ms(self) -> int | None:
        """When to call `on_time`, by the clock of `now_ms`; None while there is nothing to wait for."""
        return 0 if self._to_forget else self._cold_due_ms

    def on_disconnected(self, request_id: RequestId, *, now_ms: int, wall_ms: int) -> None:
        """Nobody waits for that answer any more, which comes all the same."""

    def on_sent(self, send_id: SendId, outcome: object, *, now_ms: int, wall_ms: int) -> None:
        """It sends nothing."""

    def take_ready(self) -> CoordinatorReady:
        """All that is owed since the last call."""
        return self._journal.take_ready()

    # How.

    def _run(self, request_id: RequestId, key: ShareKey, run: Callable[[], None]) -> None:
        if not self._journal.is_active:
            self._journal.answer_at_once(request_id, self._journal.why_inactive)
            return
        try:
            if key.partition < 0:
                raise refusal(Code.INVALID_REQUEST, f"{key}: there is no partition {key.partition}")
            run()
        except KafkaError as error:
            self._journal.answer(request_id, error)

    def _kept(self, key: ShareKey, done: str) -> KeptState:
        kept = self.states.get(key)
        if kept is None:
            raise refusal(Code.INVALID_REQUEST, f"{key}: a state that was not initialized cannot be {done}")
        return kept

    def _raise(self, key: ShareKey, kept: KeptState, state_epoch: int, request_id: RequestId, wall_ms: int) -> None:
        if state_epoch == kept.state_epoch:
            self._journal.answer(request_id, Code.NONE)
            return
        after = kept.anew(wall_ms)
        after.state_epoch = state_epoch
        self._write_snapshot(key, after, request_id, Code.NONE)

    def _change(
        self,
        key: ShareKey,
        kept: KeptState,
        change: StateChange,
        request_id: RequestId,
        *,
        outcome: object,
        wall_ms: int,
    ) -> None:
        """Write an update, or a snapshot where there were enough of them."""
        if kept.update_count >= self._settings.updates_per_snapshot:
            after = kept.anew(wall_ms)
            after.change(change)
            self._write_snapshot(key, after, request_id, outcome)
            return
        record = update_key(key), encode_update(change, kept.snapshot_epoch)
        self._journal.state.expect(change)
        self._journal.write_and_answer((record,), request_id, outcome)

    def _write_snapshot(
        self, key: ShareKey, state: KeptState, request_id: RequestId | None = None, outcome: object = None
    ) -> None:
        offset = self._journal.next_offset
        record = snapshot_key(key), state.encoded()
        self._journal.state.expect(state)
        if request_id is None:
            self._journal.write((record,))
        else:
            self._journal.write_and_answer((record,), request_id, outcome)
        self._snapshots.on_written(key, offset, is_tombstone=False)

    def _write_tombstones(self, keys: Sequence[ShareKey]) -> None:
        next_offset = self._journal.next_offset
        self._journal.write_in_parts((snapshot_key(key), None) for key in keys)
        for number, key in enumerate(keys):
            self._snapshots.on_written(key, Offset(next_offset + number), is_tombstone=True)

    def _check_size(self, key: ShareKey, kept: KeptState, change: StateChange) -> None:
        """What takes no more than it did goes on, whatever others have taken."""
        more_batches = 2 * len(change.batches)  # each may divide another
        room_bytes = self.batch_size_bytes_max - SNAPSHOT_BYTES - 4 * len(key.group_id)
        batches_max = min(BATCHES_MAX, room_bytes // SNAPSHOT_BATCH_BYTES)
        if len(kept.batches) + more_batches <= batches_max and self._memory.has_room(BATCH_BYTES * more_batches):
            return
        after = kept.clone()
        after.change(change)
        if len(after.batches) > max(batches_max, len(kept.batches)):
            raise refusal(
                Code.MESSAGE_TOO_LARGE, f"{key}: {len(after.batches)} batches are more than a state has ({batches_max})"
            )
        self._check_room(key, size_bytes(key, after) - size_bytes(key, kept))

    def _check_room(self, key: ShareKey, more_bytes: int) -> None:
        if more_bytes > 0 and not self._memory.has_room(more_bytes):
            raise refusal(
                Code.THROTTLING_QUOTA_EXCEEDED,
                f"{key}: {more_bytes} bytes find no room beside the {self._memory.used_bytes} bytes of all states of "
                f"share groups of this node (share.coordinator.memory.bytes is {self._memory.limit_bytes})",
            )

    def _forget(self) -> None:
        keys: list[ShareKey] = []
        while self._to_forget and len(keys) < SNAPSHOT_STEP_MAX:
            key = self._to_forget.popleft()
            if key in self.states and key not in keys:
                keys.append(key)
        if keys:
            self._write_tombstones(keys)

    def _snapshot_cold(self, wall_ms: int) -> bool:
        """Write some of the oldest snapshots anew, so that the log before them may go. Returns whether that is all.

        Nothing is gained where most of what lies behind the oldest snapshot is needed.
        """
        before_ms = wall_ms - self._settings.cold_snapshot_interval_ms
        batch_count = 0
        for number in range(SNAPSHOT_STEP_MAX):
            key, offset = next(iter(self._snapshots.latest.items()), (None, Offset(0)))
            if key is None or self._journal.next_offset - offset < 2 * self._journal.state.record_count:
                return True
            kept = self.states[key]
            if kept.snapshot_ms > before_ms:
                return True
            batch_count += len(kept.batches)
            if number and batch_count > BATCHES_STEP_MAX:
                return False
            self._write_snapshot(key, kept.anew(wall_ms))
        return False


def _check_leader_epoch(key: ShareKey, kept: KeptState, leader_epoch: LeaderEpoch) -> None:
    if leader_epoch != NO_LEADER_EPOCH and leader_epoch < kept.leader_epoch:
        raise refusal(
            Code.FENCED_LEADER_EPOCH,
            f"{key}: leader epoch {leader_epoch} is over, {kept.leader_epoch} has read or written the state",
        )


def _check_state_epoch(key: ShareKey, kept: KeptState, state_epoch: int) -> None:
    if state_epoch != NO_STATE_EPOCH and state_epoch < kept.state_epoch:
        raise refusal(
            Code.FENCED_STATE_EPOCH,
            f"{key}: state epoch {state_epoch} is over, the state was initialized anew as {kept.state_epoch}",
        )


def _check_is_as_begun(key: ShareKey, kept: KeptState, start: Offset | None) -> None:
    """Return if nothing has become of a state since it was begun there."""
    if start != kept.told_start or kept.batches:
        raise refusal(
            Code.FENCED_STATE_EPOCH,
            f"{key}: there is a state with state epoch {kept.state_epoch}, at {kept.told_start} and not at {start}, or "
            "with records that are done: to begin it anew takes a higher epoch",
        )


def _check_is_read(key: ShareKey, kept: KeptState, state_epoch: int) -> None:
    """Return if this state may have been read, and not one of the same name that was there before it."""
    _check_state_epoch(key, kept, state_epoch)
    if kept.leader_epoch == NO_LEADER_EPOCH or state_epoch > kept.state_epoch:
        raise refusal(
            Code.FENCED_STATE_EPOCH,
            f"{key}: state epoch {state_epoch} was read of an earlier state, this one was begun as {kept.state_epoch} "
            "since: read it before it is written",
        )


def _check_is_newest(key: ShareKey, kept: KeptState, change: StateChange) -> None:
    """Return if a leader has written nothing since: it sends a change again where the answer was lost, and no other
    before that. The same one, or a portion of it, changes nothing where it comes twice.
    """
    is_of_leader = change.leader_epoch == kept.leader_epoch and change.number != NOT_NUMBERED
    if is_of_leader and change.number < kept.write_number:
        raise refusal(
            Code.INVALID_REQUEST,
            f"{key}: change {change.number} of leader epoch {change.leader_epoch} came late, change "
            f"{kept.write_number} was written since",
        )


def _check_known(key: ShareKey, is_known: bool) -> None:
    if not is_known:
        raise refusal(Code.UNKNOWN_TOPIC_OR_PARTITION, f"{key}: the metadata has no such partition")
