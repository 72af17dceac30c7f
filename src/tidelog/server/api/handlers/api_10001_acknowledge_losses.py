"""AcknowledgeLosses 0, ours: note that an operator has dealt with entries of the account of losses.

Behaviour: an entry that is not there is INVALID_REQUEST on its own. One that is open stays open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import LeaderEpoch, PartitionIndex, TopicId
from tidelog.base.losses import NOTE_SIZE_MAX, LossId
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_10001_acknowledge_losses import (
    AcknowledgedLoss,
    AcknowledgeLossesRequest,
    AcknowledgeLossesResponse,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import ControllerApi

LOSSES_MAX = 100
"""Entries in a request: each is some milliseconds of the event loop by the time that all nodes have it."""


async def handle(
    node: ControllerApi, request: AcknowledgeLossesRequest, context: RequestContext
) -> AcknowledgeLossesResponse:
    named = [
        LossId(TopicId(one.topic_id), PartitionIndex(one.partition_index), LeaderEpoch(one.leader_epoch))
        for one in request.losses
    ]
    try:
        if len(request.note) > NOTE_SIZE_MAX:
            raise refusal(Code.INVALID_REQUEST, f"a note has at most {NOTE_SIZE_MAX} characters")
        if len(named) > LOSSES_MAX:
            raise refusal(Code.INVALID_REQUEST, f"{len(named)} entries; a request names at most {LOSSES_MAX}")
        found = await node.controller.request(
            lambda state: state.decide_acknowledge_losses(named, request.note, now_ms=node.clock.wall_ms())
        )
        await node.caught_up()
    except KafkaError as error:
        return refused(request, context, error)
    return AcknowledgeLossesResponse(
        results=[AcknowledgedLoss(Code.NONE if is_there else Code.INVALID_REQUEST) for is_there in found]
    )


def refused(request: AcknowledgeLossesRequest, context: RequestContext, error: KafkaError) -> AcknowledgeLossesResponse:
    """The answer where nothing could be decided."""
    return AcknowledgeLossesResponse(error_code=code_of(error, "AcknowledgeLosses"), error_message=str(error))
