"""Where share groups stand: to begin elsewhere, to forget topics, and to forget a group, all without members.

What was asked of the share coordinator is recorded first: `GroupStates` does that, and answers when it is done.
Kafka: `GroupCoordinatorService`, `GroupMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import Offset, PartitionIndex, TopicId
from tidelog.coordinator.groups.consumer.assignment import Pace, Pieces
from tidelog.coordinator.groups.records import NAME_SIZE_BYTES_MAX
from tidelog.coordinator.groups.share import recorded
from tidelog.coordinator.groups.share.group import ShareGroup
from tidelog.coordinator.groups.share.group_states import GroupStates, is_of_no_topic
from tidelog.coordinator.groups.share.group_work import GroupWork
from tidelog.coordinator.groups.share.requests import StateOutcomes
from tidelog.coordinator.groups.share.share_journal import ShareJournal
from tidelog.coordinator.groups.share.states import RecordedStates, StateId, TopicStates, ids_of
from tidelog.journal import Moment, RequestId
from tidelog.wire.messages.api_42_delete_groups import DeletableGroupResult
from tidelog.wire.messages.api_91_alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from tidelog.wire.messages.api_92_delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from tidelog.wire.primitives import ZERO_UUID

ROW_WORK = 4
"""What a row of an answer takes, in elements looked at."""
NOT_KNOWN = -1
"""An offset: the group begins where `share.auto.offset.reset` says."""


class ShareGroupOffsets:
    """Those of the share groups of one coordinator.

    Args:
        is_of_another_kind: whether an id belongs to a group that is no share group.
    """

    def __init__(
        self, written: ShareJournal, states: GroupStates, work: GroupWork, is_of_another_kind: Callable[[str], bool]
    ) -> None:
        self._written = written
        self._states = states
        self._work = work
        self._is_of_another_kind = is_of_another_kind

    # What is there.

    def on_initialized_partitions(self, request_id: RequestId, group_id: str, *, now_ms: int, wall_ms: int) -> None:
        """Answered with the `TopicStates` of each topic; none of a group that is not there."""

        def respond(at: Moment) -> None:
            group = self._written.groups.get(group_id)
            initialized = {} if group is None else group.known_states.initialized
            self._written.journal.answer(request_id, dict(initialized))

        self._written.journal.run(request_id, now_ms, wall_ms, respond)

    # Begin elsewhere.

    def on_alter(
        self, request_id: RequestId, request: AlterShareGroupOffsetsRequest, *, now_ms: int, wall_ms: int
    ) -> None:
        """Answered with an `AlterShareGroupOffsetsResponse`. A group that is not there is made.

        The group epoch is raised, and with it that of the states: a member that the coordinator takes for gone, and
        that still works on them, is fenced. Kafka does not raise it.
        """

        def alter(at: Moment) -> None:
            self._work.do(request.group_id, self._alter(request_id, request), at, request_id, is_droppable=True)

        self._written.journal.run(request_id, now_ms, wall_ms, alter)

    def _alter(self, request_id: RequestId, request: AlterShareGroupOffsetsRequest) -> Pieces[None]:
        pace = Pace()
        group = self._empty_group(request.group_id, may_be_new=True)
        group_id = group.group_id
        rows, starts = yield from self._altered(group, request, pace)
        answer = AlterShareGroupOffsetsResponse(responses=rows)
        if not starts:
            self._written.journal.answer(request_id, answer)
            return
        names: dict[UUID, str] = {}
        for topic in rows:
            names[topic.topic_id] = topic.topic_name
            if pace.counts(1):
                yield
        partitions: dict[TopicId, set[int]] = {}
        for topic_id, partition in starts:
            partitions.setdefault(topic_id, set()).add(partition)
            if pace.counts(1):
                yield
        topics: dict[TopicId, TopicStates] = {}
        for topic_id in list(partitions):
            topics[topic_id] = TopicStates(names.pop(topic_id), frozenset(partitions.pop(topic_id)))
            if pace.counts(2):
                yield
        epoch, states = group.epoch + 1, (yield from group.known_states.beginning(topics, pace))
        record = yield from recorded.states_record(group_id, states, pace)
        self._empty_group(group_id, may_be_new=True)  # another kind of group may have come meanwhile
        self._check_room(group, states)
        self._work.keep(request_id)
        self._written.write(group_id, (recorded.group_record(group_id, epoch, group.metadata_hash), record))
        ids: list[StateId] = []
        for one in ids_of(topics):
            ids.append(one)
            if pace.counts(1):
                yield

        def done(outcomes: StateOutcomes, pace: Pace) -> Pieces[None]:
            refused = {}
            for one, error in zip(ids, outcomes, strict=True):
                if error is not None:
                    refused[one] = error
                if pace.counts(1):
                    yield
            for topic in rows if refused else ():
                for row in topic.partitions:
                    error = refused.get((TopicId(topic.topic_id), PartitionIndex(row.partition_index)))
                    if error is not None and row.error_code == Code.NONE:
                        row.error_code, row.error_message = error.code.value, str(error)
                    if pace.counts(2):
                        yield
            self._written.journal.answer(request_id, answer)

        yield from self._states.begin(group_id, epoch, topics, pace, starts=starts, done=done, request_id=request_id)

    def _altered(
        self, group: ShareGroup, request: AlterShareGroupOffsetsRequest, pace: Pace
    ) -> Pieces[tuple[list[AlterShareGroupOffsetsResponseTopic], dict[StateId, Offset | None]]]:
        """The rows of an answer, and where the group is to begin."""
        topics_by_name = self._written.known.view.topics_by_name
        starts: dict[StateId, Offset | None] = {}
        rows = []
        for topic in request.topics:
            image = topics_by_name.get(topic.topic_name)
            row = AlterShareGroupOffsetsResponseTopic(
                topic.topic_name, ZERO_UUID if image is None else image.topic_id, []
            )
            rows.append(row)
            for one in topic.partitions:
                index, start = one.partition_index, one.start_offset
                error: KafkaError | None = None
                if image is None or not 0 <= index < len(image.partitions):
                    error = refusal(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {topic.topic_name}-{index}")
                elif start < NOT_KNOWN:
                    error = refusal(Code.INVALID_REQUEST, f"{topic.topic_name}-{index}: there is no offset {start}")
                elif self._states.is_being_deleted(group.group_id, image.topic_id):
                    error = refusal(
                        Code.COORDINATOR_NOT_AVAILABLE,
                        f"what group {group.group_id!r} has done with {topic.topic_name} is being deleted: try again",
                    )
                else:
                    starts[image.topic_id, PartitionIndex(index)] = None if start == NOT_KNOWN else Offset(start)
                row.partitions.append(
                    AlterShareGroupOffsetsResponsePartition(
                        partition_index=index,
                        error_code=Code.NONE if error is None else error.code.value,
                        error_message=None if error is None else str(error),
                    )
                )
                if pace.counts(ROW_WORK):
                    yield
        return rows, starts

    # Forget topics.

    def on_delete(
        self, request_id: RequestId, request: DeleteShareGroupOffsetsRequest, *, now_ms: int, wall_ms: int
    ) -> None:
        """Answered with a `DeleteShareGroupOffsetsResponse`."""

        def delete(at: Moment) -> None:
            self._work.do(request.group_id, self._delete(request_id, request), at, request_id, is_droppable=True)

        self._written.journal.run(request_id, now_ms, wall_ms, delete)

    def _delete(self, request_id: RequestId, request: DeleteShareGroupOffsetsRequest) -> Pieces[None]:
        pace = Pace()
        group = self._empty_group(request.group_id)
        rows, topics = yield from self._deletable(group, request, pace)
        answer = DeleteShareGroupOffsetsResponse(responses=rows)
        ids = yield from self._begin_deletion(request_id, group, topics, pace)

        def done(outcomes: StateOutcomes, pace: Pace) -> Pieces[None]:
            refused = yield from _refused(ids, outcomes, pace)
            for row in rows if refused else ():
                error = refused.get(TopicId(row.topic_id))
                if error is not None and row.error_code == Code.NONE:
                    row.error_code, row.error_message = error.code.value, str(error)
                if pace.counts(2):
                    yield
            self._written.journal.answer(request_id, answer)

        if ids:
            yield from self._states.delete(group.group_id, ids, pace, done=done, request_id=request_id)
        else:
            yield from done((), pace)

    def _deletable(
        self, group: ShareGroup, request: DeleteShareGroupOffsetsRequest, pace: Pace
    ) -> Pieces[tuple[list[DeleteShareGroupOffsetsResponseTopic], dict[TopicId, str]]]:
        """The rows of an answer, and the topics of which there is something to forget."""
        topics: dict[TopicId, str] = {}
        rows = []
        topics_by_name, there = self._written.known.view.topics_by_name, group.known_states
        for one in request.topics:
            if pace.counts(ROW_WORK):
                yield
            name = one.topic_name
            image = topics_by_name.get(name)
            if image is not None and there.has(image.topic_id):
                topics[image.topic_id] = name
                rows.append(DeleteShareGroupOffsetsResponseTopic(topic_name=name, topic_id=image.topic_id))
                continue
            why = (
                f"there is no topic {name}" if image is None else f"group {group.group_id!r} has read nothing of {name}"
            )
            rows.append(
                DeleteShareGroupOffsetsResponseTopic(
                    topic_name=name,
                    topic_id=ZERO_UUID,
                    error_code=Code.UNKNOWN_TOPIC_OR_PARTITION.value,
                    error_message=why,
                )
            )
        return rows, topics

    # Forget a group.

    def on_delete_group(self, request_id: RequestId, group_id: str, at: Moment) -> None:
        """Answered with a `DeletableGroupResult`, once nothing is kept of it anywhere."""
        self._work.do(group_id, self._delete_group(request_id, group_id), at, request_id, is_droppable=True)

    def _delete_group(self, request_id: RequestId, group_id: str) -> Pieces[None]:
        pace, group = Pace(), self._empty_group(group_id)
        states = group.known_states
        topics = dict(states.deleting)
        for part in (states.initializing, states.initialized):
            for topic_id, one in part.items():
                topics[topic_id] = one.name
                if pace.counts(1):
                    yield
        ids = yield from self._begin_deletion(request_id, group, topics, pace)

        def done(outcomes: StateOutcomes, pace: Pace) -> Pieces[None]:
            journal = self._written.journal
            refused = yield from _refused(ids, outcomes, pace)
            left = self._written.groups.get(group_id)
            if refused:
                journal.answer(request_id, next(iter(refused.values())))
                return
            if left is None:
                journal.answer(request_id, DeletableGroupResult(group_id))
                return
            if left.subscriptions:
                journal.answer(request_id, _non_empty(left))
                return
            kept = left.known_states
            topic_ids = (*kept.initializing, *kept.initialized, *kept.deleting)
            if (yield from self._states.ids_to_delete(kept, topic_ids, pace)):
                yield from self._delete_group(request_id, group_id)  # more was begun meanwhile
            else:
                journal.write_in_parts(tuple(recorded.group_tombstones(left)))
                self._written.settle_memory()
                journal.answer(request_id, DeletableGroupResult(group_id))

        if ids:
            yield from self._states.delete(group_id, ids, pace, done=done, request_id=request_id)
        else:
            yield from done((), pace)

    # How.

    def _begin_deletion(
        self, request_id: RequestId, group: ShareGroup, topics: Mapping[TopicId, str], pace: Pace
    ) -> Pieces[tuple[StateId, ...]]:
        """Record that what there is of topics is to go. Returns the states."""
        ids = yield from self._states.ids_to_delete(group.known_states, topics, pace)
        states = yield from group.known_states.ending(topics, pace)
        self._work.keep(request_id)
        if ids and states != group.known_states:
            record = yield from recorded.states_record(group.group_id, states, pace)
            self._written.write(group.group_id, (record,))
        return ids

    def _check_room(self, group: ShareGroup, states: RecordedStates) -> None:
        more_bytes = states.size_bytes - group.known_states.size_bytes
        if group.group_id not in self._written.groups:
            more_bytes += group.size_bytes
        if not self._written.has_room(more_bytes):
            memory = self._written.journal.memory
            raise refusal(
                Code.GROUP_MAX_SIZE_REACHED,
                f"group {group.group_id!r}: {more_bytes} bytes more find no room beside the {memory.used_bytes} bytes "
                f"of all groups of this node (group.coordinator.memory.bytes is {memory.limit_bytes})",
            )

    def _empty_group(self, group_id: str, *, may_be_new: bool = False) -> ShareGroup:
        if not group_id:
            raise refusal(Code.INVALID_GROUP_ID, "the group id is empty")
        if len(group_id) > NAME_SIZE_BYTES_MAX // 4 and len(group_id.encode()) > NAME_SIZE_BYTES_MAX:
            raise refusal(Code.INVALID_GROUP_ID, f"the group id is longer than {NAME_SIZE_BYTES_MAX} bytes")
        group = self._written.groups.get(group_id)
        if group is None:
            if self._is_of_another_kind(group_id):
                raise refusal(Code.GROUP_ID_NOT_FOUND, f"group {group_id!r} is no share group")
            if not may_be_new:
                raise refusal(Code.GROUP_ID_NOT_FOUND, f"there is no share group {group_id!r}")
            return ShareGroup(group_id)
        _check_empty(group)
        return group


def _check_empty(group: ShareGroup) -> None:
    if group.subscriptions:
        raise _non_empty(group)


def _non_empty(group: ShareGroup) -> KafkaError:
    return refusal(Code.NON_EMPTY_GROUP, f"group {group.group_id!r} is {group.state.value}: stop its members first")


def _refused(ids: tuple[StateId, ...], outcomes: StateOutcomes, pace: Pace) -> Pieces[dict[TopicId, KafkaError]]:
    """An error of each topic that has one. A state that is gone with its topic is none."""
    refused: dict[TopicId, KafkaError] = {}
    for (topic_id, _), error in zip(ids, outcomes, strict=True):
        if error is not None and not is_of_no_topic(error):
            refused[topic_id] = error
        if pace.counts(1):
            yield
    return refused
