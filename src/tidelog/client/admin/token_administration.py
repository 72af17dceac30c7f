"""How an Admin asks for delegation tokens, and has them renewed and ended (KIP-48)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from tidelog.base.principals import Principal, parse_principal
from tidelog.client.admin.token_descriptions import TokenDescription
from tidelog.client.cluster import Cluster
from tidelog.client.refusals import raise_first, refused
from tidelog.wire.messages.api_38_create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from tidelog.wire.messages.api_39_renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from tidelog.wire.messages.api_40_expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from tidelog.wire.messages.api_41_describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

R = TypeVar("R")

_CREATE_WITH_OWNER = 3
_THE_LONGEST, _AT_ONCE = -1, -1


class TokenAdministration:
    """See `AsyncTokenAdmin`, whose methods these are.

    Args:
        request_timeout_ms: of one request; `cluster` knows how long all attempts may take together.
    """

    def __init__(self, cluster: Cluster, *, request_timeout_ms: int) -> None:
        self._cluster = cluster
        self._request_timeout_ms = request_timeout_ms

    async def create(self, owner: str | None, renewers: Iterable[str], max_lifetime_ms: int | None) -> TokenDescription:
        _check_period("max_lifetime_ms", max_lifetime_ms, minimum=1)
        named = None if owner is None else parse_principal(owner)
        may_renew = tuple(map(parse_principal, renewers))
        request = CreateDelegationTokenRequest(
            owner_principal_type=None if named is None else named.type,
            owner_principal_name=None if named is None else named.name,
            renewers=[CreatableRenewers(*one) for one in may_renew],
            max_lifetime_ms=_THE_LONGEST if max_lifetime_ms is None else max_lifetime_ms,
        )
        min_version = 0 if named is None else _CREATE_WITH_OWNER

        async def send_request() -> TokenDescription:
            answer = await self._request(request, CreateDelegationTokenResponse, min_version=min_version)
            raise_first([refused(answer.error_code, "a delegation token", None)])
            return TokenDescription(
                answer.token_id,
                answer.hmac,
                _spelt(answer.principal_type, answer.principal_name),
                _requester(answer.token_requester_principal_type, answer.token_requester_principal_name),
                tuple(sorted(map(str, may_renew))),
                answer.issue_timestamp_ms,
                answer.expiry_timestamp_ms,
                answer.max_timestamp_ms,
            )

        return await self._cluster.retrying("create a delegation token", send_request)

    async def renew(self, hmac: bytes, period_ms: int | None) -> int:
        _check_period("period_ms", period_ms, minimum=1)
        request = RenewDelegationTokenRequest(
            hmac=hmac, renew_period_ms=_THE_LONGEST if period_ms is None else period_ms
        )

        async def send_request() -> int:
            answer = await self._request(request, RenewDelegationTokenResponse)
            raise_first([refused(answer.error_code, "the delegation token", None)])
            return answer.expiry_timestamp_ms

        return await self._cluster.retrying("renew a delegation token", send_request)

    async def expire(self, hmac: bytes, period_ms: int | None) -> int:
        _check_period("period_ms", period_ms, minimum=0)
        request = ExpireDelegationTokenRequest(
            hmac=hmac, expiry_time_period_ms=_AT_ONCE if period_ms is None else period_ms
        )

        async def send_request() -> int:
            answer = await self._request(request, ExpireDelegationTokenResponse)
            raise_first([refused(answer.error_code, "the delegation token", None)])
            return answer.expiry_timestamp_ms

        return await self._cluster.retrying("expire a delegation token", send_request)

    async def describe(self, owners: Iterable[str] | None) -> list[TokenDescription]:
        named = None if owners is None else [DescribeDelegationTokenOwner(*parse_principal(one)) for one in owners]
        request = DescribeDelegationTokenRequest(owners=named)

        async def send_request() -> list[TokenDescription]:
            answer = await self._request(request, DescribeDelegationTokenResponse)
            raise_first([refused(answer.error_code, "delegation tokens", None)])
            return sorted(map(_described, answer.tokens), key=lambda one: (one.issued_ms, one.token_id))

        return await self._cluster.retrying("describe delegation tokens", send_request)

    async def _request(self, request: object, response: type[R], *, min_version: int = 0) -> R:
        connection = await self._cluster.any_broker()
        return await connection.request(request, response, timeout_ms=self._request_timeout_ms, min_version=min_version)


def _check_period(name: str, period_ms: int | None, *, minimum: int) -> None:
    """Brokers take what is lower for the longest period, or for none."""
    if period_ms is not None and period_ms < minimum:
        raise ValueError(f"{name}={period_ms}: it must be {minimum} or more, or None")


def _described(row: DescribedDelegationToken) -> TokenDescription:
    return TokenDescription(
        row.token_id,
        row.hmac,
        _spelt(row.principal_type, row.principal_name),
        _requester(row.token_requester_principal_type, row.token_requester_principal_name),
        tuple(sorted(_spelt(one.principal_type, one.principal_name) for one in row.renewers)),
        row.issue_timestamp,
        row.expiry_timestamp,
        row.max_timestamp,
    )


def _spelt(kind: str, name: str) -> str:
    return str(Principal(kind, name))


def _requester(kind: str, name: str) -> str | None:
    return _spelt(kind, name) if name else None
