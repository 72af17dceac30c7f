"""From a frame to its answer: which handler serves which API, and what is said where nothing serves it.

Handlers are thin and load on first use; `APIS` is the list of them. What a listener advertises is what is served
there, with one exception: Produce is advertised from version 0 (librdkafka silently stops compressing otherwise) and
served from 3.

Kafka: `KafkaRequestHandler`, `KafkaApis`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from importlib import import_module
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import MalformedMessageError, TooManyElementsError
from tidelog.server.api.apis import APIS, OPEN_TO_ALL, is_served
from tidelog.server.api.forwarding import forwarding
from tidelog.server.api.gathering import FRAME_BYTES_MAX, Gathering, make_gathered
from tidelog.server.api.long_requests import forget_lists, in_pieces, is_long, kept_bytes, let_go
from tidelog.server.api.request_context import Handler, Phases, RequestContext
from tidelog.server.api.rights import is_authorized
from tidelog.server.api.throttling import FETCHED, Throttle, size_of_fetched
from tidelog.server.api.tokens import TokenGate, read_elsewhere
from tidelog.server.transport.gathered import Gathered
from tidelog.server.transport.listener_roles import CONTROLLER
from tidelog.wire import (
    Piece,
    RequestHeader,
    compiled_split_produce,
    decode,
    decode_request_header,
    encode_response,
)
from tidelog.wire.api import Api, ApiKey, api
from tidelog.wire.limits import lists_little

if TYPE_CHECKING:
    from tidelog.base.principals import Requester
    from tidelog.server.api.ports import ServerApi
    from tidelog.server.api.repeated_produce import RepeatedProduce
    from tidelog.server.api.slow_requests import SlowRequestLog
    from tidelog.server.quorum.forwarded_attempts import Attempt
    from tidelog.server.settings.metrics import RequestMetrics, RequestTimes
    from tidelog.server.transport.server_connection import Answer, ServerConnection

ELEMENTS_AT_ONCE_MAX = 1_024
"""Of a request that is read on the event loop, in a millisecond; where it is text, half a megabyte in three. A longer
one is read on another thread."""

LIBRDKAFKA_ALL_TOPICS = frozenset(bytes(4) + bytes((create, describe, 0)) for create in (0, 1) for describe in (0, 1))
"""How librdkafka asks a flexible Metadata for all topics: its null array takes four bytes, of which three are too many.

