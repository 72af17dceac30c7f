"""From a frame to its answer: which handler serves which API, and what is said where nothing serves it.

Handlers are thin and load on first use; `SERVED` is the list of them. What a listener advertises is what is served
there, with one exception: Produce is advertised from version 0 (librdkafka silently stops compressing otherwise) and
served from 3.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.base.errors import Code, KafkaError, MalformedMessageError, TooManyElementsError, refusal
from tidelog.server.forwarding import FORWARDED, forwarding
from tidelog.server.long_requests import in_pieces, is_long
from tidelog.server.tokens import TokenGate, read_elsewhere
from tidelog.wire import ConsistencyState, RequestHeader, decode, decode_request_header, encode_response
from tidelog.wire.api import Api, ApiKey, api
from tidelog.wire.limits import lists_little

if TYPE_CHECKING:
    from tidelog.server.drive import Answer, ServerConnection
    from tidelog.server.metrics import RequestMetrics, RequestTimes
    from tidelog.server.node import Node
    from tidelog.server.slow_requests import SlowRequestLog

logger = logging.getLogger("tidelog.server.dispatch")

ELEMENTS_AT_ONCE_MAX = 2_048
"""Of a request that is read on the event loop, in a millisecond or two. A longer one is read on another thread."""

LONG_REQUEST_GROWTH = 16
"""About how many bytes of memory one byte of a request that lists very much takes once it is read."""
LONG_REQUEST_BYTES_MAX = 48 << 20
"""What is counted at most for one: several find room at a time."""

BROKER = "broker"
INTER_BROKER = "inter-broker"
"""A listener of brokers that clients do not use. All that a broker serves is served there, and what nodes alone ask."""
CONTROLLER = "controller"

SERVED: dict[int, tuple[str, tuple[str, ...]]] = {
    ApiKey.PRODUCE: ("api_00_produce", (BROKER,)),
    ApiKey.FETCH: ("api_01_fetch", (BROKER, CONTROLLER)),
    ApiKey.LIST_OFFSETS: ("api_02_list_offsets", (BROKER,)),
    ApiKey.METADATA: ("api_03_metadata", (BROKER,)),
    ApiKey.STOP_REPLICA: ("api_05_stop_replica", (INTER_BROKER,)),
    ApiKey.OFFSET_COMMIT: ("api_08_offset_commit", (BROKER,)),
    ApiKey.OFFSET_FETCH: ("api_09_offset_fetch", (BROKER,)),
    ApiKey.FIND_COORDINATOR: ("api_10_find_coordinator", (BROKER,)),
    ApiKey.JOIN_GROUP: ("api_11_join_group", (BROKER,)),
    ApiKey.HEARTBEAT: ("api_12_heartbeat", (BROKER,)),
    ApiKey.LEAVE_GROUP: ("api_13_leave_group", (BROKER,)),
    ApiKey.SYNC_GROUP: ("api_14_sync_group", (BROKER,)),
    ApiKey.DESCRIBE_GROUPS: ("api_15_describe_groups", (BROKER,)),
    ApiKey.LIST_GROUPS: ("api_16_list_groups", (BROKER,)),
    ApiKey.API_VERSIONS: ("api_18_api_versions", (BROKER, CONTROLLER)),
    ApiKey.CREATE_TOPICS: ("api_19_create_topics", (BROKER, CONTROLLER)),
    ApiKey.DELETE_TOPICS: ("api_20_delete_topics", (BROKER, CONTROLLER)),
    ApiKey.DELETE_RECORDS: ("api_21_delete_records", (BROKER,)),
    ApiKey.INIT_PRODUCER_ID: ("api_22_init_producer_id", (BROKER,)),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ("api_23_offset_for_leader_epoch", (BROKER,)),
    ApiKey.DESCRIBE_CONFIGS: ("api_32_describe_configs", (BROKER, CONTROLLER)),
    ApiKey.ALTER_CONFIGS: ("api_33_alter_configs", (BROKER, CONTROLLER)),
    ApiKey.CREATE_PARTITIONS: ("api_37_create_partitions", (BROKER, CONTROLLER)),
    ApiKey.ELECT_LEADERS: ("api_43_elect_leaders", (BROKER, CONTROLLER)),
    ApiKey.DELETE_GROUPS: ("api_42_delete_groups", (BROKER,)),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ("api_44_incremental_alter_configs", (BROKER, CONTROLLER)),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ("api_45_alter_partition_reassignments", (BROKER, CONTROLLER)),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ("api_46_list_partition_reassignments", (BROKER, CONTROLLER)),
    ApiKey.OFFSET_DELETE: ("api_47_offset_delete", (BROKER,)),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ("api_34_alter_replica_log_dirs", (BROKER,)),
    ApiKey.DESCRIBE_LOG_DIRS: ("api_35_describe_log_dirs", (BROKER,)),
    ApiKey.VOTE: ("api_52_vote", (CONTROLLER,)),
    ApiKey.BEGIN_QUORUM_EPOCH: ("api_53_begin_quorum_epoch", (CONTROLLER,)),
    ApiKey.END_QUORUM_EPOCH: ("api_54_end_quorum_epoch", (CONTROLLER,)),
    ApiKey.DESCRIBE_QUORUM: ("api_55_describe_quorum", (BROKER, CONTROLLER)),
    ApiKey.ALTER_PARTITION: ("api_56_alter_partition", (CONTROLLER,)),
    ApiKey.UPDATE_FEATURES: ("api_57_update_features", (BROKER, CONTROLLER)),
    ApiKey.FETCH_SNAPSHOT: ("api_59_fetch_snapshot", (CONTROLLER,)),
    ApiKey.DESCRIBE_CLUSTER: ("api_60_describe_cluster", (BROKER, CONTROLLER)),
    ApiKey.BROKER_REGISTRATION: ("api_62_broker_registration", (CONTROLLER,)),
    ApiKey.BROKER_HEARTBEAT: ("api_63_broker_heartbeat", (CONTROLLER,)),
    ApiKey.UNREGISTER_BROKER: ("api_64_unregister_broker", (BROKER, CONTROLLER)),
    ApiKey.ALLOCATE_PRODUCER_IDS: ("api_67_allocate_producer_ids", (CONTROLLER,)),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: ("api_73_assign_replicas_to_dirs", (CONTROLLER,)),
    ApiKey.LIST_CONFIG_RESOURCES: ("api_74_list_config_resources", (BROKER,)),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ("api_75_describe_topic_partitions", (BROKER,)),
    ApiKey.ADD_RAFT_VOTER: ("api_80_add_raft_voter", (BROKER, CONTROLLER)),
    ApiKey.REMOVE_RAFT_VOTER: ("api_81_remove_raft_voter", (BROKER, CONTROLLER)),
    ApiKey.UPDATE_RAFT_VOTER: ("api_82_update_raft_voter", (CONTROLLER,)),
}

OF_CONTROLLERS: dict[int, str] = {ApiKey.FETCH: "api_01_fetch_metadata"}
"""What a listener of controllers serves otherwise than one of brokers: there, the metadata log is read."""

LIBRDKAFKA_ALL_TOPICS = frozenset(bytes(4) + bytes((create, describe, 0)) for create in (0, 1) for describe in (0, 1))
"""How librdkafka asks a flexible Metadata for all topics: its null array takes four bytes, of which three are too many.

