"""Produce 3-13: append batches to the partitions that this broker leads.

Behaviour: each partition stands for itself; what is acknowledged has been written, stamped with the leader epoch
(KIP-101), and synced first where `flush.messages` asks for it. acks=all is answered once all in sync have it, and
`min.insync.replicas` at least; REQUEST_TIMED_OUT says that this took longer than the request allows: the records may be
committed yet. A leader that is cut off from its followers answers acks=all with NOT_LEADER_OR_FOLLOWER within a
broker's session, before and after the append: on NOT_ENOUGH_REPLICAS clients do not look for another leader. A
duplicate of an idempotent producer is answered with the offsets of the original, and with acks=all once that is
committed. Who asked the wrong broker is told where the leader is (10+, KIP-951). acks=0 has no answer: where it fails,
the connection is closed, which is all that the protocol offers. The first batch of a transaction on a partition is
appended once the producer's transaction coordinator has said that it belongs to one (KIP-890). Internal topics take
records from their coordinators and, as in Kafka, from clients that call themselves `__admin_client`. A producer whose
batch is out of order, in a partition with an unclean election, is noted (told_readers.py).

What takes longer than a turn of the event loop is checked on another thread: two kilobytes may hold 64 MiB of records.
The rows behind it in the request wait for it. Many rows are appended in turns, with others served in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from tidelog.base.errors import (
    Code,
    DiskError,
    InvalidRecordsError,
    InvariantBrokenError,
    KafkaError,
    MalformedMessageError,
    refusal,
)
from tidelog.base.ids import LeaderEpoch, ProducerId, TopicId
from tidelog.base.invariant import invariant
from tidelog.log import AppendResult, Checked, Outcome, TakesLongError
from tidelog.metadata.configs.coordinators import TRANSACTION_PARTITION_VERIFICATION_ENABLE
from tidelog.records.header import BATCH_OVERHEAD, read_header
from tidelog.server.api.leader_hints import WRONG_LEADER, endpoints_of, leader_of
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.server.api.told_readers import ReaderName
from tidelog.server.api.transactional_produce import (
    ADDS_FROM_VERSION,
    CONTINUES,
    TOPIC_IDS_FROM_VERSION,
    UNASKED,
    Beginning,
    Verdicts,
    Verification,
    beginnings,
    no_room_to_wait,
    verified,
)
from tidelog.server.replication.partition import Partition, check_is_one
from tidelog.server.transport.turns import Turn
from tidelog.wire.messages.api_00_produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import DataApi, TransactionsApi

LEADERS_FROM_VERSION = 10

ADMIN_CLIENT_ID = "__admin_client"

BATCH_NS_MAX = 2_000_000
"""What one batch may take on the event loop, by these estimates; of compressed ones see `AppendRules`."""
RECORD_NS = 40
BYTES_PER_NS = 2
_RECORD_COUNT_AT = slice(57, 61)

WHY_NOT_COMMITTED = {
    Code.REQUEST_TIMED_OUT: "written, and not committed within the time that the request allows; it may be yet",
    Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "written, and then too few replicas were in sync; it may be committed yet",
    Code.NOT_LEADER_OR_FOLLOWER: "written, and then the leadership ended, or too few followers fetch for anything to "
    "be committed here; what the next leader has stays",
}


def handle(
    node: TransactionsApi, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    gathering = context.gathering
    if gathering is not None and (request.transactional_id is not None or not request.acks):
        gathering.perform()
        context.gathering = None
    if request.transactional_id is None:
        return _append_all(node, request, context, {})
    adds = context.api_version >= ADDS_FROM_VERSION
    if not adds and not node.broker_settings[TRANSACTION_PARTITION_VERIFICATION_ENABLE]:
        return _append_all(node, request, context, None)
    asked = beginnings(node, request, context)
    if asked:
        return _append_when_verified(node, request, context, asked)
    return _append_all(node, request, context, {})


def _append_when_verified(
    node: TransactionsApi, request: ProduceRequest, context: RequestContext, asked: list[Beginning]
) -> Awaitable[ProduceResponse | None]:
    """The bytes of the request are another's as soon as this returns: the connection reads on. So they are copied."""
    rows = [data for topic in request.topic_data for data in topic.partition_data]
    size_bytes = 0
    for data in rows:
        if isinstance(data.records, memoryview):
            data.records = memoryview(bytearray(data.records))
            size_bytes += len(data.records)
    return _verify_and_append(node, request, context, asked, size_bytes)