Kafka reads on regardless, taking the rest of the null for the next fields, and looks at nothing behind the message.
"""


Entry = tuple[Api, type[Any], Handler, "list[RequestTimes | None]"]
"""An API that was asked for: how it is answered, and what counts it, by version."""

NEVER_NS = 1 << 62
PRODUCE, METADATA = int(ApiKey.PRODUCE), int(ApiKey.METADATA)  # compared with each request's, at a third of the price


class Dispatcher:
    """Decodes a request, calls its handler, encodes what it answers.

    Args:
        metrics: counts and times the requests; None for neither.
        slow_requests: told of those that took long; needs `metrics`.
        throttle: charges what comes here; None where nodes alone connect.
    """

    def __init__(
        self,
        node: ServerApi,
        listener_role: str,
        metrics: RequestMetrics | None = None,
        slow_requests: SlowRequestLog | None = None,
        throttle: Throttle | None = None,
    ) -> None:
        self._node = node
        self._listener_role = listener_role
        self._metrics = metrics
        self._slow_requests = slow_requests
        self._slow_ns = NEVER_NS if slow_requests is None else slow_requests.limit_ns
        self._handlers: dict[int, Entry] = {}
        self._tokens = TokenGate(node, listener_role)
        self._throttle = throttle
        self._gathering: Gathering | None = None
        self._repeated: RepeatedProduce | None = None  # once Produce was asked for

    def on_frame(
        self,
        frame: memoryview,
        connection: ServerConnection,
        forwarded_for: Requester | None = None,
        attempt: Attempt | None = None,
    ) -> Answer | Gathered | Awaitable[Answer]:
        """Answer one request, or gather it with those that arrived with it.

        Args:
            forwarded_for: who asked the broker on whose connection it came; None if it came by itself.
            attempt: which one of that broker it is.

        Returns:
            The answer, if not to be awaited; `Gathered` if more has come behind it that may be carried out with it.

        Raises:
            MalformedMessageError: the bytes are not a request; the connection is to be closed.
        """
        metrics = self._metrics
        throttle = self._throttle
        if throttle is not None and not throttle.quotas.is_set:
            throttle = None
        repeated = self._repeated
        if repeated is not None and forwarded_for is None and self._gathering is None:
            run = None if throttle is not None else repeated.take(frame, connection)
            if run is not None:
                return run
            repeated.perform()
        started_ns = 0 if metrics is None and throttle is None else perf_counter_ns()
        header, position = decode_request_header(frame)
        key, version = header.api_key, header.api_version
        entry = self._handlers.get(key)
        if entry is None:
            entry = self._load(key, header)
        known, answer_type, handle, times_by_version = entry
        if not known.min_version <= version <= known.max_version:
            return self._refuse_version(known, header)
        if key == METADATA and known.is_flexible(version) and bytes(frame[position:]) in LIBRDKAFKA_ALL_TOPICS:
            position += 3
        context = RequestContext(header, connection, self._listener_role)
        if forwarded_for is not None:
            context.forwarded_for, context.attempt = forwarded_for, attempt
        try:
            request = decode(
                known.request, frame, version, position, ignores_trailing_bytes=True, elements_max=ELEMENTS_AT_ONCE_MAX
            )
        except TooManyElementsError:
            if lists_little(key):
                raise
            request = None
        token, tokens = header.consistency_state, self._tokens
        is_free = token is None or token is tokens.reached or tokens.is_reached(token)
        takes_long = request is None or is_long(known, request, len(frame))
        gathering = self._gathering
        if (
            key == PRODUCE
            and (gathering is not None or connection.has_more)
            and is_free
            and not takes_long
            and throttle is None
            and forwarded_for is None
            and len(frame) <= FRAME_BYTES_MAX
        ):
            if gathering is None or gathering.is_full:
                self._perform_gathered()
                gathering = Gathering(self._answer_gathered, self._end_gathering)
            context.gathering = gathering
        elif gathering is not None:
            gathering = None
            self._perform_gathered()
        if takes_long:
            return self._answer_long(entry, context, frame, position, started_ns)
        must_wait = False if token is None or is_free else tokens.must_wait(known, request, token)
        if must_wait is None:
            return self._answer_long(entry, context, frame, position, started_ns)
        if not must_wait:
            response = handle(self._node, request, context)
        else:
            response = tokens.hold(known, handle, context, (frame, position))
        if gathering is not None:
            if response.__class__ is answer_type:
                staged_ns = 0 if metrics is None else perf_counter_ns()
                gathering.requests.append(make_gathered((context, response, len(frame), started_ns, staged_ns)))
                self._gathering = gathering
                return gathering
            gathering.perform()
            self._gathering = None
        if response.__class__ is answer_type:
            state = None if token is None else self._node.consistency_state
            if throttle is not None:
                response = throttle.charge(known, context, response, len(frame), started_ns)
            answer = encode_response(key, version, header.correlation_id, response, state)
            if metrics is not None:
                times = times_by_version[version] or self._times_of(known, version)
                total_ns = times.on_answered(connection.received_ns, started_ns, response)
                if total_ns >= self._slow_ns:
                    self._log_slow(known, context, (len(frame), answer), started_ns, total_ns)
            return answer
        if response is None:
            if throttle is not None:
                throttle.charge(known, context, None, len(frame), started_ns)
            if metrics is not None:
                total_ns = self._times_of(known, version).on_unanswered(connection.received_ns, started_ns)
                if total_ns >= self._slow_ns:
                    self._log_slow(known, context, (len(frame), None), started_ns, total_ns)
            return None
        return self._answer_later(response, known, context, len(frame), started_ns)

    def _perform_gathered(self) -> None:
        """Whatever comes now finds done what came before it."""
        gathering, self._gathering = self._gathering, None
        if gathering is not None:
            gathering.perform()

    def _end_gathering(self, gathering: Gathering) -> None:
        if gathering is self._gathering:
            self._gathering = None

    def _answer_gathered(self, gathering: Gathering) -> list[list[Piece]]:
        """The answers to requests that arrived together, in their order."""
        performed_from_ns = 0 if self._metrics is None else perf_counter_ns()
        gathering.perform()
        requests = gathering.take_requests()
        share_ns = 0
        if self._metrics is not None:
            share_ns = (perf_counter_ns() - performed_from_ns) // len(requests)
        answers = []
        for context, response, size_bytes, started_ns, staged_ns in requests:
            header = context.header
            state = None if header.consistency_state is None else self._node.consistency_state
            answer = encode_response(header.api_key, header.api_version, header.correlation_id, response, state)
            answers.append(answer)
            if self._metrics is not None:
                known = api(header.api_key)
                times = self._times_of(known, header.api_version)
                handle_ns = staged_ns - started_ns + share_ns
                total_ns = times.on_answered(context.connection.received_ns, perf_counter_ns() - handle_ns, response)
                if total_ns >= self._slow_ns:
                    self._log_slow(known, context, (size_bytes, answer), started_ns, total_ns)
        return answers

    def _answer_long(
        self, entry: Entry, context: RequestContext, frame: memoryview, position: int, started_ns: int
    ) -> Awaitable[Answer]:
        """The answer to a request that takes long to read, or to look at."""
        known, _, handle, _ = entry
        context.is_long = True
        size_bytes = len(frame)
        frame, context.kept = context.connection.hand_over(frame)
        answer = self._read_and_answer(known, handle, context, (frame, position))
        return self._answer_later(answer, known, context, size_bytes, started_ns)

    async def _read_and_answer(
        self, known: Api, handle: Handler, context: RequestContext, sent: tuple[memoryview, int]
    ) -> Any:
        """Where there is no memory for what it lists, it waits in line, as whatever comes does.

        Raises:
            MalformedMessageError: the bytes are not a request.
            KafkaError: STALE_METADATA.
        """
        frame, position = sent
        del sent
        tokens, token = self._tokens, context.header.consistency_state
        handle = in_pieces(known, handle)
        assert context.kept is not None
        with context.kept as kept:
            await kept.hold_in_line(kept_bytes(len(frame)))
            request = await read_elsewhere(self._node.executor, known, frame, context.api_version, position)
            is_free = token is None or tokens.is_reached(token)
            if token is None or is_free or not await tokens.must_wait_in_turns(known, request, token):
                del frame
                response = handle(self._node, request, context)
                del request
                return await response if isinstance(response, Awaitable) else response
            self._node.executor.compute(partial(forget_lists, request))  # what is kept meanwhile are its bytes
        return await tokens.hold(known, handle, context, (frame, position))

    def _answer_later(
        self, response: Awaitable[Any], known: Api, context: RequestContext, size_bytes: int, started_ns: int
    ) -> Awaitable[Answer]:
        throttle = self._throttle
        if throttle is not None and throttle.quotas.is_set:
            response = self._charged(response, known, context, size_bytes, perf_counter_ns() - started_ns)
        if self._metrics is None:
            return self._answer_later_untimed(response, context)
        return self._answer_later_timed(response, known, context, size_bytes, started_ns)

    async def _charged(
        self, response: Awaitable[Any], known: Api, context: RequestContext, size_bytes: int, spent_ns: int
    ) -> Any:
        """The answer to a request that waited, after what it cost was charged."""
        message = await response
        fetched_bytes = 0
        if known.key in FETCHED and message is not None:
            if context.is_long:
                fetched_bytes = await self._node.executor.compute(partial(size_of_fetched, message))
            else:
                fetched_bytes = size_of_fetched(message)
        assert self._throttle is not None
        return self._throttle.charge_later(known, context, message, (size_bytes, fetched_bytes), spent_ns)

    async def _answer_later_untimed(self, response: Awaitable[Any], context: RequestContext) -> Answer:
        message = await response
        return None if message is None else (await self._encoded(message, context, None))[0]

    async def _encoded(
        self, message: Any, context: RequestContext, times: RequestTimes | None
    ) -> tuple[Answer, dict[int, int] | None]:
        if context.is_long:
            return await self._node.executor.compute(partial(self._encode_long_answer, message, context, times))
        return self._encode_answer(message, context, times)

    def _encode_long_answer(
        self, message: Any, context: RequestContext, times: RequestTimes | None
    ) -> tuple[Answer, dict[int, int] | None]:
        encoded = self._encode_answer(message, context, times)
        let_go(api(context.header.api_key), message)
        return encoded

    def _encode_answer(
        self, message: Any, context: RequestContext, times: RequestTimes | None
    ) -> tuple[Answer, dict[int, int] | None]:
        header = context.header
        # Only who sends the tag is sent one: sarama and kafkajs cannot read a response header with tagged fields.
        state = None
        if header.consistency_state is not None:
            state = self._node.consistency_state if context.as_of is None else context.as_of.state
        answer = encode_response(header.api_key, header.api_version, header.correlation_id, message, state)
        return answer, None if times is None else times.noted(message)

    async def _answer_later_timed(
        self, response: Awaitable[Any], known: Api, context: RequestContext, size_bytes: int, started_ns: int
    ) -> Answer:
        """With `metrics`. The frame is gone by the time of the answer; its size was kept."""
        metrics, header, connection = self._metrics, context.header, context.connection
        assert metrics is not None
        received_ns, waiting_ns = connection.received_ns, perf_counter_ns()
        metrics.waiting[known.key] = metrics.waiting.get(known.key, 0) + 1
        try:
            message = await response
        finally:
            metrics.waiting[known.key] -= 1
        times = self._times_of(known, header.api_version)
        answer, noted = (None, None) if message is None else await self._encoded(message, context, times)
        total_ns = times.on_waited(received_ns, started_ns, waiting_ns, noted)
        slow_requests = self._slow_requests
        if slow_requests is not None:
            phases = Phases(started_ns - received_ns, waiting_ns - started_ns, total_ns - (waiting_ns - received_ns))
            if slow_requests.is_slow(known, phases):
                slow_requests.log(known, header, connection.peer, phases, (size_bytes, _size_bytes(answer)))
        return answer

    def _times_of(self, known: Api, version: int) -> RequestTimes:
        assert self._metrics is not None
        times = self._handlers[known.key][3][version] = self._metrics.times_of(known, version)
        return times

    def _log_slow(
        self, known: Api, context: RequestContext, sizes: tuple[int, Answer], started_ns: int, total_ns: int
    ) -> None:
        assert self._slow_requests is not None
        queue_ns = started_ns - context.connection.received_ns
        phases = Phases(queue_ns, total_ns - queue_ns, 0)
        size_bytes, answer = sizes
        self._slow_requests.log(
            known, context.header, context.connection.peer, phases, (size_bytes, _size_bytes(answer))
        )

    def _load(self, key: int, header: RequestHeader) -> Entry:
        served = APIS.get(key)
        if served is None or not served.is_known or not is_served(served.roles, self._listener_role):
            # The protocol has no answer for an API that the peer was not offered.
            raise MalformedMessageError(
                f"API {key} (version {header.api_version}) is not served on this {self._listener_role} listener"
            )
        name = served.module_at(self._listener_role)
        module = import_module(f"tidelog.server.api.handlers.{name}")
        known = api(key)
        handle = module.handle
        if key == ApiKey.ENVELOPE:
            from tidelog.server.api.embedded_requests import EmbeddedRequests

            embedded = EmbeddedRequests(self._node, self._listener_role, self._metrics, self._slow_requests)
            handle = partial(handle, embedded)
        if self._listener_role != CONTROLLER and served.is_forwarded:
            handle = forwarding(known, handle, getattr(module, "refused", None))
        if self._throttle is not None:
            handle = self._throttle.limiting(known, handle, getattr(module, "refused", None))
        if is_authorized(self._node) and key not in OPEN_TO_ALL:
            from tidelog.server.api.authorization import guarded
            from tidelog.server.api.needs import NEEDS

            handle = guarded(known, handle, NEEDS[key], self._node.authorizer.deniable)
        if key == PRODUCE and handle is module.handle and self._slow_requests is None and compiled_split_produce:
            from tidelog.server.api.repeated_produce import RepeatedProduce

            self._repeated = RepeatedProduce(self._node, compiled_split_produce, self._metrics)
        entry: Entry = (known, known.response, handle, [None] * (known.max_version + 1))
        self._handlers[key] = entry
        return entry

    def _refuse_version(self, known: Api, header: RequestHeader) -> Answer:
        """ApiVersions has an answer for this, in the layout that every client can read; other APIs have none."""
        if known.key == ApiKey.API_VERSIONS:
            from tidelog.server.api.handlers.api_18_api_versions import unsupported_version

            return encode_response(known.key, 0, header.correlation_id, unsupported_version(self._listener_role), None)
        if known.key == ApiKey.PRODUCE and 0 <= header.api_version < known.min_version:
            raise MalformedMessageError(
                f"Produce version {header.api_version} carries message formats before v2, which are not stored; "
                "configure the client for Kafka 0.11 or newer"
            )
        raise MalformedMessageError(
            f"{known.name} version {header.api_version} is not served (versions {known.min_version} to "
            f"{known.max_version} are); the client should ask ApiVersions first"
        )


def _size_bytes(answer: Answer) -> int:
    return sum(map(len, answer or ()))
