"""Requests that came in envelopes (KIP-590): answered as those that come by themselves, by the same handlers.

They are forwarded for what the active controller decides, so no other API is served here, Envelope itself least of all.
A controller that is not active says so in the envelope, wherever the answer has its place for that: the broker asks the
next one.

Kafka: `EnvelopeUtils`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from struct import Struct
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import Code, MalformedMessageError, refusal
from tidelog.base.invariant import invariant
from tidelog.server.api.apis import APIS
from tidelog.server.api.dispatch import Dispatcher, Entry
from tidelog.server.membership.controller_channel import says_not_controller
from tidelog.wire import RequestHeader
from tidelog.wire.limits import request_size_bytes_max

if TYPE_CHECKING:
    from tidelog.base.principals import Requester
    from tidelog.server.api.ports import ServerApi
    from tidelog.server.api.request_context import Handler, RequestContext
    from tidelog.server.quorum.forwarded_attempts import Attempt
    from tidelog.server.transport.server_connection import Answer, ServerConnection

_API_KEY = Struct(">h")
_SIZE_BYTES = 4


class EmbeddedRequests(Dispatcher):
    """See the module. What it is given is counted and logged as what comes by itself."""

    def answer(
        self,
        request: memoryview,
        connection: ServerConnection,
        forwarded_for: Requester,
        attempt: Attempt | None = None,
    ) -> Awaitable[memoryview]:
        """The answer to one request; both begin with their header, without their size.

        Args:
            request: valid until this returns.
            connection: of the broker that forwards it.
            attempt: which one of the broker it is; None where it does not say.

        Raises:
            KafkaError: at once, or awaited. INVALID_REQUEST: the API is not forwarded, or this is larger than its
                requests may be. UNSUPPORTED_VERSION: its version is not served, or the bytes are no request.
                NOT_CONTROLLER: so it is, or the broker may have sent it again since. STALE_METADATA: the client has
                seen metadata that did not come here in time.
        """
        try:
            if len(request) >= _API_KEY.size:
                _check_size(_API_KEY.unpack_from(request)[0], len(request))
            answer = self.on_frame(request, connection, forwarded_for, attempt)
        except MalformedMessageError as error:
            raise refusal(Code.UNSUPPORTED_VERSION, f"the request in the envelope: {error}") from None
        invariant(isinstance(answer, Awaitable), "the answer to an embedded request came at once")
        assert isinstance(answer, Awaitable)
        return _without_size(answer)

    def _load(self, key: int, header: RequestHeader) -> Entry:
        served = APIS.get(key)
        if served is None or not served.is_forwardable:
            raise refusal(Code.INVALID_REQUEST, f"API {key} is not forwarded: no broker asks it for its clients")
        known, answer_type, handle, times_by_version = super()._load(key, header)
        entry = self._handlers[key] = known, answer_type, _by_active_controller(handle), times_by_version
        return entry


def _check_size(api_key: int, size_bytes: int) -> None:
    limit = request_size_bytes_max(api_key)
    if limit is not None and size_bytes > limit:
        raise refusal(
            Code.INVALID_REQUEST,
            f"a request of API {api_key} has {size_bytes} bytes; {limit} are the most that is read of it",
        )


def _by_active_controller(handle: Handler) -> Handler:
    """The handler of an API, which raises NOT_CONTROLLER instead of answering so, and for what comes late."""

    async def serve(node: ServerApi, request: Any, context: RequestContext) -> Any:
        attempt, controller = context.attempt, node.active_controller
        if attempt is not None and controller is not None and controller.leader_epoch is not None:
            controller.latest_attempts.check(attempt, controller.leader_epoch)  # now: it may have waited
        answer = handle(node, request, context)
        if isinstance(answer, Awaitable):
            answer = await answer
        if says_not_controller(answer):
            raise refusal(Code.NOT_CONTROLLER, f"node {node.config.node_id} is not the active controller")
        return answer

    return serve


async def _without_size(answer: Awaitable[Answer]) -> memoryview:
    try:
        pieces = await answer
    except MalformedMessageError as error:  # it was long, and was read on another thread
        raise refusal(Code.UNSUPPORTED_VERSION, f"the request in the envelope: {error}") from None
    invariant(pieces is not None, "a request of a client was not answered")
    assert pieces is not None
    joined = pieces[0] if len(pieces) == 1 else b"".join(pieces)  # type: ignore[arg-type]  # none of it lies on disk
    return memoryview(joined)[_SIZE_BYTES:]  # type: ignore[arg-type]
