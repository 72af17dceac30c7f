"""BrokerRegistration 0-4, of brokers: a broker that has started asks for an incarnation (KIP-631).

Behaviour: what an earlier incarnation led and was in sync for ends in the batch that registers the new one (rule 6),
or, if that is much, in portions before it.
While another process answers for the id, DUPLICATE_BROKER_REGISTRATION; where it holds the very directories of the one
before, that one is gone, and its session is not waited for. A broker epoch that is presented means: nothing was lost
since (rule 7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.base.errors import KafkaError
from tidelog.base.ids import BrokerEpoch, BrokerId, ClusterId
from tidelog.controller import BrokerChange, BrokerToRegister, PartitionScan
from tidelog.metadata import RegisteredEndpoint
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_62_broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

if TYPE_CHECKING:
    from tidelog.server.api.ports import ControllerApi


async def handle(
    node: ControllerApi, request: BrokerRegistrationRequest, context: RequestContext
) -> BrokerRegistrationResponse:
    broker = BrokerToRegister(
        broker_id=BrokerId(request.broker_id),
        incarnation_id=request.incarnation_id,
        endpoints=tuple(
            RegisteredEndpoint(one.name, one.host, one.port, one.security_protocol) for one in request.listeners
        ),
        cluster_id=ClusterId(request.cluster_id),
        rack=request.rack,
        log_dirs=tuple(request.log_dirs),
        features=tuple((one.name, one.min_supported_version, one.max_supported_version) for one in request.features),
        previous_broker_epoch=(
            None if request.previous_broker_epoch < 0 else BrokerEpoch(request.previous_broker_epoch)
        ),
    )
    try:
        controller = node.controller
        sessions = node.broker_watch.sessions
        scan = PartitionScan()
        registered: BrokerChange = await controller.request_in_portions(
            lambda state: state.decide_register_broker(
                broker,
                next_offset=controller.journal.next_offset,
                sessions=sessions,
                now_ms=node.clock.now_ms(),
                scan=scan,
            ),
            has_more=lambda reply: reply.has_more,
        )
    except KafkaError as error:
        where = f"BrokerRegistration of broker {request.broker_id} at {context.connection.peer}"
        return BrokerRegistrationResponse(error_code=code_of(error, where))
    node.broker_watch.on_contact(broker.broker_id, registered.broker_epoch, context.connection)
    return BrokerRegistrationResponse(broker_epoch=registered.broker_epoch)
