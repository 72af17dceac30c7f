"""ExpireDelegationToken 1-2: have a token end sooner, or at once (KIP-48).

Behaviour: the owner and the renewers do. A negative period ends it at once, even if it has expired; one that is longer
than what is left has it count for longer, as with Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.base.errors import KafkaError
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_40_expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import ControllerApi


async def handle(
    node: ControllerApi, request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    period_ms = request.expiry_time_period_ms if request.expiry_time_period_ms >= 0 else None
    try:
        expiry_timestamp_ms = await node.controller.request(
            lambda state: state.decide_expire_token(
                context.requester, bytes(request.hmac), period_ms=period_ms, now_ms=node.clock.wall_ms()
            )
        )
        await node.caught_up()
    except KafkaError as error:
        return refused(request, context, error)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry_timestamp_ms)


def refused(
    request: ExpireDelegationTokenRequest, context: RequestContext, error: KafkaError
) -> ExpireDelegationTokenResponse:
    """The answer where nothing could be decided."""
    return ExpireDelegationTokenResponse(error_code=code_of(error, "ExpireDelegationToken"))
