"""Where there are no access rules, a node alone changes whom nodes take for one of theirs.

An operator who may set passwords, or name a voter, may become a node by that: the one sets what the listener between
nodes takes, to the other the nodes show what they log in with. Rules say who may do that. Without them everybody may do
what operators do, so this is asked besides.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tidelog.base.errors import KafkaError
from tidelog.metadata.acls import AclOperation
from tidelog.server.api.authorization import LOOKED_AT_ONCE_MAX, Whole
from tidelog.server.api.denied_answers import blank, row_class
from tidelog.server.api.rights import Rights
from tidelog.wire.api import Api

OF_IDENTITY = ("sasl.", "ssl.")
"""In the names of settings that say how a listener finds out who connects, whichever listener they are of."""


def settings_denial(rights: Rights, names: Collection[str]) -> KafkaError | None:
    """Why the requester may not change these settings of a broker. A broker has fewer than are looked at."""
    if rights.has_rules:
        return None
    if len(names) <= LOOKED_AT_ONCE_MAX and not any(word in name for name in names for word in OF_IDENTITY):
        return None
    return rights.cluster_denial(AclOperation.CLUSTER_ACTION)


VOTERS = Whole(
    lambda rights, request, version: None if rights.has_rules else rights.cluster_denial(AclOperation.CLUSTER_ACTION),
    asks=frozenset({AclOperation.CLUSTER_ACTION}),
)
"""Who votes: the nodes log in to whatever address is named."""


def _users(rights: Rights, request: Any, version: int) -> KafkaError | None:
    error = rights.cluster_denial(AclOperation.ALTER)
    if error is not None or rights.has_rules:
        return error
    if any(rights.is_node(one.name) for one in (*request.deletions, *request.upsertions)):
        return rights.cluster_denial(AclOperation.CLUSTER_ACTION)
    return None


def _denied_users(known: Api, request: Any, error: KafkaError, version: int) -> Any:
    """Each user has a row in the answer, however often the request names it."""
    cls = row_class(known.response, "results")
    users = dict.fromkeys(one.name for one in (*request.deletions, *request.upsertions))
    rows = [blank(cls, user=user, error_code=error.code, error_message=str(error)) for user in users]
    return blank(known.response, results=rows)


USERS = Whole(
    _users,
    weigh=lambda request: len(request.deletions) + len(request.upsertions),
    deny=_denied_users,
)
"""With a password of its name whoever connects is a node."""