async def _verify_and_append(
    node: TransactionsApi, request: ProduceRequest, context: RequestContext, asked: list[Beginning], size_bytes: int
) -> ProduceResponse | None:
    with context.connection.memory.kept() as kept:
        if kept.hold(size_bytes):
            verdicts = await verified(node, request, context, asked)
        else:
            verdicts = {id(one.data): no_room_to_wait() for one in asked}
        context.kept = kept
        response = _append_all(node, request, context, verdicts)
        return await response if isinstance(response, Awaitable) else response


def _append_all(
    node: DataApi, request: ProduceRequest, context: RequestContext, verdicts: Verdicts | None
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    by_id = context.header.api_version >= TOPIC_IDS_FROM_VERSION
    response = ProduceResponse(responses=[])
    owed = _Owed(request.timeout_ms, request.acks, context, response)
    later: list[tuple[_Row, bool]] = []
    at_once, turn = True, Turn(node.clock)
    turn.begin()
    for topic in request.topic_data:
        name = topic.topic_id if by_id else topic.name
        rows: list[PartitionProduceResponse] = []
        response.responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows)
        )
        for data in topic.partition_data:
            row = _make_row((name, data, UNASKED if verdicts is None else verdicts.get(id(data), CONTINUES), rows))
            takes_long = _takes_long(data.records)
            if at_once and not takes_long:
                try:
                    rows.append(_append(node, row, owed))
                    at_once = not turn.is_over
                    continue
                except TakesLongError:
                    takes_long = True
            at_once = False
            later.append((row, takes_long))
            owed.append_by_itself()
    if later:
        if context.kept is None:
            context.kept, owed.keeps_frame = context.connection.keep_frame(), True
        return _append_later(node, later, owed, turn)
    return _answered(node, owed, response, context)


def _takes_long(records: object) -> bool:
    """Whether a batch takes more than its share of a turn, by what its header claims: more, if that is wrong."""
    if not isinstance(records, memoryview) or len(records) < BATCH_OVERHEAD:
        return False
    count = int.from_bytes(records[_RECORD_COUNT_AT], "big")
    return len(records) // BYTES_PER_NS + RECORD_NS * count > BATCH_NS_MAX


async def _append_later(
    node: DataApi, later: list[tuple[_Row, bool]], owed: _Owed, turn: Turn
) -> ProduceResponse | None:
    """Append the rows in their order, those that take long once they were checked on another thread."""
    context = owed.context
    assert context.kept is not None
    try:
        for row, takes_long in later:
            if turn.is_over:
                await asyncio.sleep(0)
                turn.begin()
            checked = await _checked(node, row) if takes_long else None
            while True:
                try:
                    row.rows.append(_append(node, row, owed, checked))
                    break
                except TakesLongError:  # it does, after all, or the settings of the log changed meanwhile
                    checked = await _checked(node, row)
    finally:
        later.clear()
        context.kept.hold(0)
        if owed.keeps_frame:
            context.connection.let_frame_go()
    answer = _answered(node, owed, owed.response, context)
    return await answer if isinstance(answer, Awaitable) else answer


async def _checked(node: DataApi, row: _Row) -> Checked | KafkaError | None:
    """What was found; None where the append refuses it anyway."""
    records = row.data.records
    if row.verdict.refusal is not None or not isinstance(records, memoryview) or not len(records):
        return None
    try:
        partition = _partition(node, row)
        partition.leader()
        check_is_one(records)
        check = partition.log.rules.check_for_leader
        return await node.executor.compute(partial(check, records, now_ms=node.clock.wall_ms(), origin="client"))
    except KafkaError as error:
        return error


