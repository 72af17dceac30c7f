"""Envelope 0: a broker asks the controller something for a client, and says for whom (KIP-590).

Behaviour: what is in the envelope is answered as if the client had sent it here: by the same handler, with the client's
id, principal and address, and with what it has seen (KIP-1243). What is wrong with the envelope, or with the start of
what is in it, is its own error; so is that this controller is not active, and that the broker may have sent it again
since (see `forwarded_attempts`).

Kafka: `ControllerApis.handleEnvelopeRequest`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.principals import Requester
from tidelog.security.principal_data import decode_principal
from tidelog.server.api.embedded_requests import EmbeddedRequests
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.server.quorum.forwarded_attempts import Attempt
from tidelog.wire.messages.api_58_envelope import EnvelopeRequest, EnvelopeResponse

if TYPE_CHECKING:
    from tidelog.server.api.ports import ServerApi


def handle(
    embedded: EmbeddedRequests, node: ServerApi, request: EnvelopeRequest, context: RequestContext
) -> EnvelopeResponse | Awaitable[EnvelopeResponse]:
    try:
        principal, by_token = decode_principal(request.request_principal)
        client = Requester(principal, _host(request.client_host_address), by_token)
        data = memoryview(request.request_data)  # type: ignore[arg-type]
        return _enclosed(embedded.answer(data, context.connection, client, _attempt(request)))
    except KafkaError as error:
        return _refused(error)


async def _enclosed(answer: Awaitable[memoryview]) -> EnvelopeResponse:
    try:
        return EnvelopeResponse(response_data=await answer)
    except KafkaError as error:
        return _refused(error)


def _refused(error: KafkaError) -> EnvelopeResponse:
    return EnvelopeResponse(error_code=code_of(error, "Envelope"))


def _attempt(request: EnvelopeRequest) -> Attempt | None:
    """None of a broker that counts nothing, as Kafka's."""
    if request.sender_generation < 0:
        return None
    return Attempt(request.sender_id, request.sender_generation, request.leader_epoch)


def _host(address: bytes) -> str:
    """An address as connections have theirs; IPv4 in IPv6 is IPv4."""
    try:
        host = ipaddress.ip_address(address)
    except ValueError:
        raise refusal(
            Code.INVALID_REQUEST, f"the client's address has {len(address)} bytes; 4 are one of IPv4, 16 of IPv6"
        ) from None
    if isinstance(host, ipaddress.IPv6Address) and host.ipv4_mapped is not None:
        host = host.ipv4_mapped
    return str(host)
