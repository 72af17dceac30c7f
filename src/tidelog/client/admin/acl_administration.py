"""How an Admin asks for access rules, and changes them: any broker knows them, the controller decides."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any, Protocol, TypeVar

from tidelog.base.errors import KafkaError
from tidelog.client.admin.acl_descriptions import AclBinding, AclBindingFilter
from tidelog.client.cluster import Cluster
from tidelog.client.refusals import raise_first, refused
from tidelog.metadata.acls import AclOperation, AclPermission, AclResourceType, PatternType
from tidelog.net.connection import Connection
from tidelog.wire.messages.api_29_describe_acls import DescribeAclsRequest, DescribeAclsResponse
from tidelog.wire.messages.api_30_create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from tidelog.wire.messages.api_31_delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse

R = TypeVar("R")

_WORDS: dict[type[IntEnum], str] = {
    AclResourceType: "type of a resource",
    PatternType: "type of a pattern",
    AclOperation: "operation",
    AclPermission: "permission",
}


class _Pattern(Protocol):
    resource_type: int
    resource_name: str
    pattern_type: int


class _Rule(Protocol):
    principal: str
    host: str
    operation: int
    permission_type: int


class AclAdministration:
    """See `AsyncAclAdmin`, whose methods these are.

    Args:
        request_timeout_ms: of one request; `cluster` knows how long all attempts may take together.
    """

    def __init__(self, cluster: Cluster, *, request_timeout_ms: int) -> None:
        self._cluster = cluster
        self._request_timeout_ms = request_timeout_ms

    async def describe(self, wanted: AclBindingFilter) -> list[AclBinding]:
        request = DescribeAclsRequest(**_filter(wanted))

        async def send_request() -> list[AclBinding]:
            response = await self._request(await self._cluster.any_broker(), request, DescribeAclsResponse)
            raise_first([refused(response.error_code, "access rules", response.error_message)])
            return sorted(_binding(resource, acl) for resource in response.resources for acl in resource.acls)

        return await self._cluster.retrying("describe access rules", send_request)

    async def create(self, bindings: Iterable[AclBinding]) -> None:
        rows = {one: _creation(one) for one in bindings}
        errors: dict[AclBinding, KafkaError | None] = {}

        async def send_request() -> None:
            left = [one for one in rows if errors.get(one, True)]
            request = CreateAclsRequest(creations=[rows[one] for one in left])
            response = await self._request(await self._controller(), request, CreateAclsResponse)
            for one, row in zip(left, response.results, strict=True):
                rule = f"{one.permission} {one.principal} {one.operation} {one.resource_type} {one.resource_name!r}"
                errors[one] = refused(row.error_code, f"access rule: {rule}", row.error_message)
            raise_first(error for error in errors.values() if error is not None and error.retriable)

        if rows:
            await self._cluster.retrying("create access rules", send_request)
        raise_first(errors.values())

    async def delete(self, filters: Iterable[AclBindingFilter]) -> list[AclBinding]:
        request = DeleteAclsRequest(filters=[DeleteAclsFilter(**_filter(one)) for one in filters])
        gone: set[AclBinding] = set()

        async def send_request() -> None:
            response = await self._request(await self._controller(), request, DeleteAclsResponse)
            for result in response.filter_results:
                gone.update(_binding(row, row) for row in result.matching_acls if not row.error_code)
            raise_first(refused(one.error_code, "access rules", one.error_message) for one in response.filter_results)

        if request.filters:
            await self._cluster.retrying("delete access rules", send_request)
        return sorted(gone)

    # How.
    async def _request(self, connection: Connection, request: object, response: type[R]) -> R:
        return await connection.request(request, response, timeout_ms=self._request_timeout_ms)

    async def _controller(self) -> Connection:
        if self._cluster.metadata.controller_id is None:
            await self._cluster.fetch_metadata([])
        return await self._cluster.controller()


def _filter(wanted: AclBindingFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": _number(AclResourceType, wanted.resource_type),
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": _number(PatternType, wanted.pattern_type),
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": _number(AclOperation, wanted.operation),
        "permission_type": _number(AclPermission, wanted.permission),
    }


def _creation(one: AclBinding) -> AclCreation:
    return AclCreation(
        resource_type=_number(AclResourceType, one.resource_type),
        resource_name=one.resource_name,
        resource_pattern_type=_number(PatternType, one.pattern_type),
        principal=one.principal,
        host=one.host,
        operation=_number(AclOperation, one.operation),
        permission_type=_number(AclPermission, one.permission),
    )


def _number(words: type[IntEnum], name: str | None) -> int:
    """None stands for any."""
    if name is None:
        return 1
    found = words.__members__.get(name.upper())
    if not found:
        known = ", ".join(one.name.lower() for one in words if one > 1)
        raise ValueError(f"{name!r} is no {_WORDS[words]}: there are {known}")
    return int(found)


def _binding(pattern: _Pattern, rule: _Rule) -> AclBinding:
    """What is not known here is told by its number."""
    words: list[Any] = [
        _name(AclResourceType, pattern.resource_type),
        _name(AclOperation, rule.operation),
        _name(AclPermission, rule.permission_type),
        _name(PatternType, pattern.pattern_type),
    ]
    return AclBinding(words[0], pattern.resource_name, rule.principal, words[1], words[2], rule.host, words[3])


def _name(words: type[IntEnum], number: int) -> str:
    try:
        return words(number).name.lower()
    except ValueError:
        return str(number)