def _answered(
    node: DataApi, owed: _Owed, response: ProduceResponse, context: RequestContext
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    acks = owed.acks
    if owed.unsynced or owed.uncommitted:
        return _answer_when_safe(node, owed, response, acks, context)
    if owed.wrong_leader:
        _add_leaders(node, owed, response, context)
    return _answer(response, acks)


def _add_leaders(node: DataApi, owed: _Owed, response: ProduceResponse, context: RequestContext) -> None:
    """To those that asked the wrong broker, where the right one is (KIP-951), if it is another as far as is known."""
    for topic, row in owed.wrong_leader:
        leader_id, leader_epoch = leader_of(node.image, topic, row.index)
        if leader_id != node.config.node_id:
            row.current_leader = LeaderIdAndEpoch(leader_id, leader_epoch)
    if context.api_version >= LEADERS_FROM_VERSION:
        leaders = [row.current_leader.leader_id for _, row in owed.wrong_leader if row.current_leader is not None]
        listener_name = context.connection.listener_name
        response.node_endpoints = endpoints_of(node.image, leaders, listener_name, NodeEndpoint)


def _answer(response: ProduceResponse, acks: int) -> ProduceResponse | None:
    if acks:
        return response
    for topic in response.responses:
        for row in topic.partition_responses:
            if row.error_code:
                raise MalformedMessageError(
                    "a produce request with acks=0 failed, which only a close can tell its producer: "
                    f"{Code(row.error_code).name}: {row.error_message}"
                )
    return None


class _Row(NamedTuple):
    """A batch of a request, and where its answer goes."""

    topic: UUID | str
    data: PartitionProduceData
    verdict: Verification
    rows: list[PartitionProduceResponse]


_make_row = partial(tuple.__new__, _Row)  # as the constructor, at a third of its price


class _Owed:
    """What is asked for all rows of a request, and what is to be waited for before it is answered, row by row."""

    __slots__ = (
        "acks",
        "context",
        "gathering",
        "is_admin",
        "keeps_frame",
        "response",
        "timeout_ms",
        "uncommitted",
        "unsynced",
        "wrong_leader",
    )

    def __init__(self, timeout_ms: int, acks: int, context: RequestContext, response: ProduceResponse) -> None:
        self.timeout_ms = timeout_ms
        self.acks = acks
        self.context = context
        self.is_admin = context.header.client_id == ADMIN_CLIENT_ID
        self.keeps_frame = False
        self.gathering = context.gathering
        self.response = response
        self.unsynced: list[tuple[Partition, PartitionProduceResponse]] = []
        self.uncommitted: list[tuple[asyncio.Future[Code], str | UUID, PartitionProduceResponse]] = []
        self.wrong_leader: list[tuple[str | UUID, PartitionProduceResponse]] = []

    def append_by_itself(self) -> None:
        """What was staged is appended now, and what follows at once."""
        if self.gathering is not None:
            self.gathering.perform()
            self.gathering = None


async def _answer_when_safe(
    node: DataApi, owed: _Owed, response: ProduceResponse, acks: int, context: RequestContext
) -> ProduceResponse | None:
    for partition, row in owed.unsynced:
        try:
            await node.files.served.flush(partition)
        except DiskError as error:
            node.broker.failures.on_disk_error(partition, error)
            row.error_code, row.base_offset, row.error_message = Code.KAFKA_STORAGE_ERROR, -1, str(error)
    for committed, topic, row in owed.uncommitted:
        code = await committed
        if code and not row.error_code:
            row.error_code, row.base_offset, row.error_message = code, -1, WHY_NOT_COMMITTED.get(code)
            if code in WRONG_LEADER:
                owed.wrong_leader.append((topic, row))
    if owed.wrong_leader:
        _add_leaders(node, owed, response, context)
    return _answer(response, acks)


def _note_producer(node: DataApi, partition: Partition, producer_id: int, context: RequestContext) -> None:
    """What came before its batch is not in the log: after an unclean election it may be what was lost."""
    state = node.image.partition(*partition.topic_partition)
    if state is None or state.unclean_epoch is None:
        return
    log = partition.log
    kept = log.lineage.end_offset_for(LeaderEpoch(state.unclean_epoch - 1), log.log_end_offset)
    if kept is not None:
        producer = ReaderName(context.header.client_id or "", context.connection.peer.rpartition(":")[0])
        names, now_ms = (partition.topic_partition, partition.topic_id), node.clock.wall_ms()
        node.told_readers.note(*names, producer, kept, now_ms, producer_id=ProducerId(producer_id))


def _partition(node: DataApi, row: _Row) -> Partition:
    if isinstance(row.topic, str):
        return node.broker.partition(row.topic, row.data.index)
    return node.broker.partition_by_id(TopicId(row.topic), row.data.index)


def _append(
    node: DataApi, row: _Row, owed: _Owed, checked: Checked | KafkaError | None = None
) -> PartitionProduceResponse:
    """Append a batch, and say where it is, or why it is not.

    Raises:
        TakesLongError: it is to be checked on another thread first; nothing was changed.
    """
    topic, data, verdict, _ = row
    acks = owed.acks
    partition: Partition | None = None
    try:
        if verdict.refusal is not None:
            raise verdict.refusal
        if acks not in (-1, 0, 1):
            raise refusal(Code.INVALID_REQUIRED_ACKS, f"acks is {acks}; it must be -1 (all), 0 or 1")
        partition = _partition(node, row)
        if partition.is_internal and not owed.is_admin:
            name = partition.topic_partition.topic
            raise refusal(Code.INVALID_TOPIC_EXCEPTION, f"{name} is written by its coordinators alone")
        records = data.records
        if not isinstance(records, memoryview) or not len(records):
            raise refusal(Code.INVALID_RECORD, "no batch was sent")
        if isinstance(checked, KafkaError):
            raise checked
        gathering = owed.gathering
        if gathering is not None:
            if partition.answers_at_append(acks_all=acks == -1):
                fine = partition.check(records, acks_all=acks == -1, now_ms=node.clock.wall_ms())
                answer = PartitionProduceResponse(data.index)
                gathering.stage(node, _append_staged, _make_staged((partition, fine, row, owed, answer)))
                return answer
            owed.append_by_itself()
        result = partition.append(
            records,
            acks_all=acks == -1,
            now_ms=node.clock.wall_ms(),
            verification_guard=verdict.guard,
            checked=checked,
            at_once=True,
        )
    except (KafkaError, DiskError) as error:
        answer = PartitionProduceResponse(data.index)
        _refuse(node, error, answer, partition=partition, row=row, owed=owed)
        return answer
    except InvariantBrokenError as error:
        if partition is not None:
            node.broker.failures.on_bug(partition, error)
        raise
    answer = PartitionProduceResponse(data.index)
    _accept(answer, result)
    if acks != -1 and partition.is_sync_awaited:
        owed.unsynced.append((partition, answer))
    if acks == -1 and result.last_offset >= partition.high_watermark:
        owed.uncommitted.append((partition.committed(result.last_offset + 1, owed.timeout_ms), topic, answer))
    return answer


def _accept(answer: PartitionProduceResponse, result: AppendResult) -> None:
    answer.base_offset = result.first_offset
    answer.log_append_time_ms = -1 if result.log_append_time_ms is None else result.log_append_time_ms
    answer.log_start_offset = result.log_start_offset


def _refuse(
    node: DataApi,
    error: KafkaError | DiskError,
    answer: PartitionProduceResponse,
    *,
    partition: Partition | None,
    row: _Row,
    owed: _Owed,
) -> None:
    """Say in the answer why a batch was not appended."""
    topic, data, _, _ = row
    answer.base_offset, answer.error_message = -1, str(error)
    if isinstance(error, DiskError):
        assert partition is not None
        node.broker.failures.on_disk_error(partition, error)
        answer.error_code = Code.KAFKA_STORAGE_ERROR
        return
    answer.error_code = code_of(error, f"Produce {topic}-{data.index}")
    if isinstance(error, InvalidRecordsError):
        answer.record_errors = [BatchIndexAndErrorMessage(index, fault) for index, fault in error.record_errors]
    if answer.error_code in WRONG_LEADER:
        owed.wrong_leader.append((topic, answer))
    elif (
        answer.error_code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
        and partition is not None
        and isinstance(data.records, memoryview)
    ):
        _note_producer(node, partition, read_header(data.records).producer_id, owed.context)


def refused_alone(
    node: DataApi, error: KafkaError | DiskError, request: ProduceRequest, context: RequestContext, partition: Partition
) -> ProduceResponse:
    """The answer to a request of one batch, which was not appended to `partition`."""
    (topic,) = request.topic_data
    (data,) = topic.partition_data
    name = topic.topic_id if context.header.api_version >= TOPIC_IDS_FROM_VERSION else topic.name
    answer = PartitionProduceResponse(data.index)
    rows = [answer]
    response = ProduceResponse(
        responses=[TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows)]
    )
    owed = _Owed(request.timeout_ms, request.acks, context, response)
    _refuse(node, error, answer, partition=partition, row=_make_row((name, data, UNASKED, rows)), owed=owed)
    if owed.wrong_leader:
        _add_leaders(node, owed, response, context)
    return response


