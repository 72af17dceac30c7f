"""How an Admin asks for SCRAM users, and changes them (KIP-554): any broker knows them, the controller decides."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable
from typing import TypeVar, cast

from tidelog.base.errors import KafkaError
from tidelog.client.admin.user_descriptions import (
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tidelog.client.cluster import Cluster
from tidelog.client.core.values import code_of
from tidelog.client.refusals import raise_first, refused
from tidelog.net.connection import Connection
from tidelog.security.scram import SALT_SIZE_BYTES, salted_password
from tidelog.wire.messages.api_50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from tidelog.wire.messages.api_51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

R = TypeVar("R")

_NUMBERS: dict[str, int] = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_NAMES = {number: cast(ScramMechanism, name) for name, number in _NUMBERS.items()}


class UserAdministration:
    """See `AsyncUserAdmin`, whose methods these are.

    Args:
        request_timeout_ms: of one request; `cluster` knows how long all attempts may take together.
    """

    def __init__(self, cluster: Cluster, *, request_timeout_ms: int) -> None:
        self._cluster = cluster
        self._request_timeout_ms = request_timeout_ms

    async def describe(self, users: Iterable[str] | None) -> dict[str, dict[ScramMechanism, int]]:
        names = None if users is None else list(dict.fromkeys(users))
        if names is not None and not names:
            return {}
        request = DescribeUserScramCredentialsRequest(users=None if names is None else [UserName(one) for one in names])

        async def send_request() -> dict[str, dict[ScramMechanism, int]]:
            connection = await self._cluster.any_broker()
            response = await self._request(connection, request, DescribeUserScramCredentialsResponse)
            raise_first([refused(response.error_code, "users", response.error_message)])
            raise_first(refused(row.error_code, f"user {row.user!r}", row.error_message) for row in response.results)
            return {
                row.user: {
                    _NAMES[info.mechanism]: info.iterations for info in row.credential_infos if info.mechanism in _NAMES
                }
                for row in sorted(response.results, key=lambda row: row.user)
            }

        return await self._cluster.retrying("describe users", send_request)

    async def alter(self, alterations: Iterable[UserScramCredentialUpsertion | UserScramCredentialDeletion]) -> None:
        deletions: list[ScramCredentialDeletion] = []
        upsertions: list[ScramCredentialUpsertion] = []
        for one in alterations:
            if isinstance(one, UserScramCredentialDeletion):
                deletions.append(ScramCredentialDeletion(one.user, _number_of(one.mechanism)))
            else:
                upsertions.append(await _salted(one))
        left = {gone.name for gone in deletions} | {changed.name for changed in upsertions}
        errors: dict[str, KafkaError | None] = {}

        async def send_request() -> None:
            request = AlterUserScramCredentialsRequest(
                deletions=[one for one in deletions if one.name in left],
                upsertions=[one for one in upsertions if one.name in left],
            )
            response = await self._request(await self._controller(), request, AlterUserScramCredentialsResponse)
            for row in response.results:
                errors[row.user] = refused(row.error_code, f"user {row.user!r}", row.error_message)
                if not code_of(row.error_code).retriable:
                    left.discard(row.user)
            raise_first(errors.get(name) for name in sorted(left))

        if left:
            await self._cluster.retrying("alter users", send_request)
        raise_first(errors.values())

    # How.
    async def _request(self, connection: Connection, request: object, response: type[R]) -> R:
        return await connection.request(request, response, timeout_ms=self._request_timeout_ms)

    async def _controller(self) -> Connection:
        if self._cluster.metadata.controller_id is None:
            await self._cluster.fetch_metadata([])
        return await self._cluster.controller()


async def _salted(one: UserScramCredentialUpsertion) -> ScramCredentialUpsertion:
    number, salt = _number_of(one.mechanism), secrets.token_bytes(SALT_SIZE_BYTES)
    if not one.password:
        raise ValueError(f"the password of user {one.user!r} is empty")
    if not 0 < one.iterations <= 1_000_000:
        raise ValueError(f"{one.iterations} iterations: brokers take 4096 to 16384")
    hashed = await asyncio.to_thread(salted_password, one.mechanism, one.password, salt, one.iterations)
    return ScramCredentialUpsertion(one.user, number, one.iterations, salt, hashed)


def _number_of(mechanism: str) -> int:
    number = _NUMBERS.get(mechanism)
    if number is None:
        raise ValueError(f"{mechanism!r} is no mechanism of SCRAM: there are {', '.join(_NUMBERS)}")
    return number
