"""AlterUserScramCredentials 0: set and remove SCRAM passwords; the active controller decides (KIP-554).

Behaviour: each user on their own. Where one change of a user is refused, none of that user is made. Many users are
decided in portions: where the controller changes meanwhile, some may be altered and others be refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from tidelog.base.errors import KafkaError
from tidelog.controller.scram_users import AlteredScramUser, SaltedPassword, ScramUserChange
from tidelog.metadata.scram_credentials import MECHANISM_NAMES
from tidelog.server.api.division import RECORDS_MAX
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import ControllerApi

CHANGES_OF_USER_MAX = len(MECHANISM_NAMES) + 1
"""With so many one is named twice, or is of no mechanism: more of them say nothing else."""


async def handle(
    node: ControllerApi, request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    read = partial(_portions, request)
    portions = await node.executor.compute(read) if context.is_long else read()
    results: list[AlterUserScramCredentialsResult] = []
    for changes in portions:
        results += await _decide(node, changes)
    await node.caught_up()
    return AlterUserScramCredentialsResponse(results=results)


def refused(
    request: AlterUserScramCredentialsRequest, context: RequestContext, error: KafkaError
) -> AlterUserScramCredentialsResponse:
    """The answer where nothing could be decided."""
    named = [gone.name for gone in request.deletions] + [changed.name for changed in request.upsertions]
    return AlterUserScramCredentialsResponse(results=_all_refused(list(dict.fromkeys(named)), error))


async def _decide(node: ControllerApi, changes: list[ScramUserChange]) -> list[AlterUserScramCredentialsResult]:
    try:
        altered: tuple[AlteredScramUser, ...] = await node.controller.request(
            lambda state: state.decide_alter_scram_users(changes)
        )
    except KafkaError as error:
        return _all_refused(list(dict.fromkeys(one.user for one in changes)), error)
    return [AlterUserScramCredentialsResult(one.user, one.code, one.message) for one in altered]


def _all_refused(users: list[str], error: KafkaError) -> list[AlterUserScramCredentialsResult]:
    code = code_of(error, "AlterUserScramCredentials")
    return [AlterUserScramCredentialsResult(user, code, str(error)) for user in users]


def _portions(request: AlterUserScramCredentialsRequest) -> list[list[ScramUserChange]]:
    """What is to be changed, so that all of one user is in one portion, and few are in each."""
    by_user: dict[str, list[ScramUserChange]] = {}
    for change in _changes(request):
        of_user = by_user.setdefault(change.user, [])
        if len(of_user) < CHANGES_OF_USER_MAX:
            of_user.append(change)
    users, users_max = iter(by_user.values()), RECORDS_MAX // len(MECHANISM_NAMES)
    portions: list[list[ScramUserChange]] = []
    while portion := [change for of_user in islice(users, users_max) for change in of_user]:
        portions.append(portion)
    return portions


def _changes(request: AlterUserScramCredentialsRequest) -> Iterator[ScramUserChange]:
    for gone in request.deletions:
        yield ScramUserChange(gone.name, gone.mechanism, None)
    for one in request.upsertions:
        password = SaltedPassword(bytes(one.salt), bytes(one.salted_password), one.iterations)
        yield ScramUserChange(one.name, one.mechanism, password)
