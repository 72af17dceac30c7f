"""SaslHandshake 0-1: by which mechanism whoever connected says who they are.

Behaviour: ILLEGAL_SASL_STATE on a listener without SASL, and within a second after the last authentication;
UNSUPPORTED_SASL_MECHANISM, with those that are offered, and then the connection ends. After version 0 the messages of
the mechanism come without headers. KIP-43, KIP-152, KIP-368.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from tidelog.base.errors import Code
from tidelog.server.api.request_context import RequestContext
from tidelog.wire.messages.api_17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from tidelog.server.api.ports import MetadataApi


def handle(
    node: MetadataApi, request: SaslHandshakeRequest, context: RequestContext
) -> SaslHandshakeResponse | Awaitable[SaslHandshakeResponse]:
    gate = context.connection.gate
    if gate is None:
        return SaslHandshakeResponse(error_code=Code.ILLEGAL_SASL_STATE)
    return gate.on_handshake(request.mechanism, is_raw=context.api_version == 0)
