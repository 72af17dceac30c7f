"""The quotas of clients at one broker: which is whose, what was done of it, and how long to hold somebody back.

Of the quotas that are set, the first of these counts; of one that names a default, everybody has their own share:

```
 user and client id       user and any client id       user
 any user and client id   any user and any client id   any user
                                                       client id
                                                       any client id
```

Kafka: `ClientQuotaManager`, `ClientRequestQuotaManager`, `ControllerMutationQuotaManager`, `DefaultQuotaCallback`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from tidelog.metadata.client_quotas import (
    CLIENT_ID,
    CLIENT_KEYS,
    CONNECTION_CREATION_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    REQUEST_PERCENTAGE,
    USER,
    QuotaEntity,
    canonical_name,
)
from tidelog.server.quotas.rates import DEFAULT_WINDOWS, RateMeter, TokenBucket, Windows
from tidelog.server.quotas.throttled import Throttled

K = TypeVar("K")

METERS_MAX = 10_000
"""Of one quota, of those who share none. Anybody can make client ids up: who was here longest ago is forgotten."""

ABSENT = ""
"""A part that an entity has not: no name is empty. None is the default."""

PERCENT_PER_SECOND_OF_NS = 100 / 1e9
"""What a nanosecond of the event loop is of it."""


class Share(NamedTuple):
    """Whose quota it is, and how much it is.

    Attributes:
        user: whose; ABSENT where all users with the client id share it.
        client_id: likewise.
    """

    user: str
    client_id: str
    limit: float


class ClientQuotas:
    """See the module.

    Args:
        now_ms: the clock, monotonic.
        windows: how long what was done counts.
        mutation_windows: for how long partitions that are not made or deleted are saved up.

    Attributes:
        is_set: whether there is any for users or client ids: else nothing needs to be asked, nor charged.
        are_connections_limited: whether there is any for addresses.
        throttled: who was held back, by quota.
    """

    def __init__(
        self,
        now_ms: Callable[[], int],
        windows: Windows = DEFAULT_WINDOWS,
        mutation_windows: Windows = DEFAULT_WINDOWS,
    ) -> None:
        self._now_ms = now_ms
        self._windows = windows
        self._mutation_windows = mutation_windows
        self._limits: dict[str, dict[tuple[str | None, str | None], float]] = {}
        self._ip_limits: dict[str | None, float] = {}
        self._meters: dict[str, dict[tuple[str, str], RateMeter]] = {}
        self._buckets: dict[tuple[str, str], TokenBucket] = {}
        self._connections: dict[str, RateMeter] = {}
        self.throttled = {key: Throttled(key) for key in sorted(CLIENT_KEYS)}
        self.is_set = False
        self.are_connections_limited = False

    def set_quotas(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """These are set from now on. What was done before counts for them."""
        limits: dict[str, dict[tuple[str | None, str | None], float]] = {}
        ip_limits: dict[str | None, float] = {}
        for entity, values in quotas.items():
            parts = dict(entity)
            if IP in parts:
                if CONNECTION_CREATION_RATE in values:
                    ip_limits[canonical_name(IP, parts[IP])] = values[CONNECTION_CREATION_RATE]
                continue
            for key, limit in values.items():
                if key in CLIENT_KEYS:
                    limits.setdefault(key, {})[parts.get(USER, ABSENT), parts.get(CLIENT_ID, ABSENT)] = limit
        self._limits, self._ip_limits = limits, ip_limits
        self._meters = {key: meters for key, meters in self._meters.items() if key in limits}
        if CONTROLLER_MUTATION_RATE not in limits:
            self._buckets.clear()
        if not ip_limits:
            self._connections.clear()
        self.is_set, self.are_connections_limited = bool(limits), bool(ip_limits)

    def share(self, key: str, user: str, client_id: str) -> Share | None:
        """The quota that is in force for requests of a user with a client id; None for none."""
        limits = self._limits.get(key)
        if not limits:
            return None
        for found, owner in (
            ((user, client_id), (user, client_id)),
            ((user, None), (user, client_id)),
            ((user, ABSENT), (user, ABSENT)),
            ((None, client_id), (user, client_id)),
            ((None, None), (user, client_id)),
            ((None, ABSENT), (user, ABSENT)),
            ((ABSENT, client_id), (ABSENT, client_id)),
            ((ABSENT, None), (ABSENT, client_id)),
        ):
            limit = limits.get(found)
            if limit is not None:
                return Share(*owner, limit)
        return None

    def window_bytes_max(self, key: str, user: str, client_id: str) -> int | None:
        """What may be sent in all windows together: an answer that is larger would be held against its reader longer.

        None for no limit.
        """
        share = self.share(key, user, client_id)
        return None if share is None else max(int(share.limit * self._windows.span_ms / 1_000), 1)

    def charge(self, key: str, user: str, client_id: str, amount: float) -> int:
        """So much was done: bytes, or nanoseconds of the event loop. Returns for how long to hold them back, in ms."""
        share = self.share(key, user, client_id)
        if share is None:
            return 0
        now_ms, windows = self._now_ms(), self._windows
        meter = self._meter(self._meters.setdefault(key, {}), (share.user, share.client_id))
        if key == REQUEST_PERCENTAGE:
            meter.record(amount * PERCENT_PER_SECOND_OF_NS, windows, now_ms)
            delay_ms = min(meter.throttle_ms(share.limit, windows, now_ms), windows.size_ms)
        else:
            meter.record(amount, windows, now_ms)
            delay_ms = meter.throttle_ms(share.limit, windows, now_ms)
        if delay_ms:
            self.throttled[key].add(user, client_id, delay_ms)
        return delay_ms

    def charge_mutations(self, user: str, client_id: str, count: int) -> int:
        """So many partitions were made or deleted. Returns for how long to hold them back, in ms."""
        share = self.share(CONTROLLER_MUTATION_RATE, user, client_id)
        if share is None:
            return 0
        bucket, now_ms = self._bucket(share), self._now_ms()
        bucket.record(count, share.limit, self._mutation_windows, now_ms)
        return bucket.throttle_ms(share.limit, self._mutation_windows, now_ms)

    def mutations_throttle_ms(self, user: str, client_id: str) -> int:
        """For how long they may neither make nor delete partitions; 0 where they may."""
        share = self.share(CONTROLLER_MUTATION_RATE, user, client_id)
        if share is None:
            return 0
        return self._bucket(share).throttle_ms(share.limit, self._mutation_windows, self._now_ms())

    def admits_connection(self, ip: str) -> bool:
        """Whether one more connection from an address is within its rate; it counts if so."""
        ip = canonical_name(IP, ip) or ""
        limit = self._ip_limits.get(ip, self._ip_limits.get(None))
        if limit is None:
            return True
        now_ms, windows = self._now_ms(), self._windows
        meter = self._meter(self._connections, ip)
        meter.record(1.0, windows, now_ms)
        if meter.rate(windows, now_ms) <= limit:
            return True
        meter.record(-1.0, windows, now_ms)
        return False

    def entity_counts(self) -> dict[str, int]:
        """Of how many users and client ids it is remembered what they used, by quota."""
        counts = {key: len(self._meters.get(key, ())) for key in self.throttled}
        counts[CONTROLLER_MUTATION_RATE] = len(self._buckets)
        return counts

    def _meter(self, meters: dict[K, RateMeter], owner: K) -> RateMeter:
        meter = meters.pop(owner, None) or RateMeter()
        meters[owner] = meter  # the last one is who was here last
        if len(meters) > METERS_MAX:
            del meters[next(iter(meters))]
        return meter

    def _bucket(self, share: Share) -> TokenBucket:
        owner = share.user, share.client_id
        bucket = self._buckets.pop(owner, None) or TokenBucket()
        self._buckets[owner] = bucket
        if len(self._buckets) > METERS_MAX:
            del self._buckets[next(iter(self._buckets))]
        return bucket
