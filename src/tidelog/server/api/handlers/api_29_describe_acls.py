"""DescribeAcls 1-3: the access rules that a filter matches (KIP-140, KIP-290).

Behaviour: rules are told by what they name, in the order of types and names. Without an authorizer it is
SECURITY_DISABLED.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from tidelog.base.errors import KafkaError
from tidelog.metadata.acls import Acl, AclFilter
from tidelog.server.api.acl_rows import check_is_on, filter_in
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_29_describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import MetadataApi


async def handle(node: MetadataApi, request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    try:
        check_is_on(node.authorizer)
        wanted = filter_in(request)
    except KafkaError as error:
        return DescribeAclsResponse(error_code=code_of(error, "DescribeAcls"), error_message=str(error))
    acls = context.read(node).image.acls
    return DescribeAclsResponse(resources=await node.executor.compute(partial(_rows, acls, wanted)))


def _rows(acls: Mapping[UUID, Acl], wanted: AclFilter) -> list[DescribeAclsResource]:
    by_pattern: dict[tuple[int, str, int], dict[Acl, None]] = defaultdict(dict)
    for acl in acls.values():
        if wanted.matches(acl):
            by_pattern[int(acl.resource_type), acl.resource_name, int(acl.pattern_type)][acl] = None
    return [
        DescribeAclsResource(
            resource_type=kind,
            resource_name=name,
            pattern_type=pattern,
            acls=[AclDescription(one.principal, one.host, int(one.operation), int(one.permission)) for one in found],
        )
        for (kind, name, pattern), found in sorted(by_pattern.items())
    ]
