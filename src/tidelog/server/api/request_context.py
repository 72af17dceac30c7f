"""What handlers share: what they are told beside a request, and how they answer a refusal."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.base.errors import Code, KafkaError
from tidelog.wire import ConsistencyState, RequestHeader

if TYPE_CHECKING:
    from tidelog.base.principals import Requester
    from tidelog.metadata import MetadataImage
    from tidelog.metadata.configs.table import BrokerSettings
    from tidelog.server.api.gathering import Gathering
    from tidelog.server.api.ports import MetadataApi, ServerApi
    from tidelog.server.quorum.forwarded_attempts import Attempt
    from tidelog.server.transport.connection_memory import Kept
    from tidelog.server.transport.server_connection import ServerConnection

logger = logging.getLogger("tidelog.server.dispatch")


class AsOf(NamedTuple):
    """The metadata that an answer reflects.

    Attributes:
        state: how recent it is (KIP-1243).
    """

    image: MetadataImage
    broker_settings: BrokerSettings
    state: ConsistencyState


@dataclass(slots=True)
class RequestContext:
    """What a handler may want to know beside the request itself.

    Attributes:
        is_long: it lists much: it is read, and its answer written, on another thread.
        kept: the memory that is counted for it, if it is long: for its handler to give back what it needs no more.
        forwarded_for: who asked the broker that sends it on (KIP-590); None for requests that nobody forwards.
        attempt: of that broker, where it counts them.
        is_exempt: no quota is charged for it: a node sent it.
        throttle_ms: for how long its sender is to be held back, beside what it costs otherwise.
        as_of: the metadata that the answer reflects, where that is not what there is at its end: see `read`.
        gathering: with which it may be carried out; its handler may stage there what it would do now, if it fills in
            its answer then. None for one that is carried out by itself.
    """

    header: RequestHeader
    connection: ServerConnection
    listener_role: str
    is_long: bool = False
    as_of: AsOf | None = None
    kept: Kept | None = None
    forwarded_for: Requester | None = None
    attempt: Attempt | None = None
    is_exempt: bool = False
    throttle_ms: int = 0
    gathering: Gathering | None = None

    @property
    def api_version(self) -> int:
        return self.header.api_version

    def read(self, node: MetadataApi) -> AsOf:
        """The metadata to answer by, in however many pieces, and on whatever thread: that of the first call."""
        if self.as_of is None:
            self.as_of = AsOf(node.image, node.broker_settings, node.consistency_state)
        return self.as_of

    @property
    def requester(self) -> Requester:
        """Whose request it is: what it may do, and what it is counted for, go by that."""
        return self.forwarded_for or self.connection.requester


Handler = Callable[["ServerApi", Any, RequestContext], Any]


class Phases(NamedTuple):
    """Where the time of one request went, in nanoseconds."""

    queue_ns: int
    handle_ns: int
    wait_ns: int


def code_of(error: KafkaError, where: str) -> Code:
    """The code to answer a refusal with; the text goes to the log, at a level that a hostile client cannot flood."""
    logger.debug("%s: %s: %s", where, error.code.name, error)
    return error.code
