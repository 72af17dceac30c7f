"""How an Admin asks for configurations, and changes them: any broker knows those of topics, each its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeVar

from tidelog.base.errors import Code, KafkaError
from tidelog.client.admin.admin_messages import config_entry
from tidelog.client.admin.descriptions import ConfigEntry, ConfigResource
from tidelog.client.cluster import Cluster
from tidelog.client.refusals import raise_first, refused
from tidelog.net.connection import Connection
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_32_describe_configs import (
    RESOURCE_BROKER,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tidelog.wire.messages.api_44_incremental_alter_configs import (
    OPERATION_DELETE,
    OPERATION_SET,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.wire.messages.api_74_list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

R = TypeVar("R")

_FIRST_OF_ALL_KINDS = 1
"""ListConfigResources before that lists the subscriptions of client metrics alone."""
_RESOURCE_TYPES: dict[str, int] = {"topic": RESOURCE_TOPIC, "broker": RESOURCE_BROKER, "group": RESOURCE_GROUP}

_NAMES_OF_TYPES: dict[int, Literal["topic", "broker", "group"]] = {
    RESOURCE_TOPIC: "topic", RESOURCE_BROKER: "broker", RESOURCE_GROUP: "group",
}  # fmt: skip


class ConfigAdministration:
    """See `AsyncAdmin`, whose methods these are.

    Args:
        request_timeout_ms: of one request; `cluster` knows how long all attempts may take together.
    """

    def __init__(self, cluster: Cluster, *, request_timeout_ms: int) -> None:
        self._cluster = cluster
        self._request_timeout_ms = request_timeout_ms

    async def describe_configs(
        self, resources: Iterable[ConfigResource], *, include_documentation: bool
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        wanted = [ConfigResource(*resource) for resource in resources]
        rows = [DescribeConfigsResource(_number_of(kind), name) for kind, name in wanted]
        request = DescribeConfigsRequest(resources=rows, include_documentation=include_documentation)

        async def send_request(
            connection: Connection, requested: Sequence[ConfigResource]
        ) -> list[dict[str, ConfigEntry]]:
            request.resources = [rows[wanted.index(resource)] for resource in requested]
            request.include_documentation = include_documentation and connection.versions.serves(
                ApiKey.DESCRIBE_CONFIGS, 3
            )
            response = await self._request(connection, request, DescribeConfigsResponse)
            found = {(row.resource_type, row.resource_name): row for row in response.results}
            entries = []
            for resource in requested:
                row = found.get((_RESOURCE_TYPES[resource.type], resource.name))
                code = Code.UNKNOWN_SERVER_ERROR if row is None else row.error_code
                message = "the answer leaves it out" if row is None else row.error_message
                raise_first([refused(code, f"{resource.type} {resource.name!r}", message)])
                assert row is not None
                entries.append({config.name: config_entry(config) for config in row.configs})
            return entries

        async def request_all() -> dict[ConfigResource, dict[str, ConfigEntry]]:
            found: dict[ConfigResource, dict[str, ConfigEntry]] = {}
            anywhere = [resource for resource in wanted if resource.type != "broker" or not resource.name]
            if anywhere:
                found.update(zip(anywhere, await send_request(await self._cluster.any_broker(), anywhere), strict=True))
            for resource in wanted:  # a broker tells its own configuration only
                if resource not in found:
                    connection = await self._broker(resource.name)
                    found[resource] = (await send_request(connection, [resource]))[0]
            return found

        return await self._cluster.retrying("describe configurations", request_all)

    async def list_config_resources(self, types: Iterable[str]) -> list[ConfigResource]:
        wanted = [_number_of(kind) for kind in types or _RESOURCE_TYPES]
        request = ListConfigResourcesRequest(resource_types=wanted)

        async def send_request() -> list[ConfigResource]:
            connection = await self._cluster.any_broker()
            response = await connection.request(
                request,
                ListConfigResourcesResponse,
                timeout_ms=self._request_timeout_ms,
                min_version=_FIRST_OF_ALL_KINDS,
            )
            raise_first([refused(response.error_code, "configurations", None)])
            rows = [(_NAMES_OF_TYPES.get(row.resource_type), row.resource_name) for row in response.config_resources]
            return sorted(ConfigResource(kind, name) for kind, name in rows if kind is not None)

        return await self._cluster.retrying("list configurations", send_request)

    async def alter_configs(
        self, changes: Mapping[ConfigResource, Mapping[str, str | None]], *, validate_only: bool
    ) -> None:
        async def send_request(connection: Connection, resources: list[ConfigResource]) -> list[KafkaError | None]:
            rows = [
                AlterConfigsResource(
                    _number_of(resource.type),
                    resource.name,
                    [
                        AlterableConfig(key, OPERATION_DELETE if value is None else OPERATION_SET, value)
                        for key, value in changes[resource].items()
                    ],
                )
                for resource in resources
            ]
            request = IncrementalAlterConfigsRequest(resources=rows, validate_only=validate_only)
            response = await self._request(connection, request, IncrementalAlterConfigsResponse)
            kinds = {number: kind for kind, number in _RESOURCE_TYPES.items()}
            return [
                refused(row.error_code, f"{kinds.get(row.resource_type)} {row.resource_name!r}", row.error_message)
                for row in response.responses
            ]

        async def request_all() -> None:
            errors: list[KafkaError | None] = []
            anywhere = [resource for resource in changes if resource.type != "broker" or not resource.name]
            if anywhere:
                errors += await send_request(await self._controller(), anywhere)
            for resource in changes:  # a broker checks its own configuration
                if resource not in anywhere:
                    errors += await send_request(await self._broker(resource.name), [resource])
            raise_first(errors)

        if changes:
            await self._cluster.retrying("alter configurations", request_all)

    # How.
    async def _request(self, connection: Connection, request: object, response: type[R]) -> R:
        return await connection.request(request, response, timeout_ms=self._request_timeout_ms)

    async def _controller(self) -> Connection:
        if self._cluster.metadata.controller_id is None:
            await self._cluster.fetch_metadata([])
        return await self._cluster.controller()

    async def _broker(self, name: str) -> Connection:
        await self._cluster.fetch_metadata([])
        brokers = self._cluster.metadata.brokers
        for broker_id in brokers:
            if str(broker_id) == name:
                return await self._cluster.broker(broker_id)
        known = ", ".join(map(str, sorted(brokers)))
        raise KafkaError(f"there is no broker {name!r}: there are {known}", code=Code.RESOURCE_NOT_FOUND)


def _number_of(kind: str) -> int:
    """Of a type of resources. Raises ValueError: there is none."""
    if kind not in _RESOURCE_TYPES:
        names = ", ".join(map(repr, _RESOURCE_TYPES))
        raise ValueError(f"types of resources: {kind!r}: one of {names} is expected")
    return _RESOURCE_TYPES[kind]
