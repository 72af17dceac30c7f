"""How often each of many peers may do something that costs the node: in bounded memory, however many peers there are.

```
 begins full ──► spend ──► … ──► empty: refused          comes back steadily: all of it within `period_ms`
```

Whoever spends nothing is not remembered. Of those who do, at most OWNERS_MAX are: who spent longest ago is forgotten,
so a stranger with more addresses than that gains no more than these addresses give anyway.

Kafka has the same table for each of its quotas (`ClientQuotaManager`), and none for what is limited here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Generic, TypeVar

from tidelog.server.quotas.rates import TokenBucket, Windows

K = TypeVar("K")

OWNERS_MAX = 10_000
IPV6_NETWORK_BITS = 64
"""Whoever has one IPv6 address has as many as these bits leave."""


class Budgets(Generic[K]):
    """One budget for each owner, all of the same size.

    Args:
        count_max: what an owner may spend at once.
        period_ms: within which an empty budget is full again.
        now_ms: the clock, monotonic.

    Attributes:
        refused: how often somebody was refused.
    """

    def __init__(self, count_max: int, period_ms: int, now_ms: Callable[[], int]) -> None:
        self.count_max = count_max
        self.refused = 0
        self._windows = Windows(1, period_ms)
        self._now_ms = now_ms
        self._spent: dict[K, TokenBucket] = {}  # who spent last is the last

    def __len__(self) -> int:
        """How many owners are remembered."""
        return len(self._spent)

    def left(self, owner: K) -> int:
        """What the owner may spend now."""
        bucket = self._spent.get(owner)
        if bucket is None:
            return self.count_max
        return max(int(bucket.tokens(self._limit, self._windows, self._now_ms())), 0)

    def spend(self, owner: K, count: int = 1) -> None:
        """The owner did it so often. It is never in debt: what was refused costs nothing later."""
        bucket = self._spent.pop(owner, None) or TokenBucket()
        now_ms = self._now_ms()
        left = max(bucket.tokens(self._limit, self._windows, now_ms), 0.0)
        bucket.record(min(count, left), self._limit, self._windows, now_ms)
        self._spent[owner] = bucket
        if len(self._spent) > OWNERS_MAX:
            del self._spent[next(iter(self._spent))]

    def give_back(self, owner: K, count: int) -> None:
        """So much of what the owner spent came to nothing."""
        bucket = self._spent.get(owner)
        if bucket is not None:
            bucket.record(-count, self._limit, self._windows, self._now_ms())

    @property
    def _limit(self) -> float:
        """By the second."""
        return self.count_max * 1_000 / self._windows.span_ms


@lru_cache(maxsize=1_024)
def network_of(host: str) -> str:
    """Whom a budget for an address is for: an IPv4 address, or a whole network of IPv6."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> IPV6_NETWORK_BITS << IPV6_NETWORK_BITS)}/{IPV6_NETWORK_BITS}"
