"""RenewDelegationToken 1-2: have a token count for longer (KIP-48).

Behaviour: the owner and the renewers do, until its last time at most. A period that is not above 0 stands for as long
as the settings allow, which is the most too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.base.errors import KafkaError
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_39_renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import ControllerApi


async def handle(
    node: ControllerApi, request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    period_ms = request.renew_period_ms if request.renew_period_ms > 0 else None
    try:
        expiry_timestamp_ms = await node.controller.request(
            lambda state: state.decide_renew_token(
                context.requester, bytes(request.hmac), period_ms=period_ms, now_ms=node.clock.wall_ms()
            )
        )
        await node.caught_up()
    except KafkaError as error:
        return refused(request, context, error)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expiry_timestamp_ms)


def refused(
    request: RenewDelegationTokenRequest, context: RequestContext, error: KafkaError
) -> RenewDelegationTokenResponse:
    """The answer where nothing could be decided."""
    return RenewDelegationTokenResponse(error_code=code_of(error, "RenewDelegationToken"))
