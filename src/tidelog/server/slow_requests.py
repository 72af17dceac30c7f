"""The log of slow requests (`slow.request.log.ms`): a line for each, with where its time went; no flood of them."""

from __future__ import annotations

import logging

from tidelog.server.log_lines import Seldom
from tidelog.wire import RequestHeader
from tidelog.wire.api import Api, ApiKey

logger = logging.getLogger("tidelog.server.slow_requests")

LINES_PER_SECOND_MAX = 10
WAIT_ON_PURPOSE = frozenset({ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""For records or for other members: that they wait is not slow."""
NS_PER_MS = 1_000_000


class SlowRequestLog:
    """Tells of requests that took long.

    Args:
        limit_ms: from when on, inclusive. What APIs wait for on purpose does not count.
    """

    def __init__(self, limit_ms: int) -> None:
        self.limit_ns = limit_ms * NS_PER_MS
        self._seldom = Seldom(1 / LINES_PER_SECOND_MAX)

    def is_slow(self, known: Api, total_ns: int, wait_ns: int) -> bool:
        return total_ns - (wait_ns if known.key in WAIT_ON_PURPOSE else 0) >= self.limit_ns

    def tell(
        self,
        known: Api,
        header: RequestHeader,
        peer: str,
        *,
        queue_ns: int,
        handle_ns: int,
        wait_ns: int,
        request_size_bytes: int,
        answer_size_bytes: int,
    ) -> None:
        """Write the line, unless there were as many as may be."""
        untold = self._seldom.untold()
        if untold is None:
            return
        facts = {
            "peer": peer,
            "api": known.name,
            "api_version": header.api_version,
            "client_id": header.client_id,
            "queue_ms": round(queue_ns / NS_PER_MS, 3),
            "handle_ms": round(handle_ns / NS_PER_MS, 3),
            "wait_ms": round(wait_ns / NS_PER_MS, 3),
            "request_bytes": request_size_bytes,
            "answer_bytes": answer_size_bytes,
        }
        more = f" ({untold} more were slow since the last line)" if untold else ""
        logger.warning(
            "%s: slow: %s v%d of client %r took %.1f ms: %.1f in the queue, %.1f handled, %.1f waiting; "
            "%d bytes asked, %d answered%s",
            *(peer, known.name, header.api_version, header.client_id, (queue_ns + handle_ns + wait_ns) / NS_PER_MS),
            *(queue_ns / NS_PER_MS, handle_ns / NS_PER_MS, wait_ns / NS_PER_MS),
            *(request_size_bytes, answer_size_bytes, more),
            extra=facts,
        )
