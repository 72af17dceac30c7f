"""Has the active controller remove the delegation tokens that have expired, every so often (KIP-48).

They count no more as soon as they have expired, whether they are still in the metadata or not.

Kafka: `QuorumController.scheduleNextExpireDelegationToken`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from tidelog.base.errors import KafkaError
from tidelog.base.ports import Clock
from tidelog.controller import ControllerState
from tidelog.journal import Decision
from tidelog.metadata.configs import BrokerSettings
from tidelog.metadata.configs.delegation_tokens import TOKEN_EXPIRY_CHECK_INTERVAL_MS
from tidelog.server.quorum.controller import ControllerHost
from tidelog.server.transport.turns import in_turns

logger = logging.getLogger("tidelog.server.tokens")

LOOKED_AT_IN_TURN = 1_000
"""Tokens: each takes less than a microsecond."""
SWEPT_AT_ONCE_MAX = 64
"""Tokens that one decision removes: each is a record, which takes some ten microseconds here and at every node."""


class TokenExpiry:
    """See the module.

    Args:
        settings: the node's file.
    """

    def __init__(self, node: ControllerHost, settings: BrokerSettings, clock: Clock) -> None:
        self._node = node
        self._clock = clock
        self._interval_ms = settings[TOKEN_EXPIRY_CHECK_INTERVAL_MS]

    async def run(self) -> None:
        """Do so wherever the active controller is this node's, for as long as it runs."""
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            if self._node.active_controller is None:
                continue
            try:
                await self.sweep()
            except KafkaError as error:
                logger.debug("this node removes no delegation token: %s", error)  # another controller sees to it

    async def sweep(self) -> None:
        """Remove what has expired, some at a time."""
        controller = self._node.controller
        tokens = tuple(controller.journal.committed.metadata.delegation_tokens.values())
        now_ms = self._clock.wall_ms()
        looked_at = in_turns(tokens, turn_size=LOOKED_AT_IN_TURN)
        expired = [token.token_id async for token in looked_at if token.is_expired(now_ms)]
        swept = await controller.request_in_pieces(
            _decide(expired[start : start + SWEPT_AT_ONCE_MAX], now_ms)
            for start in range(0, len(expired), SWEPT_AT_ONCE_MAX)
        )
        if swept:
            logger.info("%d delegation tokens have expired, and are removed", len(swept))


def _decide(token_ids: Sequence[str], now_ms: int) -> Callable[[ControllerState], Decision[Sequence[str]]]:
    return lambda state: state.decide_sweep_tokens(token_ids, now_ms=now_ms)
