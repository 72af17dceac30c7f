"""UnregisterBroker 0: forget a broker that will not come back (KIP-631).

Behaviour: it loses every leadership and every seat in an ISR; what it holds stays assigned to it. One that still runs
registers anew with its next heartbeat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.base.errors import KafkaError
from tidelog.base.ids import BrokerEpoch, BrokerId
from tidelog.controller import BrokerChange, ControllerState, PartitionScan
from tidelog.journal import Decision
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_64_unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from tidelog.server.api.ports import ControllerApi


async def handle(
    node: ControllerApi, request: UnregisterBrokerRequest, context: RequestContext
) -> UnregisterBrokerResponse:
    try:
        controller, sessions = node.controller, node.broker_watch.sessions
        broker_epoch: BrokerEpoch | None = None
        scan = PartitionScan()

        def decide(state: ControllerState) -> Decision[BrokerChange]:
            nonlocal broker_epoch
            decision = state.decide_unregister_broker(
                BrokerId(request.broker_id), broker_epoch, sessions=sessions, now_ms=node.clock.now_ms(), scan=scan
            )
            broker_epoch = decision.reply.broker_epoch
            return decision

        await controller.request_in_portions(decide, has_more=lambda reply: reply.has_more)
        await node.caught_up()
    except KafkaError as error:
        return refused(request, context, error)
    return UnregisterBrokerResponse()


def refused(request: UnregisterBrokerRequest, context: RequestContext, error: KafkaError) -> UnregisterBrokerResponse:
    """The answer where nothing could be decided."""
    return UnregisterBrokerResponse(error_code=code_of(error, "UnregisterBroker"), error_message=str(error))
