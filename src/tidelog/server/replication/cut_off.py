"""Which leaders here are cut off from their followers, and what the log says of it: a line a second, however many.

Counterpart in Kafka: none; there a leader that is cut off keeps its producers waiting.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.server.replication.leader_driver import LeaderDriver

logger = logging.getLogger("tidelog.server.replication")

GATHER_SECONDS = 1.0
"""Those that are found out within it are told of together."""
NAMES_MAX = 5


class CutOffLeaders:
    """See the module. To be used on one event loop."""

    def __init__(self) -> None:
        self._all: set[LeaderDriver] = set()
        self._unlogged: dict[LeaderDriver, None] = {}
        self._has_logged = False  # of any that is cut off still
        self._timer: asyncio.TimerHandle | None = None

    def on_changed(self, leading: LeaderDriver, is_cut_off: bool) -> None:
        """A leader is cut off; or it is not any more, or leads no more."""
        if is_cut_off:
            self._all.add(leading)
            self._unlogged[leading] = None
        else:
            self._all.discard(leading)
            self._unlogged.pop(leading, None)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER_SECONDS, self._log_unlogged)

    def stop(self) -> None:
        """Cancel the warning that is due."""
        if self._timer is not None:
            self._timer.cancel()

    def _log_unlogged(self) -> None:
        self._timer = None
        unlogged = list(self._unlogged)
        self._unlogged.clear()
        if unlogged:
            self._has_logged = True
            names = ", ".join(str(each.partition.topic_partition) for each in unlogged[:NAMES_MAX])
            more = f" and {len(unlogged) - NAMES_MAX} more" if len(unlogged) > NAMES_MAX else ""
            logger.warning(
                "this leader is cut off: fewer than min.insync.replicas, itself included, have fetched %s%s for "
                "broker.session.timeout.ms, so acks=all is refused there (NOT_LEADER_OR_FOLLOWER) until they fetch or "
                "others lead: look for the nodes of its followers, and for the network between",
                *(names, more),
            )
        elif self._has_logged and not self._all:
            self._has_logged = False
            logger.info("no leader here is cut off any more: followers fetch again, or others lead")
