"""Produce requests that repeat one before them in all but their correlation id and their batch.

    first    api  version  client id  acks  timeout  topic  partition │ correlation id │ batch
    again    `-------------------- the same bytes ------------------' │       +1       │ another

A producer sends such requests one after another. What the same bytes mean is read once (`Form`). A request of a known
form is not decoded: its batch is checked and staged. What all connections sent is appended when the event loop has
read them, all that is for one partition with one write, and the answers are made of the forms. Nothing is decided
here: whatever is not so plain, or is refused before the append, is left to the handler, which looks at it anew.

    connection 1 ▶ stage, stage ─┐                     ┌─▶ answers
    connection 2 ▶ stage ────────┼─▶ append by partition ─▶ answer
    connection 3 ▶ stage, stage ─┘                     └─▶ answers

Kafka: none; `KafkaApis.handleProduceRequest` decodes each request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tidelog.base.errors import Code, DiskError, InvariantBrokenError, KafkaError, refusal
from tidelog.base.ids import TopicId
from tidelog.base.invariant import invariant
from tidelog.log import AppendResult, Checked, Outcome, TakesLongError
from tidelog.server.api.gathering import FRAME_BYTES_MAX, REQUESTS_MAX
from tidelog.server.api.handlers.api_00_produce import refused_alone
from tidelog.server.api.request_context import RequestContext
from tidelog.server.replication.partition import Partition, check_is_one
from tidelog.server.transport.gathered import Gathered
from tidelog.server.transport.listener_roles import BROKER
from tidelog.server.transport.turns import Turn
from tidelog.wire import ApiKey, Piece, api, decode, decode_request_header, encode_response
from tidelog.wire.messages.api_00_produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tidelog.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.server.api.ports import DataApi
    from tidelog.server.settings.metrics import RequestMetrics
    from tidelog.server.transport.server_connection import ServerConnection
    from tidelog.wire._choose import SplitProduce

FORMS_MAX = 2_048
"""Of 1 KiB each at most, for all connections of a listener; where there are more, they are learnt anew."""
RUNS_ALONE = 16
"""So many runs of one connection, with none of another's between them, and it waits for no others any more: that costs
a tenth of what a request costs that comes alone.
"""

_PRODUCE = api(ApiKey.PRODUCE)
_APPENDED = ProduceResponse(responses=[])  # in which no error is to be counted


class Form:
    """What requests of the same bytes mean, and how those of them are answered that are appended.

    Attributes:
        parts: of such an answer, what is the same in all: its size, what is behind its correlation id, and its end.
        pack: makes one of (size, correlation id, middle, base offset, log append time, log start offset, end).
    """

    __slots__ = ("acks_all", "api_version", "index", "pack", "parts", "topic")

    def __init__(self, frame: memoryview) -> None:
        """Read the first of them. Raises MalformedMessageError."""
        header, position = decode_request_header(frame)
        version = self.api_version = header.api_version
        request = decode(ProduceRequest, frame, version, position)
        (topic,) = request.topic_data
        (data,) = topic.partition_data
        self.topic: str | UUID = topic.name if topic.topic_id == ZERO_UUID else topic.topic_id
        self.index = data.index
        self.acks_all = request.acks == -1
        zeros, ones = (_answer_of(version, topic, data.index, number) for number in (0, -1))
        at = next(index for index, pair in enumerate(zip(zeros, ones, strict=True)) if pair[0] != pair[1])
        head, tail = zeros[8:at], zeros[at + 24 :]
        invariant(tail == ones[at + 24 :], "the answer's numbers lie apart")
        self.parts = len(zeros) - 4, head, tail
        self.pack = Struct(f">ii{len(head)}sqqq{len(tail)}s").pack


def _answer_of(version: int, topic: TopicProduceData, index: int, number: int) -> bytes:
    """The answer with `number` in each place that differs from answer to answer, and a correlation id of 0."""
    rows = [PartitionProduceResponse(index, 0, number, number, number)]
    row = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows)
    pieces: list[Any] = encode_response(ApiKey.PRODUCE, version, 0, ProduceResponse(responses=[row]))
    return b"".join(pieces)


class _Batches:
    """Those of one turn that are for one partition.

    Attributes:
        bug: why their outcomes are not known.
    """

    __slots__ = ("acks_all", "bug", "checked", "outcomes", "partition")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.acks_all = False
        self.checked: list[Checked] = []
        self.outcomes: Sequence[Outcome] = ()
        self.bug: Exception | None = None

    def append(self, now_ms: int) -> None:
        """Append them all, and keep the outcomes."""
        partition = self.partition
        try:
            if self.acks_all and not partition.answers_at_append(acks_all=True):
                raise refusal(Code.NOT_LEADER_OR_FOLLOWER, "its replicas changed as the batch came: send it again")
            self.outcomes = partition.append_together(self.checked, now_ms=now_ms)
        except KafkaError as error:
            self.outcomes = [error] * len(self.checked)


class _Together:
    """All batches that are appended together: of all connections whose requests came in one turn of the event loop.

    Attributes:
        count: of batches.
        share_ns: what appending took, for each.
    """

    __slots__ = ("_by_partition", "_node", "by_form", "count", "now_ms", "share_ns")

    def __init__(self, node: DataApi) -> None:
        self._node = node
        self._by_partition: dict[Partition, _Batches] = {}
        self.by_form: dict[Form, _Batches] = {}
        self.count = 0
        self.now_ms = node.clock.wall_ms()
        self.share_ns = 0

    def open(self, form: Form) -> _Batches | None:
        """Where the batches of a form go; None where its requests are for the handler."""
        node, topic = self._node, form.topic
        try:
            if isinstance(topic, str):
                partition = node.broker.partition(topic, form.index)
            else:
                partition = node.broker.partition_by_id(TopicId(topic), form.index)
            if partition.is_internal or not partition.answers_at_append(acks_all=form.acks_all):
                return None
            if form.acks_all:
                partition.leader().check_enough_replicas()
        except KafkaError:
            return None
        batches = self._by_partition.get(partition)
        if batches is None:
            batches = self._by_partition[partition] = _Batches(partition)
        batches.acks_all |= form.acks_all
        self.by_form[form] = batches
        return batches

    def append(self, *, is_timed: bool) -> None:
        """Append them now. No more may join."""
        started_ns = perf_counter_ns() if is_timed else 0
        for partition, batches in self._by_partition.items():
            if not batches.checked:
                continue
            try:
                batches.append(self.now_ms)
            except Exception as error:
                batches.bug = error
                if isinstance(error, InvariantBrokenError):
                    self._node.broker.failures.on_bug(partition, error)
        if is_timed:
            self.share_ns = (perf_counter_ns() - started_ns) // max(self.count, 1)


class ProduceRun(Gathered):
    """Requests of known forms that arrived together on a connection.

    Args:
        together: what they are appended with.
        perform: has that done, if it is not done yet.
        metrics: counts and times them.
        waits: for those of other connections.
    """

    __slots__ = ("_metrics", "_node", "_perform", "_times_ns", "connection", "staged", "together", "waits")

    def __init__(
        self,
        node: DataApi,
        connection: ServerConnection,
        together: _Together,
        perform: Callable[[], None],
        metrics: RequestMetrics | None,
        *,
        waits: bool,
    ) -> None:
        self.is_brief = True
        self.waits = waits
        self._node = node
        self._perform = perform
        self._metrics = metrics
        self.connection = connection
        self.together = together
        self.staged: list[tuple[Form, _Batches, int, int, memoryview]] = []
        self._times_ns: list[int] = []

    def note_time(self, handle_ns: int) -> None:
        """So long it took to stage the last one."""
        self._times_ns.append(handle_ns)

    def take_answers(self) -> Sequence[list[Piece]]:
        """See `Gathered`."""
        self._perform()
        metrics, share_ns = self._metrics, self.together.share_ns
        staged, self.staged = self.staged, []
        answers: list[Any] = []
        for form, batches, number, correlation_id, frame in staged:
            if batches.bug is not None:
                raise batches.bug
            outcome = batches.outcomes[number]
            response = _APPENDED
            if isinstance(outcome, AppendResult):
                offset, last_offset, time_ms, start_offset, *_ = outcome
                if form.acks_all:
                    partition = batches.partition
                    is_committed = last_offset < partition.high_watermark
                    invariant(is_committed, "{}: not committed", partition.topic_partition)
                if time_ms is None:
                    time_ms = -1
                size_bytes, head, tail = form.parts
                answers.append(form.pack(size_bytes, correlation_id, head, offset, time_ms, start_offset, tail))
            else:
                response = self._refused(outcome, frame, batches.partition)
                answers += encode_response(ApiKey.PRODUCE, form.api_version, correlation_id, response)
            if metrics is not None:
                handle_ns = self._times_ns.pop(0) + share_ns
                times = metrics.times_of(_PRODUCE, form.api_version)
                times.on_answered(self.connection.received_ns, perf_counter_ns() - handle_ns, response)
        return [[b"".join(answers)]]

    def _refused(self, error: KafkaError | DiskError, frame: memoryview, partition: Partition) -> ProduceResponse:
        header, position = decode_request_header(frame)
        request = decode(ProduceRequest, frame, header.api_version, position)
        context = RequestContext(header, self.connection, BROKER)
        return refused_alone(self._node, error, request, context, partition)

    def drop(self) -> None:
        """See `Gathered`. What is staged is appended all the same, with that of others."""
        self.staged = []


class RepeatedProduce:
    """The forms of requests that came to one listener.

    Args:
        split: what takes such requests apart; `wire.compiled_split_produce`.
        metrics: counts and times them.
    """

    def __init__(self, node: DataApi, split: SplitProduce, metrics: RequestMetrics | None) -> None:
        self._node = node
        self._split = split
        self._metrics = metrics
        self._forms: dict[bytes, Form | None] = {}  # None for those that came once
        self._run: ProduceRun | None = None  # the newest, if more may join it
        self._together: _Together | None = None  # what is not appended yet
        self._runs: deque[ProduceRun] = deque()  # perhaps not answered yet
        self._turn = Turn(node.clock)
        self._sender_id = 0  # of the connection that began the last run
        self._runs_alone = 0  # of its runs, since another's

    def take(self, frame: memoryview, connection: ServerConnection) -> ProduceRun | None:
        """Stage a request, if it is of a known form. None: nothing was done; it is for the handler."""
        if len(frame) > FRAME_BYTES_MAX:
            return None
        started_ns = 0 if self._metrics is None else perf_counter_ns()
        found = self._split(frame)
        if found is None:
            return None
        same, correlation_id, batch = found
        form = self._forms.get(same)
        if form is None:
            form = self._learn(same, frame)
            if form is None:
                return None
        together = self._together
        if together is None or together.count >= REQUESTS_MAX:
            self.perform()
            together = self._together = _Together(self._node)
        batches = together.by_form.get(form) or together.open(form)
        if batches is None:
            return None
        partition, is_brief = batches.partition, True
        try:
            rules = partition.log.rules
            checked = rules.check_plain(batch, together.now_ms)
            if checked is None:
                is_brief = False  # a compressed one may hold thousands of records
                check_is_one(batch)
                checked = rules.check_for_leader(batch, now_ms=together.now_ms, origin="client", at_once=True)
        except (KafkaError, TakesLongError):
            return None
        except InvariantBrokenError as error:
            self._node.broker.failures.on_bug(partition, error)
            raise
        run = self._run
        if run is None or run.connection is not connection:
            run = self._run = self._begin_run(connection, together)
        run.is_brief &= is_brief
        of_partition = batches.checked
        run.staged.append((form, batches, len(of_partition), correlation_id, frame))
        of_partition.append(checked)
        together.count += 1
        if self._metrics is not None:
            run.note_time(perf_counter_ns() - started_ns)
        return run

    def _learn(self, same: bytes, frame: memoryview) -> Form | None:
        """The form of a request, if it came before: many come once, and it costs as much as to serve one."""
        forms = self._forms
        if same in forms:
            form = forms[same] = Form(frame)
            return form
        if len(forms) >= FORMS_MAX:
            forms.clear()
        forms[same] = None
        return None

    def perform(self) -> None:
        """Append what is staged. Whatever comes now finds done what came before it."""
        together, self._together, self._run = self._together, None, None
        if together is not None:
            together.append(is_timed=self._metrics is not None)

    def _begin_run(self, connection: ServerConnection, together: _Together) -> ProduceRun:
        if id(connection) == self._sender_id:
            self._runs_alone += 1
        else:
            self._sender_id, self._runs_alone = id(connection), 0
        waits = self._runs_alone < RUNS_ALONE
        run = ProduceRun(self._node, connection, together, self.perform, self._metrics, waits=waits)
        if waits:
            if not self._runs:
                asyncio.get_running_loop().call_soon(self._answer)
            self._runs.append(run)
        return run

    def _answer(self) -> None:
        """All connections whose requests came in the turn of the event loop that is over now have been read."""
        self._turn.begin()
        self.perform()
        while self._runs:
            run = self._runs.popleft()
            run.connection.answer_gathered(run)
            if self._runs and self._turn.is_over:
                asyncio.get_running_loop().call_soon(self._answer)
                return
