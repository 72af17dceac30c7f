"""Has the active controller give leaderships back to the preferred replicas, every so often.

Kafka: `ReplicationControlManager.maybeBalancePartitionLeaders`.
"""

from __future__ import annotations

import asyncio
import logging

from tidelog.base.errors import KafkaError
from tidelog.controller import ControllerState, PartitionScan
from tidelog.journal import Decision
from tidelog.server.quorum.controller import ControllerHost

logger = logging.getLogger("tidelog.server.balancing")


class LeaderBalancing:
    """See the module.

    Args:
        interval_seconds: `leader.imbalance.check.interval.seconds`.
    """

    def __init__(self, node: ControllerHost, *, interval_seconds: int) -> None:
        self._node = node
        self._interval_seconds = interval_seconds

    async def run(self) -> None:
        """Do so wherever the active controller is this node's, for as long as it runs."""
        while True:
            await asyncio.sleep(self._interval_seconds)
            if self._node.active_controller is None:
                continue
            try:
                await self.balance()
            except KafkaError as error:
                logger.debug("this node gives no leadership back: %s", error)  # another controller sees to it

    async def balance(self) -> None:
        """Give back what can be, a portion after the other."""
        scan = PartitionScan()
        count = 0

        def decide(state: ControllerState) -> Decision[int]:
            nonlocal count
            decision = state.decide_balance_leaders(state.scans.pass_over(scan))
            count += decision.reply
            return decision

        await self._node.controller.request_in_portions(decide, has_more=lambda _: not scan.is_done)
        if count:
            logger.info("%d partitions are led by their preferred replica again", count)