Kafka reads on regardless, taking the rest of the null for the next fields, and looks at nothing behind the message.
"""


def advertised(listener_role: str) -> list[tuple[int, int, int]]:
    """(api key, lowest, highest version) of all that a listener of this role serves."""
    rows = []
    for key, (_, roles) in SERVED.items():
        if _is_served(roles, listener_role):
            known = api(key)
            lowest = 0 if key == ApiKey.PRODUCE else known.min_version
            rows.append((int(key), lowest, known.max_version))
    return rows


def _is_served(roles: tuple[str, ...], listener_role: str) -> bool:
    return listener_role in roles or (listener_role == INTER_BROKER and BROKER in roles)


@dataclass(slots=True)
class RequestContext:
    """What a handler may want to know beside the request itself.

    Attributes:
        is_long: it lists much: it is read, and its answer written, on another thread.
        reflects: how recent the metadata is that the answer reflects, where that is not what there is at its end.
    """

    header: RequestHeader
    connection: ServerConnection
    listener_role: str
    is_long: bool = False
    reflects: ConsistencyState | None = None

    @property
    def api_version(self) -> int:
        return self.header.api_version


Handler = Callable[["Node", Any, RequestContext], Any]


_Entry = tuple[Api, type[Any], Handler, "list[RequestTimes | None]"]
"""An API that was asked for: how it is answered, and what counts it, by version."""

NEVER_NS = 1 << 62


class Phases(NamedTuple):
    """Where the time of one request went, in nanoseconds."""

    queue_ns: int
    handle_ns: int
    wait_ns: int


class Dispatcher:
    """Decodes a request, calls its handler, encodes what it answers.

    Args:
        metrics: counts and times the requests; None for neither.
        slow_requests: told of those that took long; needs `metrics`.
    """

    def __init__(
        self,
        node: Node,
        listener_role: str,
        metrics: RequestMetrics | None = None,
        slow_requests: SlowRequestLog | None = None,
    ) -> None:
        self._node = node
        self._listener_role = listener_role
        self._metrics = metrics
        self._slow_requests = slow_requests
        self._slow_ns = NEVER_NS if slow_requests is None else slow_requests.limit_ns
        self._handlers: dict[int, _Entry] = {}
        self._tokens = TokenGate(node, OF_CONTROLLERS if listener_role == CONTROLLER else ())

    def on_frame(self, frame: memoryview, connection: ServerConnection) -> Answer | Awaitable[Answer]:
        """Answer one request.

        Raises:
            MalformedMessageError: the bytes are not a request; the connection is to be closed.
        """
        metrics = self._metrics
        started_ns = 0 if metrics is None else perf_counter_ns()
        header, position = decode_request_header(frame)
        key, version = header.api_key, header.api_version
        entry = self._handlers.get(key)
        if entry is None:
            entry = self._load(key, header)
        known, answer_type, handle, times_by_version = entry
        if not known.min_version <= version <= known.max_version:
            return self._refuse_version(known, header)
        if key == ApiKey.METADATA and known.is_flexible(version) and bytes(frame[position:]) in LIBRDKAFKA_ALL_TOPICS:
            position += 3
        context = RequestContext(header, connection, self._listener_role)
        try:
            request = decode(
                known.request, frame, version, position, ignores_trailing_bytes=True, elements_max=ELEMENTS_AT_ONCE_MAX
            )
        except TooManyElementsError:
            if lists_little(key):
                raise
            request = None
        if request is None or is_long(known, request, len(frame)):
            context.is_long = True
            long_answer = self._answer_long(known, handle, context, memoryview(bytearray(frame)), position)
            return self._answer_later(long_answer, known, context, len(frame), started_ns)
        token, tokens = header.consistency_state, self._tokens
        is_free = token is None or token is tokens.reached or tokens.is_reached(token)
        if token is None or is_free or not tokens.must_wait(known, request, token):
            response = handle(self._node, request, context)
        else:
            response = tokens.hold(known, handle, context, (frame, position))
        if response.__class__ is answer_type:
            state = None if token is None else self._node.consistency_state
            answer = encode_response(key, version, header.correlation_id, response, state)
            if metrics is not None:
                times = times_by_version[version] or self._times_of(known, version)
                total_ns = times.on_answered(connection.received_ns, started_ns, response)
                if total_ns >= self._slow_ns:
                    self._tell_slow(known, context, (len(frame), answer), started_ns, total_ns)
            return answer
        if response is None:
            if metrics is not None:
                total_ns = self._times_of(known, version).on_unanswered(connection.received_ns, started_ns)
                if total_ns >= self._slow_ns:
                    self._tell_slow(known, context, (len(frame), None), started_ns, total_ns)
            return None
        return self._answer_later(response, known, context, len(frame), started_ns)

    async def _answer_long(
        self, known: Api, handle: Handler, context: RequestContext, kept: memoryview, position: int
    ) -> Any:
        """The answer to a request that takes long to read. Many at a time wait for memory, as whatever waits does.

        Raises:
            MalformedMessageError: the bytes are not a request.
            KafkaError: THROTTLING_QUOTA_EXCEEDED: there is no memory for it now; STALE_METADATA.
        """
        memory, tokens, token = context.connection.memory, self._tokens, context.header.consistency_state
        kept_bytes = min(len(kept) * LONG_REQUEST_GROWTH, LONG_REQUEST_BYTES_MAX)
        if not memory.keep(kept_bytes):
            raise refusal(
                Code.THROTTLING_QUOTA_EXCEEDED,
                f"a {known.name} request of {len(kept)} bytes lists very much, and as many of its kind wait as there "
                "is memory for (queued.max.request.bytes)",
            )
        try:
            request = await read_elsewhere(self._node.executor, known, kept, context.api_version, position)
            handle = in_pieces(known, handle)
            if token is None or tokens.is_reached(token) or not tokens.must_wait(known, request, token):
                response = handle(self._node, request, context)
                return await response if isinstance(response, Awaitable) else response
            del request
        finally:
            memory.keep_no_more(kept_bytes)
        return await tokens.hold(known, handle, context, (kept, position))

    def _answer_later(
        self, response: Awaitable[Any], known: Api, context: RequestContext, size_bytes: int, started_ns: int
    ) -> Awaitable[Answer]:
        if self._metrics is None:
            return self._answer_later_untimed(response, context)
        return self._answer_later_timed(response, known, context, size_bytes, started_ns)

    async def _answer_later_untimed(self, response: Awaitable[Any], context: RequestContext) -> Answer:
        message = await response
        return None if message is None else await self._encoded(message, context)

    async def _encoded(self, message: Any, context: RequestContext) -> Answer:
        if context.is_long:
            return await self._node.executor.run(partial(self._encode_answer, message, context))
        return self._encode_answer(message, context)

    def _encode_answer(self, message: Any, context: RequestContext) -> Answer:
        header = context.header
        # Only who sends the tag is sent one: sarama and kafkajs cannot read a response header with tagged fields.
        state = None if header.consistency_state is None else context.reflects or self._node.consistency_state
        return encode_response(header.api_key, header.api_version, header.correlation_id, message, state)

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
        answer = None if message is None else await self._encoded(message, context)
        times = self._times_of(known, header.api_version)
        total_ns = times.on_waited(received_ns, started_ns, waiting_ns, message)
        slow_requests = self._slow_requests
        if slow_requests is not None:
            phases = Phases(started_ns - received_ns, waiting_ns - started_ns, total_ns - (waiting_ns - received_ns))
            if slow_requests.is_slow(known, phases):
                slow_requests.tell(known, header, connection.peer, phases, (size_bytes, _size_bytes(answer)))
        return answer

    def _times_of(self, known: Api, version: int) -> RequestTimes:
        assert self._metrics is not None
        times = self._handlers[known.key][3][version] = self._metrics.times_of(known, version)
        return times

    def _tell_slow(
        self, known: Api, context: RequestContext, sizes: tuple[int, Answer], started_ns: int, total_ns: int
    ) -> None:
        assert self._slow_requests is not None
        queue_ns = started_ns - context.connection.received_ns
        phases = Phases(queue_ns, total_ns - queue_ns, 0)
        size_bytes, answer = sizes
        self._slow_requests.tell(
            known, context.header, context.connection.peer, phases, (size_bytes, _size_bytes(answer))
        )

    def _load(self, key: int, header: RequestHeader) -> _Entry:
        served = SERVED.get(key)
        if served is None or not _is_served(served[1], self._listener_role):
            # The protocol has no answer for an API that the peer was not offered.
            raise MalformedMessageError(
                f"API {key} (version {header.api_version}) is not served on this {self._listener_role} listener"
            )
        name = OF_CONTROLLERS.get(key, served[0]) if self._listener_role == CONTROLLER else served[0]
        module = import_module(f"tidelog.server.handlers.{name}")
        known = api(key)
        handle = module.handle
        if self._listener_role != CONTROLLER and key in FORWARDED:
            handle = forwarding(known, handle, getattr(module, "refused", None))
        entry: _Entry = (known, known.response, handle, [None] * (known.max_version + 1))
        self._handlers[key] = entry
        return entry

    def _refuse_version(self, known: Api, header: RequestHeader) -> Answer:
        """ApiVersions has an answer for this, in the layout that every client can read; other APIs have none."""
        if known.key == ApiKey.API_VERSIONS:
            from tidelog.server.handlers.api_18_api_versions import unsupported_version

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


def code_of(error: KafkaError, where: str) -> Code:
    """The code to answer a refusal with; the text goes to the log, at a level that a hostile client cannot flood."""
    logger.debug("%s: %s: %s", where, error.code.name, error)
    return error.code
