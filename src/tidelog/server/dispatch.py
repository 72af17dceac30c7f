"""From a frame to its answer: which handler serves which API, and what is said where nothing serves it.

Handlers are thin and load on first use; `SERVED` is the list of them. What a listener advertises is what is served
there, with one exception: Produce is advertised from version 0 (librdkafka silently stops compressing otherwise) and
served from 3.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import Code, KafkaError, MalformedMessageError
from tidelog.wire import RequestHeader, decode, decode_request_header, encode_response
from tidelog.wire.api import Api, ApiKey, api

if TYPE_CHECKING:
    from tidelog.server.drive import Answer, ServerConnection
    from tidelog.server.node import Node

logger = logging.getLogger("tidelog.server.dispatch")

PLAIN_REQUEST_SIZE_BYTES_MAX = 8 << 20
"""Of any request but Produce. Two bytes of it may stand for an object of eighty: 100 MB would become gigabytes.

A fetch of 100,000 partitions takes about half of it.
"""

BROKER = "broker"
CONTROLLER = "controller"

SERVED: dict[int, tuple[str, tuple[str, ...]]] = {
    ApiKey.PRODUCE: ("api_00_produce", (BROKER,)),
    ApiKey.FETCH: ("api_01_fetch", (BROKER,)),
    ApiKey.LIST_OFFSETS: ("api_02_list_offsets", (BROKER,)),
    ApiKey.METADATA: ("api_03_metadata", (BROKER,)),
    ApiKey.FIND_COORDINATOR: ("api_10_find_coordinator", (BROKER,)),
    ApiKey.API_VERSIONS: ("api_18_api_versions", (BROKER, CONTROLLER)),
    ApiKey.CREATE_TOPICS: ("api_19_create_topics", (BROKER, CONTROLLER)),
    ApiKey.OFFSET_COMMIT: ("api_08_offset_commit", (BROKER,)),
    ApiKey.OFFSET_FETCH: ("api_09_offset_fetch", (BROKER,)),
    ApiKey.DELETE_TOPICS: ("api_20_delete_topics", (BROKER, CONTROLLER)),
    ApiKey.JOIN_GROUP: ("api_11_join_group", (BROKER,)),
    ApiKey.HEARTBEAT: ("api_12_heartbeat", (BROKER,)),
    ApiKey.LEAVE_GROUP: ("api_13_leave_group", (BROKER,)),
    ApiKey.SYNC_GROUP: ("api_14_sync_group", (BROKER,)),
    ApiKey.DESCRIBE_GROUPS: ("api_15_describe_groups", (BROKER,)),
    ApiKey.LIST_GROUPS: ("api_16_list_groups", (BROKER,)),
    ApiKey.INIT_PRODUCER_ID: ("api_22_init_producer_id", (BROKER,)),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ("api_23_offset_for_leader_epoch", (BROKER,)),
    ApiKey.DESCRIBE_CONFIGS: ("api_32_describe_configs", (BROKER, CONTROLLER)),
    ApiKey.DESCRIBE_CLUSTER: ("api_60_describe_cluster", (BROKER, CONTROLLER)),
}

    ApiKey.DELETE_GROUPS: ("api_42_delete_groups", (BROKER,)),
    ApiKey.OFFSET_DELETE: ("api_47_offset_delete", (BROKER,)),
LIBRDKAFKA_ALL_TOPICS = frozenset(bytes(4) + bytes((create, describe, 0)) for create in (0, 1) for describe in (0, 1))
"""How librdkafka asks a flexible Metadata for all topics: its null array takes four bytes, of which three are too many.

Kafka reads on regardless, taking the rest of the null for the next fields, and looks at nothing behind the message.
"""


def advertised(listener_role: str) -> list[tuple[int, int, int]]:
    """(api key, lowest, highest version) of all that a listener of this role serves."""
    rows = []
    for key, (_, roles) in SERVED.items():
        if listener_role in roles:
            known = api(key)
            lowest = 0 if key == ApiKey.PRODUCE else known.min_version
            rows.append((int(key), lowest, known.max_version))
    return rows


@dataclass(slots=True)
class RequestContext:
    """What a handler may want to know beside the request itself."""

    header: RequestHeader
    connection: ServerConnection
    listener_role: str

    @property
    def api_version(self) -> int:
        return self.header.api_version


Handler = Callable[["Node", Any, RequestContext], Any]


class Dispatcher:
    """Decodes a request, calls its handler, encodes what it answers."""

    def __init__(self, node: Node, listener_role: str) -> None:
        self._node = node
        self._listener_role = listener_role
        self._handlers: dict[int, tuple[Api, Handler]] = {}

    def on_frame(self, frame: memoryview, connection: ServerConnection) -> Answer | Awaitable[Answer]:
        """Answer one request.

        Raises:
            MalformedMessageError: the bytes are not a request; the connection is to be closed.
        """
        header, position = decode_request_header(frame)
        key, version = header.api_key, header.api_version
        entry = self._handlers.get(key)
        if entry is None:
            entry = self._load(key, header)
        known, handle = entry
        if not known.min_version <= version <= known.max_version:
            return self._refuse_version(known, header)
        if key == ApiKey.METADATA and known.is_flexible(version) and bytes(frame[position:]) in LIBRDKAFKA_ALL_TOPICS:
            position += 3
        if len(frame) > PLAIN_REQUEST_SIZE_BYTES_MAX and key != ApiKey.PRODUCE:
            raise MalformedMessageError(
                f"a {known.name} request of {len(frame)} bytes; without records in it, "
                f"{PLAIN_REQUEST_SIZE_BYTES_MAX} are the most that is read"
            )
        request = decode(known.request, frame, version, position, ignores_trailing_bytes=True)
        response = handle(self._node, request, RequestContext(header, connection, self._listener_role))
        if response is None:
            return None
        if isinstance(response, Awaitable):
            return self._answer_later(response, header)
        return encode_response(key, version, header.correlation_id, response, self._node.consistency_state)

    async def _answer_later(self, response: Awaitable[Any], header: RequestHeader) -> Answer:
        message = await response
        if message is None:
            return None
        return encode_response(
            header.api_key, header.api_version, header.correlation_id, message, self._node.consistency_state
        )

    def _load(self, key: int, header: RequestHeader) -> tuple[Api, Handler]:
        served = SERVED.get(key)
        if served is None or self._listener_role not in served[1]:
            # The protocol has no answer for an API that the peer was not offered.
            raise MalformedMessageError(
                f"API {key} (version {header.api_version}) is not served on this {self._listener_role} listener"
            )
        module = import_module(f"tidelog.server.handlers.{served[0]}")
        entry = (api(key), module.handle)
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


def code_of(error: KafkaError, where: str) -> Code:
    """The code to answer a refusal with; the text goes to the log, at a level that a hostile client cannot flood."""
    logger.debug("%s: %s: %s", where, error.code.name, error)
    return error.code
