"""A member of a share group that speaks its requests, one at a time to each broker (KIP-932).

```
 ShareMember ──► ShareGroupHeartbeat: comes, lives, is told what it reads, leaves
   └─ ShareReader, one for each leader ──► ShareFetch: acquires, and acknowledges on the way
                                       └─► ShareAcknowledge
```

A reader whose session ends has nothing any more: its leader gives its records to others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

from tidelog.base.errors import Code, KafkaError, NetworkError, refusal
from tidelog.base.ids import BrokerId, LeaderEpoch, PartitionIndex, TopicPartition
from tidelog.client.core.values import code_of
from tidelog.net.connection import Connection
from tidelog.records import read_records, split_whole_batches
from tidelog.share import AcknowledgeType
from tidelog.sim.checkers.share_groups import Acquisition
from tidelog.sim.checkers.views import Record
from tidelog.sim.runs.coordinator_requests import REQUEST_MS, CoordinatorRequests, check_code
from tidelog.sim.runs.group_members import GroupReads
from tidelog.sim.runs.share_plan import SharePlan
from tidelog.sim.runs.share_recorder import AskedLeader, GivenRecords, ShareRecorder
from tidelog.wire.messages.api_10_find_coordinator import KEY_TYPE_GROUP
from tidelog.wire.messages.api_76_share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tidelog.wire.messages.api_78_share_fetch import (
    ACQUIRE_AT_MOST,
    ACQUIRE_WHOLE_BATCHES,
    CLOSE_SESSION_EPOCH,
    OPEN_SESSION_EPOCH,
    ShareAcknowledgementBatch,
    ShareFetchForgottenTopic,
    ShareFetchPartition,
    ShareFetchPartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
)
from tidelog.wire.messages.api_79_share_acknowledge import (
    ShareAcknowledgePartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopic,
)

REQUEST_CLASS = "share"
HEARTBEAT_VERSION, FETCH_VERSION, ACKNOWLEDGE_VERSION = 1, 2, 2
JOIN_EPOCH, LEAVE_EPOCH = 0, -1
CONNECT_SECONDS_MAX = 1.0
FETCH_BYTES_MAX = 1 << 20
OUT = frozenset((Code.UNKNOWN_MEMBER_ID, Code.FENCED_MEMBER_EPOCH, Code.GROUP_ID_NOT_FOUND))
"""Who is told one of these is no member, or not as it believes."""
NOT_MINE = frozenset((Code.INVALID_RECORD_STATE, Code.NOT_LEADER_OR_FOLLOWER, Code.FENCED_LEADER_EPOCH))
"""Who is told one of these about records does not have them any more."""

R = TypeVar("R", ShareFetchResponse, ShareAcknowledgeResponse)
Acknowledgements = Sequence[tuple[Acquisition, AcknowledgeType]]


class ShareReader:
    """Acquires records of the partitions that one broker leads.

    Args:
        member_id: whose they are.
        broker: the leader.

    Attributes:
        held: what the member has and has said nothing of, in the order in which it came.
    """

    def __init__(
        self,
        reads: GroupReads,
        plan: SharePlan,
        requests: CoordinatorRequests,
        recorder: ShareRecorder,
        *,
        member_id: str,
        broker: BrokerId,
    ) -> None:
        self.held: dict[Acquisition, None] = {}
        self._member_id = member_id
        self._broker = broker
        self._reads = reads
        self._plan = plan
        self._requests = requests
        self._recorder = recorder
        self._topic_id = topic_id_of(requests, reads.topic)
        self._connection: Connection | None = None
        self._epoch = OPEN_SESSION_EPOCH
        self._fetched: set[TopicPartition] = set()

    async def fetch(
        self, partitions: Collection[TopicPartition], acknowledgements: Acknowledgements, wait_ms: int
    ) -> list[Acquisition]:
        """Say what became of records, and acquire others. Returns what is new.

        Args:
            partitions: that are to be read. What was read before and is not among them is read no more.
            wait_ms: for records, if there are none.

        Raises:
            TidelogError: there is no answer, or one that ends the session.
        """
        await self._connect()
        is_opening = self._epoch == OPEN_SESSION_EPOCH
        told = {} if is_opening else by_partition(acknowledgements)
        is_renewing = any(type_ is AcknowledgeType.RENEW for one in told.values() for _, type_ in one)
        new = sorted(set(partitions) - self._fetched | told.keys())
        gone = self._fetched - set(partitions)  # even if something is said of it: the session ends without it
        forgotten = [int(one.partition) for one in sorted(gone)]
        topics = [ShareFetchPartition(int(one.partition), batches_of(told.get(one, ()))) for one in new]
        is_strict = self._plan.is_strict
        request = ShareFetchRequest(
            group_id=self._reads.group,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=0 if is_renewing else wait_ms,
            min_bytes=0 if is_renewing else 1,
            max_bytes=0 if is_renewing else FETCH_BYTES_MAX,
            max_records=0 if is_renewing else self._plan.records_max,
            batch_size=self._plan.records_max,
            share_acquire_mode=ACQUIRE_AT_MOST if is_strict else ACQUIRE_WHOLE_BATCHES,
            is_renew_ack=is_renewing,
            topics=[ShareFetchTopic(self._topic_id, topics)] if topics else [],
            forgotten_topics_data=[ShareFetchForgottenTopic(self._topic_id, forgotten)] if forgotten else [],
        )
        fetched = self._fetched.union(partitions, told)
        asked = self._recorder.asked(self._member_id, self._broker, fetched)
        self._on_said(told)
        try:
            answer = await self._ask(request, ShareFetchResponse, FETCH_VERSION)
        except BaseException as error:
            if not is_renewing and not _has_no_session(error):
                self._recorder.on_untold(sorted(fetched))
            self._on_unanswered(told, error)
            raise
        rows = {self._partition(row.partition_index): row for one in answer.responses for row in one.partitions}
        self._fetched = fetched - gone
        self._epoch += 1
        self._on_acknowledged(told, {each: row.acknowledge_error_code for each, row in rows.items()}, asked)
        found: list[Acquisition] = []
        for partition, row in rows.items():
            if row.error_code:
                self._on_lost(partition)
                self._requests.cluster.refresh_soon()
            elif row.acquired_records:
                given = GivenRecords(partition, acquired(row))
                found += self._recorder.on_given(self._member_id, given, asked, self._broker)
        self._forget_earlier(found)
        self.held.update(dict.fromkeys(found))
        return found

    async def acknowledge(self, acknowledgements: Acknowledgements, *, is_last: bool = False) -> None:
        """Say what became of records.

        Args:
            is_last: whether that is the end of the session.

        Raises:
            TidelogError: there is no answer, or one that ends the session.
        """
        await self._connect()
        if self._epoch == OPEN_SESSION_EPOCH:
            return
        told = by_partition(acknowledgements)
        topics = [ShareAcknowledgePartition(int(each.partition), batches_of(one)) for each, one in told.items()]
        request = ShareAcknowledgeRequest(
            group_id=self._reads.group,
            member_id=self._member_id,
            share_session_epoch=CLOSE_SESSION_EPOCH if is_last else self._epoch,
            is_renew_ack=any(type_ is AcknowledgeType.RENEW for one in told.values() for _, type_ in one),
            topics=[ShareAcknowledgeTopic(self._topic_id, topics)] if topics else [],
        )
        asked = self._recorder.asked(self._member_id, self._broker, told)
        self._on_said(told)
        try:
            answer = await self._ask(request, ShareAcknowledgeResponse, ACKNOWLEDGE_VERSION)
        except BaseException as error:
            self._on_unanswered(told, error)
            raise
        self._epoch += 1
        rows = [row for one in answer.responses for row in one.partitions]
        self._on_acknowledged(told, {self._partition(row.partition_index): row.error_code for row in rows}, asked)
        if is_last:
            self.end()

    def end(self) -> None:
        """The session is over, or is taken for it: the member has nothing any more."""
        for one in self.held:
            one.is_open = False
        self.held.clear()
        self._fetched.clear()
        self._epoch = OPEN_SESSION_EPOCH

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                connection = await self._requests.cluster.broker(self._broker, REQUEST_CLASS)
        except TimeoutError as error:
            raise NetworkError(f"broker {self._broker} is not reached") from error
        if connection is not self._connection:
            self.end()
            self._connection = connection

    async def _ask(self, request: object, response: type[R], version: int) -> R:
        connection = self._connection
        assert connection is not None
        try:
            answer = await connection.request(request, response, timeout_ms=REQUEST_MS, version=version)
            check_code(answer.error_code, f"{type(request).__name__}: {answer.error_message}")
        except BaseException:
            self.end()
            raise
        return answer

    def _on_said(self, told: Mapping[TopicPartition, Acknowledgements]) -> None:
        """The broker is about to be told: from here on others may have these records."""
        for one, type_ in (each for some in told.values() for each in some):
            if type_ is not AcknowledgeType.RENEW:
                one.is_open = False

    def _on_acknowledged(
        self, told: Mapping[TopicPartition, Acknowledgements], codes: Mapping[TopicPartition, int], asked: AskedLeader
    ) -> None:
        for partition, some in told.items():
            code = code_of(codes.get(partition, Code.UNKNOWN_SERVER_ERROR.value))
            for one, type_ in some:
                self._recorder.on_acknowledged(one, type_, code)
                if code is Code.NONE and type_ is AcknowledgeType.RENEW:
                    one.until_ms = max(one.until_ms, asked.now_ms + self._plan.lock_ms)
                elif code is Code.NONE or code in NOT_MINE:
                    one.is_open = False
                    self.held.pop(one, None)

    def _on_unanswered(self, told: Mapping[TopicPartition, Acknowledgements], error: BaseException) -> None:
        for one, type_ in (each for some in told.values() for each in some):
            self._recorder.on_acknowledged(one, type_, Code.SHARE_SESSION_NOT_FOUND if _has_no_session(error) else None)

    def _forget_earlier(self, found: Iterable[Acquisition]) -> None:
        """What it is given once more it has no longer from before: to name it twice is refused, with all beside it."""
        again = {(one.partition, one.offset) for one in found}
        for one in [one for one in self.held if (one.partition, one.offset) in again]:
            one.is_open = False
            del self.held[one]

    def _on_lost(self, partition: TopicPartition) -> None:
        """The broker does not deliver its records, or not as it did."""
        for one in [one for one in self.held if one.partition == partition]:
            one.is_open = False
            del self.held[one]

    def _partition(self, index: int) -> TopicPartition:
        return TopicPartition(self._reads.topic, PartitionIndex(index))


class ShareMember:
    """See the module.

    Args:
        member_id: it makes its own.

    Attributes:
        epoch: the member epoch; None while it is no member.
        assigned: what it reads, as it was told last.
        readers: by leader.
    """

    def __init__(
        self,
        reads: GroupReads,
        plan: SharePlan,
        requests: CoordinatorRequests,
        recorder: ShareRecorder,
        *,
        member_id: UUID,
    ) -> None:
        self.member_id = str(member_id)
        self.epoch: int | None = None
        self.assigned: frozenset[TopicPartition] = frozenset()
        self.readers: dict[BrokerId, ShareReader] = {}
        self._reads = reads
        self._plan = plan
        self._requests = requests
        self._recorder = recorder

    async def beat(self) -> None:
        """Come, or say that it lives; be told what there is to read.

        Raises:
            TidelogError: there is no answer that says whether it is a member.
        """
        sent_epoch = self.epoch
        request = ShareGroupHeartbeatRequest(
            group_id=self._reads.group,
            member_id=self.member_id,
            member_epoch=JOIN_EPOCH if sent_epoch is None else sent_epoch,
            subscribed_topic_names=[self._reads.topic] if sent_epoch is None else None,
        )
        answer = await self._ask(request)
        code = code_of(answer.error_code)
        if code in OUT:
            self.epoch, self.assigned = None, frozenset()
            return
        if code is not Code.NONE:
            self._requests.forget()
        check_code(code, f"ShareGroupHeartbeat: {answer.error_message}")
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.assigned = frozenset(
                TopicPartition(self._reads.topic, PartitionIndex(index))
                for row in answer.assignment.topic_partitions
                for index in row.partitions
            )

    async def leave(self) -> None:
        """Say that it goes. Raises TidelogError where nobody heard it."""
        request = ShareGroupHeartbeatRequest(
            group_id=self._reads.group, member_id=self.member_id, member_epoch=LEAVE_EPOCH
        )
        await self._ask(request)

    async def by_leader(self) -> dict[ShareReader, list[TopicPartition]]:
        """What is to be read from whom, as far as it is known. Raises TidelogError where nobody tells it."""
        cluster = self._requests.cluster
        if cluster.metadata.topic_id(self._reads.topic) is None:
            cluster.want([self._reads.topic])
            await cluster.fetch_metadata([self._reads.topic])
        found: dict[ShareReader, list[TopicPartition]] = {one: [] for one in self.readers.values()}
        for partition in sorted(self.assigned):
            view = cluster.metadata.partition(partition)
            if view is None or view.leader_id is None:
                cluster.refresh_soon()
                continue
            reader = self.readers.get(view.leader_id)
            if reader is None:
                reader = self.readers[view.leader_id] = ShareReader(
                    self._reads,
                    self._plan,
                    self._requests,
                    self._recorder,
                    member_id=self.member_id,
                    broker=view.leader_id,
                )
            found.setdefault(reader, []).append(partition)
        return found

    def on_failure(self) -> None:
        """Somebody could not be asked: another may lead by now."""
        self._requests.cluster.refresh_soon()

    def end(self) -> None:
        """It does nothing any more."""
        for reader in self.readers.values():
            reader.end()

    async def _ask(self, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        answer, _ = await self._requests.ask(
            self._reads.group, KEY_TYPE_GROUP, request, ShareGroupHeartbeatResponse, HEARTBEAT_VERSION
        )
        return answer


def _has_no_session(error: BaseException) -> bool:
    """Whether a request did nothing, as its session was over."""
    return isinstance(error, KafkaError) and error.code is Code.SHARE_SESSION_NOT_FOUND


def topic_id_of(requests: CoordinatorRequests, topic: str) -> UUID:
    """Of a topic, as the client has heard. Raises KafkaError where it has not."""
    found = requests.cluster.metadata.topic_id(topic)
    if found is None:
        raise refusal(Code.UNKNOWN_TOPIC_OR_PARTITION, f"nobody knows the id of {topic}")
    return found


def by_partition(acknowledgements: Acknowledgements) -> dict[TopicPartition, Acknowledgements]:
    """What is said of each partition, by offset."""
    found: dict[TopicPartition, list[tuple[Acquisition, AcknowledgeType]]] = {}
    for one, type_ in sorted(acknowledgements, key=lambda each: (each[0].partition, each[0].offset)):
        found.setdefault(one.partition, []).append((one, type_))
    return dict(found)


def batches_of(acknowledgements: Iterable[tuple[Acquisition, AcknowledgeType]]) -> list[ShareAcknowledgementBatch]:
    """As a request says it: one batch of records that follow each other, one type for each."""
    found: list[ShareAcknowledgementBatch] = []
    for one, type_ in acknowledgements:
        if found and found[-1].last_offset + 1 == one.offset:
            found[-1].last_offset = one.offset
            found[-1].acknowledge_types.append(type_.value)
        else:
            found.append(ShareAcknowledgementBatch(one.offset, one.offset, [type_.value]))
    return found


def acquired(row: ShareFetchPartitionData) -> list[tuple[int, Record, int]]:
    """(offset, record, delivery count) of what a partition's row gives the member."""
    assert isinstance(row.records, bytes | bytearray | memoryview)
    data = bytes(row.records)
    records: dict[int, Record] = {
        record.offset: (LeaderEpoch(header.leader_epoch), bytes(record.value or b""))
        for position, header in split_whole_batches(data)
        for record in read_records(data, position)
    }
    return [
        (offset, records[offset], one.delivery_count)
        for one in row.acquired_records
        for offset in range(one.first_offset, one.last_offset + 1)
        if offset in records
    ]
