"""CreateAcls 1-3: make access rules, each on its own (KIP-140, KIP-290); this broker goes by them with the answer.

Behaviour: a rule that is there already is no error, and is not made twice. Without an authorizer each is
SECURITY_DISABLED.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from tidelog.base.errors import KafkaError
from tidelog.metadata.acls import Acl
from tidelog.server.api.acl_rows import acl_in, check_is_on
from tidelog.server.api.division import RECORDS_MAX
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_30_create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from tidelog.server.api.ports import ControllerApi


async def handle(node: ControllerApi, request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    read = partial(_wanted, request)
    wanted = await node.executor.compute(read) if context.is_long else read()
    refusals: list[KafkaError | None] = []
    try:
        check_is_on(node.authorizer)
        for start in range(0, len(wanted), RECORDS_MAX):
            refusals += await _create(node, wanted[start : start + RECORDS_MAX])
        await node.caught_up()
    except KafkaError as error:
        return refused(request, context, error)
    return CreateAclsResponse(results=[_row(one) for one in refusals])


def refused(request: CreateAclsRequest, context: RequestContext, error: KafkaError) -> CreateAclsResponse:
    """The answer where nothing could be decided."""
    code = code_of(error, "CreateAcls")
    return CreateAclsResponse(results=[AclCreationResult(code, str(error)) for _ in request.creations])


async def _create(node: ControllerApi, wanted: Sequence[Acl | KafkaError]) -> list[KafkaError | None]:
    acls = [one for one in wanted if isinstance(one, Acl)]
    made = iter(await node.controller.request(lambda state: state.decide_create_acls(acls, rng=node.rng)))
    return [next(made) if isinstance(one, Acl) else one for one in wanted]


def _wanted(request: CreateAclsRequest) -> list[Acl | KafkaError]:
    return [acl_in(row) for row in request.creations]


def _row(error: KafkaError | None) -> AclCreationResult:
    return AclCreationResult() if error is None else AclCreationResult(code_of(error, "CreateAcls"), str(error))
