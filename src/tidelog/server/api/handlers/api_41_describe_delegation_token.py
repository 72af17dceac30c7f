"""DescribeDelegationToken 1-3: the tokens that somebody may see, from the metadata of this broker (KIP-48).

Behaviour: tokens that the requester owns, had created or may renew, and those that it may DESCRIBE, or DESCRIBE_TOKENS
of whose owner. Owners that are named leave out whatever none of them owns, had created or may renew; none at all leave
out all. The answer has the HMACs, as Kafka's: the right to describe a token is the right to use it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.base.errors import Code
from tidelog.base.principals import Principal, Requester
from tidelog.metadata import MetadataImage
from tidelog.metadata.acls import AclOperation, AclResourceType
from tidelog.metadata.configs.delegation_tokens import TOKEN_SECRET_KEY
from tidelog.metadata.delegation_tokens import DelegationToken
from tidelog.security.delegation_tokens import may_ask_for_tokens, token_hmac
from tidelog.server.api.request_context import RequestContext
from tidelog.wire.messages.api_41_describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

if TYPE_CHECKING:
    from tidelog.security.authorizer import Authorizer
    from tidelog.server.api.ports import MetadataApi


async def handle(
    node: MetadataApi, request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    if not may_ask_for_tokens(context.requester):
        return DescribeDelegationTokenResponse(error_code=Code.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    secret_key = node.broker_settings[TOKEN_SECRET_KEY]
    if not secret_key:
        return DescribeDelegationTokenResponse(error_code=Code.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = None
    if request.owners is not None:
        owners = frozenset(Principal(one.principal_type, one.principal_name) for one in request.owners)
    image = context.read(node).image
    context.is_long = True  # there may be many: they are looked through, and the answer is written, on another thread
    described = partial(_described, image, node.authorizer, context.requester, owners, secret_key)
    return DescribeDelegationTokenResponse(tokens=await node.executor.compute(described))


def _described(
    image: MetadataImage,
    authorizer: Authorizer,
    requester: Requester,
    owners: frozenset[Principal] | None,
    secret_key: str,
) -> list[DescribedDelegationToken]:
    return [
        _row(token, secret_key)
        for token in image.delegation_tokens.values()
        if _is_wanted(token, owners) and _may_see(authorizer, requester, token)
    ]


def _is_wanted(token: DelegationToken, owners: frozenset[Principal] | None) -> bool:
    if owners is None:
        return True
    return token.owner in owners or token.requester in owners or not owners.isdisjoint(token.renewers)


def _may_see(authorizer: Authorizer, requester: Requester, token: DelegationToken) -> bool:
    return (
        token.concerns(requester.principal)
        or authorizer.authorize(requester, AclOperation.DESCRIBE, AclResourceType.DELEGATION_TOKEN, token.token_id)
        or authorizer.authorize(requester, AclOperation.DESCRIBE_TOKENS, AclResourceType.USER, str(token.owner))
    )


def _row(token: DelegationToken, secret_key: str) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issue_timestamp_ms,
        expiry_timestamp=token.expiry_timestamp_ms,
        max_timestamp=token.max_timestamp_ms,
        token_id=token.token_id,
        hmac=token_hmac(secret_key, token.token_id),
        renewers=[DescribedDelegationTokenRenewer(one.type, one.name) for one in token.renewers],
    )
