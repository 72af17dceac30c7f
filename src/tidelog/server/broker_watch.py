"""Watches the brokers from the active controller: whoever falls silent is fenced when its session ends.

Who was heard of when is nowhere but here, for one leadership of the controller. The next one begins with a full session
for everybody; and so does one that slept itself, for it cannot know who was silent meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tidelog.base.errors import KafkaError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.base.ports import Clock
from tidelog.controller import BrokerSessions
from tidelog.metadata.image import MetadataView

if TYPE_CHECKING:
    from tidelog.server.node import Node

logger = logging.getLogger("tidelog.server.brokers")

TICKS_PER_SESSION = 20
TICK_MS_MAX = 500


class BrokerWatch:
    """The sessions of brokers, at the node whose controller is active.

    Args:
        session_timeout_ms: `broker.session.timeout.ms`.
    """

    def __init__(self, node: Node, *, clock: Clock, session_timeout_ms: int) -> None:
        self._node = node
        self._clock = clock
        self._session_timeout_ms = session_timeout_ms
        self._of: tuple[LeaderEpoch, BrokerSessions] | None = None

    @property
    def sessions(self) -> BrokerSessions:
        """Of the present leadership.

        Raises:
            KafkaError: NOT_CONTROLLER: the active controller is not here.
        """
        controller = self._node.controller
        journal = controller.journal
        metadata = journal.speculative.metadata  # which only the active one has
        leader_epoch = journal.leader_epoch
        assert leader_epoch is not None
        if self._of is None or self._of[0] != leader_epoch:
            self._of = leader_epoch, self._new_sessions(metadata, journal.next_offset)
        return self._of[1]

    async def run(self) -> None:
        """Fence who is silent, for as long as this node runs."""
        tick_ms = min(max(self._session_timeout_ms // TICKS_PER_SESSION, 1), TICK_MS_MAX)
        while True:
            slept_from_ms = self._clock.now_ms()
            await asyncio.sleep(tick_ms / 1000)
            now_ms = self._clock.now_ms()
            if self._node.active_controller is None:
                self._of = None
                continue
            if now_ms - slept_from_ms > tick_ms + self._session_timeout_ms // 2 and self._of is not None:
                logger.warning("this node did nothing for %s ms: every broker is given time", now_ms - slept_from_ms)
                self._of = None
            try:
                await self._fence_expired(now_ms)
            except KafkaError as error:
                logger.debug("nobody is fenced by this node: %s", error)  # another controller sees to it

    async def _fence_expired(self, now_ms: int) -> None:
        sessions = self.sessions
        deadline_ms = sessions.next_deadline_ms()
        if deadline_ms is None or now_ms < deadline_ms:
            return
        fenced = await self._node.controller.request(lambda state: state.decide_fence_expired(sessions, now_ms=now_ms))
        for broker_id in fenced:
            logger.warning(
                "broker %s was not heard of for %s ms (broker.session.timeout.ms): it is fenced, and others lead",
                broker_id,
                self._session_timeout_ms,
            )

    def _new_sessions(self, metadata: MetadataView, end_offset: Offset) -> BrokerSessions:
        return BrokerSessions(
            metadata,
            end_offset=end_offset,
            now_ms=self._clock.now_ms(),
            session_timeout_ms=self._session_timeout_ms,
        )
