"""DescribeUserScramCredentials 0: who has a SCRAM password, as the metadata of this node says (KIP-554).

Behaviour: of each user the mechanisms and iterations, and never what is kept of the password. A user without any is
RESOURCE_NOT_FOUND, one that is named twice DUPLICATE_RESOURCE, each on its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from tidelog.base.errors import Code
from tidelog.metadata.scram_credentials import MECHANISM_NUMBERS, ScramCredential, ScramUser
from tidelog.server.api.request_context import RequestContext
from tidelog.wire.messages.api_50_describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import MetadataApi

AT_ONCE_MAX = 256
"""Credentials and names to look at on the event loop: a millisecond. More are looked at on another thread."""


def handle(
    node: MetadataApi, request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse | Awaitable[DescribeUserScramCredentialsResponse]:
    credentials = context.read(node).image.scram_credentials
    names = [user.name for user in request.users or ()]
    if not context.is_long and len(credentials) + len(names) <= AT_ONCE_MAX:
        return _described(credentials, names)
    if not names:
        context.is_long = True  # so is the answer
    return node.executor.compute(partial(_described, credentials, names))


def _described(
    credentials: Mapping[ScramUser, ScramCredential], names: list[str]
) -> DescribeUserScramCredentialsResponse:
    if not names:
        names = sorted({name for _, name in credentials})
    times_named = Counter(names)
    return DescribeUserScramCredentialsResponse(
        results=[_row(credentials, name, is_alone=times == 1) for name, times in times_named.items()]
    )


def _row(
    credentials: Mapping[ScramUser, ScramCredential], name: str, *, is_alone: bool
) -> DescribeUserScramCredentialsResult:
    if not is_alone:
        return DescribeUserScramCredentialsResult(
            name, Code.DUPLICATE_RESOURCE, f"the request names user {name!r} more than once"
        )
    infos = list(_infos(credentials, name))
    if not infos:
        return DescribeUserScramCredentialsResult(
            name, Code.RESOURCE_NOT_FOUND, f"user {name!r} has no SCRAM credential"
        )
    return DescribeUserScramCredentialsResult(name, credential_infos=infos)


def _infos(credentials: Mapping[ScramUser, ScramCredential], name: str) -> Iterable[CredentialInfo]:
    for mechanism, number in MECHANISM_NUMBERS.items():
        credential = credentials.get((mechanism, name))
        if credential is not None:
            yield CredentialInfo(number, credential.iterations)
