"""How an Admin asks for quotas of clients, and changes them (KIP-546): brokers know them, the controller decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from tidelog.base.errors import KafkaError
from tidelog.client.admin.quota_descriptions import ClientQuotaEntity, QuotaName
from tidelog.client.cluster import Cluster
from tidelog.client.core.values import code_of
from tidelog.client.refusals import raise_first, refused
from tidelog.metadata.client_quotas import CLIENT_ID, IP, USER
from tidelog.net.connection import Connection
from tidelog.wire.messages.api_48_describe_client_quotas import (
    MATCH_ANY,
    MATCH_DEFAULT,
    MATCH_EXACT,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from tidelog.wire.messages.api_49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    QuotaEntityData,
    QuotaEntryData,
)

R = TypeVar("R")

_TYPES = (USER, CLIENT_ID, IP)  # in the order of the fields of an entity


class QuotaAdministration:
    """See `AsyncUserAdmin`, whose methods these are.

    Args:
        request_timeout_ms: of one request; `cluster` knows how long all attempts may take together.
    """

    def __init__(self, cluster: Cluster, *, request_timeout_ms: int) -> None:
        self._cluster = cluster
        self._request_timeout_ms = request_timeout_ms

    async def describe(self, wanted: ClientQuotaEntity, *, strict: bool) -> dict[ClientQuotaEntity, dict[str, float]]:
        request = DescribeClientQuotasRequest(components=list(_components(wanted)), strict=strict)

        async def send_request() -> dict[ClientQuotaEntity, dict[str, float]]:
            connection = await self._cluster.any_broker()
            response = await self._request(connection, request, DescribeClientQuotasResponse)
            raise_first([refused(response.error_code, "quotas", response.error_message)])
            return {
                _entity({part.entity_type: part.entity_name for part in row.entity}): {
                    value.key: value.value for value in row.values
                }
                for row in response.entries or ()
            }

        return await self._cluster.retrying("describe quotas", send_request)

    async def alter(
        self, changes: Mapping[ClientQuotaEntity, Mapping[str, float | None]], *, validate_only: bool
    ) -> None:
        left = {entity: _entry(entity, values) for entity, values in changes.items()}
        errors: dict[ClientQuotaEntity, KafkaError | None] = {}

        async def send_request() -> None:
            request = AlterClientQuotasRequest(entries=list(left.values()), validate_only=validate_only)
            response = await self._request(await self._controller(), request, AlterClientQuotasResponse)
            for row in response.entries:
                entity = _entity({part.entity_type: part.entity_name for part in row.entity})
                errors[entity] = refused(row.error_code, called(entity), row.error_message)
                if not code_of(row.error_code).retriable:
                    left.pop(entity, None)
            raise_first(errors.get(entity) for entity in left)

        if left:
            await self._cluster.retrying("alter quotas", send_request)
        raise_first(errors.values())

    # How.
    async def _request(self, connection: Connection, request: object, response: type[R]) -> R:
        return await connection.request(request, response, timeout_ms=self._request_timeout_ms)

    async def _controller(self) -> Connection:
        if self._cluster.metadata.controller_id is None:
            await self._cluster.fetch_metadata([])
        return await self._cluster.controller()


def called(entity: ClientQuotaEntity) -> str:
    """As a person is told of it: `user 'alice', the default client-id`."""
    told = (
        f"the default {kind}" if name is QuotaName.DEFAULT else f"{kind} {name!r}"
        for kind, name in zip(_TYPES, entity, strict=True)
        if name is not None
    )
    return ", ".join(told) or "nobody"


def _components(wanted: ClientQuotaEntity) -> Iterator[ComponentData]:
    for kind, name in zip(_TYPES, wanted, strict=True):
        if name is QuotaName.ANY:
            yield ComponentData(kind, MATCH_ANY)
        elif name is QuotaName.DEFAULT:
            yield ComponentData(kind, MATCH_DEFAULT)
        elif isinstance(name, str):
            yield ComponentData(kind, MATCH_EXACT, name)


def _entry(entity: ClientQuotaEntity, values: Mapping[str, float | None]) -> QuotaEntryData:
    if QuotaName.ANY in entity:
        raise ValueError(f"{entity}: a quota is set for one name, or for the default")
    parts = [
        QuotaEntityData(kind, name if isinstance(name, str) else None)
        for kind, name in zip(_TYPES, entity, strict=True)
        if name is not None
    ]
    return QuotaEntryData(parts, [OpData(key, value or 0.0, value is None) for key, value in values.items()])


def _entity(parts: Mapping[str, str | None]) -> ClientQuotaEntity:
    names = (
        None if kind not in parts else QuotaName.DEFAULT if parts[kind] is None else parts[kind] for kind in _TYPES
    )
    return ClientQuotaEntity(*names)
