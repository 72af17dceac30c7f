"""TellLosses 0, ours, of brokers: what their replicas held that their leaders lack.

Behaviour: answered once it is committed. What is told again changes nothing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.base.errors import KafkaError
from tidelog.base.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionIndex, TopicId
from tidelog.base.losses import LossId
from tidelog.controller import ControllerState, ToldLoss
from tidelog.journal import Decision
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_10002_tell_losses import TellLossesRequest, TellLossesResponse
from tidelog.wire.messages.losses import replica_loss_of

if TYPE_CHECKING:
    from tidelog.server.api.ports import ControllerApi


PIECE = 25
"""Entries that are decided at once: a few milliseconds."""


async def handle(node: ControllerApi, request: TellLossesRequest, context: RequestContext) -> TellLossesResponse:
    del context
    told = [
        ToldLoss(
            LossId(TopicId(one.topic_id), PartitionIndex(one.partition_index), LeaderEpoch(one.leader_epoch)),
            replica_loss_of(one.replica),
        )
        for one in request.losses
    ]
    broker_id, broker_epoch = BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch)

    def decide(state: ControllerState, piece: list[ToldLoss]) -> Decision[tuple[()]]:
        return state.decide_tell_losses(broker_id, broker_epoch, piece, now_ms=node.clock.wall_ms())

    try:
        controller = node.controller
        await controller.request_in_pieces(
            [partial(decide, piece=told[start : start + PIECE]) for start in range(0, max(len(told), 1), PIECE)]
        )
    except KafkaError as error:
        return TellLossesResponse(error_code=code_of(error, f"TellLosses of broker {broker_id}"))
    return TellLossesResponse()
