"""The log of slow requests (`slow.request.log.ms`): a line for each, with where its time went; no flood of them."""

from __future__ import annotations

import logging

from tidelog.server.api.request_context import Phases
from tidelog.server.settings.log_lines import Seldom
from tidelog.wire import RequestHeader
from tidelog.wire.api import Api, ApiKey

logger = logging.getLogger("tidelog.server.slow_requests")

LINES_PER_SECOND_MAX = 10
WAIT_ON_PURPOSE = frozenset({ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""For records or for other members: that they wait is not slow."""
NS_PER_MS = 1_000_000
CLIENT_ID_SHOWN_MAX = 200


class SlowRequestLog:
    """Logs requests that took long.

    Args:
        limit_ms: from when on, inclusive. What APIs wait for on purpose does not count.
    """

    def __init__(self, limit_ms: int) -> None:
        self.limit_ns = limit_ms * NS_PER_MS
        self._seldom = Seldom(1 / LINES_PER_SECOND_MAX)

    def is_slow(self, known: Api, phases: Phases) -> bool:
        waited_ns = 0 if known.key in WAIT_ON_PURPOSE else phases.wait_ns
        return phases.queue_ns + phases.handle_ns + waited_ns >= self.limit_ns

    def log(self, known: Api, header: RequestHeader, peer: str, phases: Phases, sizes_bytes: tuple[int, int]) -> None:
        """Write the line, unless there were as many as may be.

        Args:
            sizes_bytes: of the request, and of its answer.
        """
        suppressed = self._seldom.suppressed()
        if suppressed is None:
            return
        queue_ms, handle_ms, wait_ms = (round(each / NS_PER_MS, 3) for each in phases)
        requested, answered = sizes_bytes
        client_id = None if header.client_id is None else header.client_id[:CLIENT_ID_SHOWN_MAX]
        logger.warning(
            "%s: slow: %s v%d of client %r took %.3f ms: %s in the queue, %s handled, %s waiting; "
            "%d bytes asked, %d answered%s",
            *(peer, known.name, header.api_version, client_id, sum(phases) / NS_PER_MS),
            *(queue_ms, handle_ms, wait_ms, requested, answered),
            f" ({suppressed} more were slow since the last line)" if suppressed else "",
            extra={
                "peer": peer,
                "api": known.name,
                "api_version": header.api_version,
                "client_id": client_id,
                "queue_ms": queue_ms,
                "handle_ms": handle_ms,
                "wait_ms": wait_ms,
                "request_bytes": requested,
                "answer_bytes": answered,
            },
        )
