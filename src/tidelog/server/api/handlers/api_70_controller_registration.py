"""ControllerRegistration 0, of controllers: one that is no broker tells where it listens and what it can work at.

Behaviour: the metadata keeps it from `metadata.version` 28 on (KIP-919; Kafka from 15 on); below that the active
controller remembers it as long as it leads. UpdateFeatures counts it. A node that is no member of the metadata quorum
is refused with UNKNOWN_CONTROLLER_ID.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.base.errors import KafkaError
from tidelog.base.ids import BrokerId
from tidelog.metadata import ControllerImage, RegisteredEndpoint
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_70_controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import ServerApi


async def handle(
    node: ServerApi, request: ControllerRegistrationRequest, context: RequestContext
) -> ControllerRegistrationResponse:
    registered = ControllerImage(
        BrokerId(request.controller_id),
        request.incarnation_id,
        tuple(RegisteredEndpoint(one.name, one.host, one.port, one.security_protocol) for one in request.listeners),
        tuple((one.name, one.min_supported_version, one.max_supported_version) for one in request.features),
    )
    try:
        controller = node.controller
        known = node.controller_registrations.of(node.quorum)
        members = {*known.voters, *known.others}
        await controller.request(lambda state: state.decide_register_controller(registered, members=members))
    except KafkaError as error:
        where = f"ControllerRegistration of controller {request.controller_id} at {context.connection.peer}"
        return ControllerRegistrationResponse(error_code=code_of(error, where), error_message=str(error))
    node.controller_registrations.note(registered)
    return ControllerRegistrationResponse(error_message=None)
