"""DeleteAcls 1-3: take back the access rules that filters match (KIP-140, KIP-290); gone here with the answer.

Behaviour: each filter says what it matched, a rule that several match is told by each. A filter that names what is not
known here takes nothing back. Without an authorizer each is SECURITY_DISABLED.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from tidelog.base.errors import KafkaError
from tidelog.metadata.acls import Acl
from tidelog.server.api.acl_rows import check_is_on, filter_in
from tidelog.server.api.division import RECORDS_MAX
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_31_delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import ControllerApi

Found = dict[UUID, Acl]


async def handle(node: ControllerApi, request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    try:
        check_is_on(node.authorizer)
        await node.caught_up()  # what was answered before is to be found
        found = [await node.executor.compute(partial(_found, node.image.acls, one)) for one in request.filters]
        acl_ids = list(dict.fromkeys(acl_id for one in found if isinstance(one, dict) for acl_id in one))
        for start in range(0, len(acl_ids), RECORDS_MAX):
            await _remove(node, acl_ids[start : start + RECORDS_MAX])
        await node.caught_up()
    except KafkaError as error:
        return refused(request, context, error)
    return DeleteAclsResponse(filter_results=await node.executor.compute(partial(_rows, found)))


def refused(request: DeleteAclsRequest, context: RequestContext, error: KafkaError) -> DeleteAclsResponse:
    """The answer where nothing could be decided."""
    code = code_of(error, "DeleteAcls")
    return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(code, str(error)) for _ in request.filters])


async def _remove(node: ControllerApi, acl_ids: Sequence[UUID]) -> None:
    await node.controller.request(lambda state: state.decide_remove_acls(acl_ids))


def _found(acls: Mapping[UUID, Acl], row: DeleteAclsFilter) -> Found | KafkaError:
    try:
        wanted = filter_in(row)
    except KafkaError as error:
        return error
    return {acl_id: acl for acl_id, acl in acls.items() if wanted.matches(acl)}


def _rows(found: Sequence[Found | KafkaError]) -> list[DeleteAclsFilterResult]:
    return [
        DeleteAclsFilterResult(code_of(one, "DeleteAcls"), str(one))
        if isinstance(one, KafkaError)
        else DeleteAclsFilterResult(matching_acls=[_row(acl) for acl in dict.fromkeys(one.values())])
        for one in found
    ]


def _row(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        resource_type=int(acl.resource_type),
        resource_name=acl.resource_name,
        pattern_type=int(acl.pattern_type),
        principal=acl.principal,
        host=acl.host,
        operation=int(acl.operation),
        permission_type=int(acl.permission),
    )
