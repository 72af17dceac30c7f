"""Who changed what, and who was refused what: lines of the logger `tidelog.audit`, where there is an authorizer.

Kafka: the logger `kafka.authorizer.logger`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from tidelog.base.ports import Clock
from tidelog.base.principals import Requester
from tidelog.server.api.division import Division
from tidelog.wire.api import Api, ApiKey

logger = logging.getLogger("tidelog.audit")

REPEATED_MS_MIN = 10_000
"""The same refusal is told once in so long."""
KEPT_MAX = 1_000
"""Refusals that are remembered for that."""
REFUSALS_PER_SECOND_MAX = 20
"""Whoever asks for all names that there could be does not fill the disk; it is told how many more there were."""
NAMED_MAX = 10
"""Of what a request changes."""

CHANGES = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DELETE_RECORDS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ELECT_LEADERS,
        ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        ApiKey.ACKNOWLEDGE_LOSSES,
    }
)
"""What operators do. What is written to topics and groups is no line each."""

_NAMES = (
    *("principal", "principal_filter", "user", "name", "topic", "topic_name", "topic_id"),
    *("resource_name", "resource_name_filter", "group_id"),
)
"""The fields of a row that say what it is about. No secret is among them."""


class AuditLog:
    """Of one node."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told_ms: dict[str, int] = {}
        self._second = 0
        self._count = 0
        self._left_out = 0

    def on_denied(self, known: Api, why: str) -> None:
        """Somebody was refused something. `why` names who, and what rule is missing."""
        now_ms = self._clock.now_ms()
        what = f"denied {known.name}: {why}"
        told_ms = self._told_ms.get(what)
        if told_ms is not None and now_ms - told_ms < REPEATED_MS_MIN:
            return
        if now_ms // 1_000 != self._second:
            self._second, self._count = now_ms // 1_000, 0
        self._count += 1
        if self._count > REFUSALS_PER_SECOND_MAX:
            self._left_out += 1
            return
        if len(self._told_ms) >= KEPT_MAX:
            self._told_ms.clear()
        self._told_ms[what] = now_ms
        more, self._left_out = self._left_out, 0
        logger.info("%s%s", what, f" (and {more} more refusals before)" if more else "")

    def on_allowed(self, known: Api, requester: Requester, request: Any, division: Division | None) -> None:
        """Somebody is about to change something, and may."""
        listed = [] if division is None else getattr(request, division.listed) or []
        names = [_called(one) for one in listed[:NAMED_MAX]]
        if len(listed) > NAMED_MAX:
            names.append(f"and {len(listed) - NAMED_MAX} more")
        what = f": {', '.join(names)}" if names else ""
        logger.info("%s at %s asks for %s%s", requester.principal, requester.host, known.name, what)


def _called(one: Any) -> str:
    if isinstance(one, str):
        return repr(one)
    return "/".join(_texts(getattr(one, field, None) for field in _NAMES)) or type(one).__name__


def _texts(values: Iterable[object]) -> Iterable[str]:
    return (str(value) for value in values if value)
