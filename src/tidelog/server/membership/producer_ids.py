"""Producer ids that nobody was given before, over all restarts: this broker's share, fetched a block at a time.

Kafka: `RPCProducerIdManager`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidelog.base.errors import Code, refusal
from tidelog.base.ids import BrokerEpoch, BrokerId, ProducerId
from tidelog.controller import ProducerIdBlock
from tidelog.server.membership.controller_channel import ControllerChannel

TIMEOUT_MS = 30_000


class ProducerIds:
    """Hands out the producer ids of one broker.

    Args:
        broker_epoch: asked for that of the present incarnation.
    """

    def __init__(
        self, broker_id: BrokerId, broker_epoch: Callable[[], BrokerEpoch | None], channel: ControllerChannel
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._channel = channel
        self._block: ProducerIdBlock | None = None
        self._lock = asyncio.Lock()

    async def next(self) -> ProducerId:
        """An id of its own for a producer.

        Raises:
            KafkaError: the controller gave none, or none answered; what it says may be retried by the producer.
        """
        async with self._lock:
            block = self._block
            if block is None or block.size == 0:
                block = await self._allocate()
            self._block = ProducerIdBlock(ProducerId(block.first + 1), block.size - 1)
            return block.first

    async def _allocate(self) -> ProducerIdBlock:
        from tidelog.wire.messages.api_67_allocate_producer_ids import (
            AllocateProducerIdsRequest,
            AllocateProducerIdsResponse,
        )

        broker_epoch = self._broker_epoch()
        request = AllocateProducerIdsRequest(
            broker_id=self._broker_id, broker_epoch=-1 if broker_epoch is None else broker_epoch
        )
        answer = await self._channel.request(request, AllocateProducerIdsResponse, timeout_ms=TIMEOUT_MS)
        if answer.error_code in (Code.STALE_BROKER_EPOCH, Code.BROKER_ID_NOT_REGISTERED):
            raise refusal(Code.COORDINATOR_LOAD_IN_PROGRESS, "this broker registers anew: it has no producer ids yet")
        if answer.error_code:
            raise refusal(Code(answer.error_code), "the controller gives no producer ids")
        return ProducerIdBlock(ProducerId(answer.producer_id_start), answer.producer_id_len)