class _Staged(NamedTuple):
    """A batch that is appended with those that came with it, and the row that says where then."""

    partition: Partition
    checked: Checked
    row: _Row
    owed: _Owed
    answer: PartitionProduceResponse


_make_staged = partial(tuple.__new__, _Staged)


def _append_staged(node: DataApi, staged: list[_Staged]) -> None:
    """Append what came together, all that is for one partition at once, and fill in the rows."""
    by_partition: dict[Partition, list[_Staged]] = {}
    for one in staged:
        by_partition.setdefault(one[0], []).append(one)
    now_ms = node.clock.wall_ms()
    for partition, those in by_partition.items():
        outcomes: Sequence[Outcome]
        try:
            outcomes = partition.append_together([one[1] for one in those], now_ms=now_ms)
        except KafkaError as error:
            outcomes = [error] * len(those)
        except InvariantBrokenError as error:
            node.broker.failures.on_bug(partition, error)
            raise
        high_watermark = partition.high_watermark
        for (_, _, row, owed, answer), outcome in zip(those, outcomes, strict=True):
            if not isinstance(outcome, AppendResult):
                _refuse(node, outcome, answer, partition=partition, row=row, owed=owed)
                if owed.wrong_leader:
                    _add_leaders(node, owed, owed.response, owed.context)
                continue
            _accept(answer, outcome)
            if owed.acks == -1:
                invariant(outcome.last_offset < high_watermark, "{}: not committed", partition.topic_partition)
