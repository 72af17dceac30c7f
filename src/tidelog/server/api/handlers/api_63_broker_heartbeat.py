"""BrokerHeartbeat 0-2, of brokers: a broker lives, tells how far its metadata is, and what it wants (KIP-631).

Behaviour: it is unfenced once it has seen its own registration (rule 6), fenced if it wants that; one that wants to
stop has its leaderships given to others, and is let go when all of them know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.base.errors import KafkaError
from tidelog.base.ids import BrokerEpoch, BrokerId, Offset
from tidelog.controller import Heartbeat, HeartbeatReply, PartitionScan
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_63_broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

if TYPE_CHECKING:
    from tidelog.server.api.ports import ControllerApi


async def handle(
    node: ControllerApi, request: BrokerHeartbeatRequest, context: RequestContext
) -> BrokerHeartbeatResponse:
    offset = request.current_metadata_offset
    heartbeat = Heartbeat(
        BrokerId(request.broker_id),
        BrokerEpoch(request.broker_epoch),
        None if offset < 0 else Offset(offset),
        wants_fence=request.want_fence,
        wants_shut_down=request.want_shut_down,
        offline_log_dirs=tuple(request.offline_log_dirs),
    )
    try:
        controller = node.controller
        sessions = node.broker_watch.sessions
        scan = PartitionScan()
        reply: HeartbeatReply = await controller.request_in_portions(
            lambda state: state.decide_heartbeat(
                heartbeat,
                sessions,
                next_offset=controller.journal.next_offset,
                now_ms=node.clock.now_ms(),
                scan=scan,
            ),
            has_more=lambda reply: reply.has_more,
        )
    except KafkaError as error:
        return BrokerHeartbeatResponse(error_code=code_of(error, f"BrokerHeartbeat of broker {request.broker_id}"))
    node.broker_watch.on_contact(heartbeat.broker_id, heartbeat.broker_epoch, context.connection)
    return BrokerHeartbeatResponse(
        is_caught_up=reply.is_caught_up, is_fenced=reply.is_fenced, should_shut_down=reply.should_shut_down
    )
