"""SaslAuthenticate 0-2: one message of a mechanism, and the answer to it.

Behaviour: SASL_AUTHENTICATION_FAILED comes late (`connection.failed.authentication.delay.ms`), and then the connection
ends. ILLEGAL_SASL_STATE without a handshake before, or without SASL. KIP-152, KIP-368.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from tidelog.base.errors import Code
from tidelog.server.api.request_context import RequestContext
from tidelog.wire.messages.api_36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

if TYPE_CHECKING:
    from tidelog.server.api.ports import MetadataApi


def handle(
    node: MetadataApi, request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse | Awaitable[SaslAuthenticateResponse]:
    gate = context.connection.gate
    if gate is None:
        return SaslAuthenticateResponse(
            error_code=Code.ILLEGAL_SASL_STATE, error_message=f"{context.connection.listener_name} asks for no SASL"
        )
    return gate.on_authenticate(bytes(request.auth_bytes))
