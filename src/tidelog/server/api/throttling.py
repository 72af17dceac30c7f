"""What requests of clients cost, and what comes of it: who exceeds a quota is answered, told for how long to wait, and
held back for so long (KIP-219).

A fetch is charged for the records in its answer. It is answered with no more than all windows of the quota permit, so
that nobody is held back for much longer than they last. What other nodes send is not charged.

Kafka: `ClientQuotaManager`, `RequestHandlerHelper`.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from tidelog.metadata.client_quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from tidelog.server.api.division import with_value
from tidelog.server.api.mutation_quotas import COSTS, limiting_mutations
from tidelog.server.quotas.client_quotas import ClientQuotas
from tidelog.server.transport.listener_roles import BROKER
from tidelog.wire.api import Api, ApiKey

if TYPE_CHECKING:
    from tidelog.server.api.forwarding import Refuse
    from tidelog.server.api.ports import ServerApi
    from tidelog.server.api.request_context import Handler, RequestContext
    from tidelog.server.settings.config import NodeConfig

FETCHED = frozenset((ApiKey.FETCH, ApiKey.SHARE_FETCH))
"""Whose answers hold records."""

SENT_BY_NODES = frozenset(
    (
        ApiKey.STOP_REPLICA,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    )
)


class Throttle:
    """Charges the requests of the listeners of clients.

    Args:
        exempts_nodes: whether nodes connect to these listeners too. Anybody can say that they are one: where nodes
            have a listener of their own, whoever says so here is charged.
    """

    def __init__(self, quotas: ClientQuotas, *, exempts_nodes: bool) -> None:
        self.quotas = quotas
        self._exempts_nodes = exempts_nodes

    @staticmethod
    def at(listener_role: str, quotas: ClientQuotas, config: NodeConfig) -> Throttle | None:
        """That of the listeners of a role; None where nodes alone connect."""
        if listener_role != BROKER:
            return None
        names = [listener.name for listener in config.broker_listeners]
        has_own_listener = len(names) > 1 and config.inter_broker_listener_name in names
        return Throttle(quotas, exempts_nodes=not has_own_listener)

    def limiting(self, known: Api, handle: Handler, refused: Refuse | None) -> Handler:
        """A handler that answers and decides no more than a quota permits, and by which requests of nodes are told.

        Args:
            refused: the answer in which every part of a request is refused, where its handler has one.
        """
        key = known.key
        if key in COSTS and refused is not None:
            return limiting_mutations(self.quotas, known, handle, refused, owner_of)
        if key in FETCHED and not (key == ApiKey.FETCH and self._exempts_nodes):
            return self._limiting_bytes(handle)
        if not self._exempts_nodes:
            return handle
        if key == ApiKey.FETCH:
            return self._limiting_fetches(handle)
        if key in SENT_BY_NODES:
            return _exempting(handle)
        if key in (ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.LIST_OFFSETS):
            return _exempting_followers(handle)
        if key == ApiKey.ADD_PARTITIONS_TO_TXN:
            return _exempting_leaders(handle)
        return handle

    def charge(self, known: Api, context: RequestContext, response: Any, request_bytes: int, started_ns: int) -> Any:
        """Charge for a request that is answered at once; returns the answer, with what it says of that.

        Args:
            started_ns: when it was begun with, by `perf_counter_ns`.
        """
        fetched_bytes = size_of_fetched(response) if known.key in FETCHED else 0
        spent_ns = perf_counter_ns() - started_ns
        return self.charge_later(known, context, response, (request_bytes, fetched_bytes), spent_ns)

    def charge_later(
        self, known: Api, context: RequestContext, response: Any, sizes: tuple[int, int], spent_ns: int
    ) -> Any:
        """As `charge`, for one that waited.

        Args:
            sizes: of the request, and of the records in the answer.
            spent_ns: on the event loop.
        """
        if context.is_exempt:
            return response
        request_bytes, fetched_bytes = sizes
        user, client_id = owner_of(context)
        quotas = self.quotas
        delay_ms = quotas.charge(REQUEST_PERCENTAGE, user, client_id, spent_ns)
        if known.key == ApiKey.PRODUCE:
            delay_ms = max(delay_ms, quotas.charge(PRODUCER_BYTE_RATE, user, client_id, request_bytes))
        elif fetched_bytes:
            delay_ms = max(delay_ms, quotas.charge(CONSUMER_BYTE_RATE, user, client_id, fetched_bytes))
        delay_ms = max(delay_ms, context.throttle_ms)
        if not delay_ms:
            return response
        context.connection.mute(delay_ms)
        if response is None or not hasattr(response, "throttle_time_ms"):
            return response
        return with_value(response, "throttle_time_ms", delay_ms)

    def _limiting_fetches(self, handle: Handler) -> Handler:
        limited = self._limiting_bytes(handle)

        def serve(node: ServerApi, request: Any, context: RequestContext) -> Any:
            state = request.replica_state
            if (request.replica_id if state is None else state.replica_id) >= 0:
                context.is_exempt = True
                return handle(node, request, context)
            return limited(node, request, context)

        return serve

    def _limiting_bytes(self, handle: Handler) -> Handler:
        quotas = self.quotas

        def serve(node: ServerApi, request: Any, context: RequestContext) -> Any:
            if quotas.is_set:
                bytes_max = quotas.window_bytes_max(CONSUMER_BYTE_RATE, *owner_of(context))
                if bytes_max is not None and request.max_bytes > bytes_max:
                    request.max_bytes = bytes_max
            return handle(node, request, context)

        return serve


def owner_of(context: RequestContext) -> tuple[str, str]:
    """The user and the client id that a request is charged to."""
    return context.requester.principal.name, context.header.client_id or ""


def size_of_fetched(response: Any) -> int:
    """The bytes of the records in an answer."""
    return sum(len(part.records) for topic in response.responses for part in topic.partitions if part.records)


def _exempting(handle: Handler) -> Handler:
    def serve(node: ServerApi, request: Any, context: RequestContext) -> Any:
        context.is_exempt = True
        return handle(node, request, context)

    return serve


def _exempting_followers(handle: Handler) -> Handler:
    def serve(node: ServerApi, request: Any, context: RequestContext) -> Any:
        context.is_exempt = request.replica_id >= 0
        return handle(node, request, context)

    return serve


def _exempting_leaders(handle: Handler) -> Handler:
    """They ask of several transactions at once; clients cannot."""

    def serve(node: ServerApi, request: Any, context: RequestContext) -> Any:
        context.is_exempt = bool(request.transactions)
        return handle(node, request, context)

    return serve
