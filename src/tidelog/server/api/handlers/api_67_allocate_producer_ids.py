"""AllocateProducerIds 0, of brokers: a block of producer ids that nobody else is ever given (KIP-730)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.base.errors import KafkaError
from tidelog.base.ids import BrokerEpoch, BrokerId
from tidelog.controller import ProducerIdBlock
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_67_allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import ControllerApi


async def handle(
    node: ControllerApi, request: AllocateProducerIdsRequest, context: RequestContext
) -> AllocateProducerIdsResponse:
    broker_id, broker_epoch = BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch)
    try:
        block: ProducerIdBlock = await node.controller.request(
            lambda state: state.decide_allocate_producer_ids(broker_id, broker_epoch)
        )
    except KafkaError as error:
        return AllocateProducerIdsResponse(error_code=code_of(error, f"AllocateProducerIds of broker {broker_id}"))
    return AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.size)
