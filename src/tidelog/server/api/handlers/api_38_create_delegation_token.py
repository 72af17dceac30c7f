"""CreateDelegationToken 1-3: make a token, for oneself or for another user (KIP-48, KIP-373).

Behaviour: whoever was authenticated, and not by a token, gets one for itself. One for another user takes the right to
CREATE_TOKENS of that user. What the token is used by is in the answer alone: neither the metadata nor a log has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.principals import USER, Principal
from tidelog.controller.delegation_tokens import TokenToCreate
from tidelog.metadata.acls import AclOperation, AclResourceType
from tidelog.security.delegation_tokens import may_ask_for_tokens
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.api import ApiKey, api
from tidelog.wire.messages.api_38_create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import ControllerApi


async def handle(
    node: ControllerApi, request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    requester, owner = context.requester, _owner(request, context)
    renewers = tuple(Principal(one.principal_type, one.principal_name) for one in request.renewers)
    lifetime_ms = request.max_lifetime_ms if request.max_lifetime_ms > 0 else None
    try:
        if (
            owner != requester.principal
            and may_ask_for_tokens(requester)
            and not node.authorizer.authorize(requester, AclOperation.CREATE_TOKENS, AclResourceType.USER, str(owner))
        ):
            who = f"{requester.principal} at {requester.host}"
            why = f"{who} needs an ACL that allows CREATE_TOKENS on user {str(owner)!r}"
            node.audit.on_denied(api(ApiKey.CREATE_DELEGATION_TOKEN), why)
            raise refusal(Code.DELEGATION_TOKEN_AUTHORIZATION_FAILED, why)
        created = await node.controller.request(
            lambda state: state.decide_create_token(
                requester, TokenToCreate(owner, renewers, lifetime_ms), rng=node.rng, now_ms=node.clock.wall_ms()
            )
        )
        await node.caught_up()
    except KafkaError as error:
        return refused(request, context, error)
    token = created.token
    return CreateDelegationTokenResponse(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type,
        token_requester_principal_name=token.requester.name,
        issue_timestamp_ms=token.issue_timestamp_ms,
        expiry_timestamp_ms=token.expiry_timestamp_ms,
        max_timestamp_ms=token.max_timestamp_ms,
        token_id=token.token_id,
        hmac=created.hmac,
    )


def refused(
    request: CreateDelegationTokenRequest, context: RequestContext, error: KafkaError
) -> CreateDelegationTokenResponse:
    """The answer where nothing could be decided."""
    owner, requester = _owner(request, context), context.requester.principal
    return CreateDelegationTokenResponse(
        error_code=code_of(error, "CreateDelegationToken"),
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
    )


def _owner(request: CreateDelegationTokenRequest, context: RequestContext) -> Principal:
    if not request.owner_principal_name:
        return context.requester.principal
    return Principal(request.owner_principal_type or USER, request.owner_principal_name)
