"""Guesses of passwords: how many failed authentications there may be from one address.

```
 a user who logged in from that address before ──► a budget of their own      (the misconfigured neighbour of an honest
 anybody else from that address                ──► one budget together         client behind the same address costs it
                                                                               nothing, and the other way round)
```

Whoever has no budget left is refused before the password is looked at, so an answer says nothing of it, and a
thousand connections guess no faster than one. Who logs in spends nothing. The refusal is an error that clients
repeat: an honest one that comes at a bad moment gets in a little later.

Kafka delays each refusal (`connection.failed.authentication.delay.ms`), and limits nothing here: guesses on parallel
connections, or by whoever does not wait for the refusal, are as fast as the network.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tidelog.server.quotas.budgets import OWNERS_MAX, Budgets, network_of

PERIOD_MS = 60_000
SHARED = ""
"""Of those whose names prove nothing yet. No user's name is empty."""

NAME_LENGTH_MAX = 256
"""Of a user who has a budget of their own: longer ones share that of the address."""

_SCRAM_NAME = re.compile(rb"[ny],[^,]*,n=([^,]*),")

Owner = tuple[str, str]


class FailedLogins:
    """Those at one node.

    Args:
        count_max: `max.failed.authentications.per.ip`.
        now_ms: the clock, monotonic.
    """

    def __init__(self, count_max: int, now_ms: Callable[[], int]) -> None:
        self.budgets: Budgets[Owner] = Budgets(count_max, PERIOD_MS, now_ms)
        self._known: dict[Owner, None] = {}  # who logged in last is the last

    def admits(self, host: str, user: str) -> bool:
        """Whether a password from there may be looked at; a refusal is counted."""
        if self.budgets.left(self._owner(host, user)):
            return True
        self.budgets.refused += 1
        return False

    def on_failed(self, host: str, user: str) -> None:
        """It was wrong."""
        self.budgets.spend(self._owner(host, user))

    def on_succeeded(self, host: str, user: str) -> None:
        """It was right."""
        if not 0 < len(user) <= NAME_LENGTH_MAX:
            return
        owner = network_of(host), user
        self._known.pop(owner, None)
        self._known[owner] = None
        if len(self._known) > OWNERS_MAX:
            del self._known[next(iter(self._known))]

    def _owner(self, host: str, user: str) -> Owner:
        network = network_of(host)
        return (network, user) if (network, user) in self._known else (network, SHARED)


def claimed_user(message: bytes) -> str:
    """Who the first message of PLAIN or SCRAM is said to be from; SHARED where it does not say."""
    parts = message.split(b"\0")
    if len(parts) == 3:
        name = parts[1]
    else:
        first = _SCRAM_NAME.match(message)
        if first is None:
            return SHARED
        name = first[1].replace(b"=2C", b",").replace(b"=3D", b"=")
    return name.decode(errors="replace")
