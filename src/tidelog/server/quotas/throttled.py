"""How often a quota held somebody back, and for how long: by quota, which are few, and never by client.

Anybody makes client ids up, so a series for each would be a series for each guess. Who was held back last is in the
log, once in a while.

Kafka: the sensors `produce-throttle-time` and their kin, one for each user and client id.
"""

from __future__ import annotations

import logging

from tidelog.server.settings.log_lines import Seldom

logger = logging.getLogger("tidelog.server.quotas")

LOG_INTERVAL_SECONDS = 60.0


class Throttled:
    """Of one quota.

    Args:
        key: the quota, such as `producer_byte_rate`.

    Attributes:
        count: of requests whose sender was held back.
        sum_ms: for how long, all together, as they were told.
    """

    def __init__(self, key: str) -> None:
        self.count = 0
        self.sum_ms = 0
        self._key = key
        self._log = Seldom(LOG_INTERVAL_SECONDS)

    def add(self, user: str, client_id: str, delay_ms: int) -> None:
        """Somebody is held back for so long."""
        self.count += 1
        self.sum_ms += delay_ms
        suppressed = self._log.suppressed()
        if suppressed is not None:
            logger.info(
                "user %r with client id %r is held back for %d ms: it exceeds its %s%s",
                user,
                client_id[:64],
                delay_ms,
                self._key,
                f" ({suppressed} more requests since the last line)" if suppressed else "",
            )
