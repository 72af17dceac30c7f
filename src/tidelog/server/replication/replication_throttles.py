"""What replication may send, fetch and copy in a second, and who waits until there is room (KIP-73, KIP-113).

```
 room, in bytes   grows at the rate, up to BURST_MS of it; every byte is taken off, below 0 too
 room > 0         go on: as much as there is room for, one batch at least
 room <= 0        wait: told once WAKE_MS worth of bytes is there again
```

What was too much is made up for before anything more goes, so the rate holds over any time that is longer than a burst,
however large a single answer is and however low the rate.

Kafka: `ReplicationQuotaManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tidelog.base.ids import BrokerId, TopicPartition
from tidelog.metadata import ResourceType
from tidelog.metadata.configs import BrokerSettings
from tidelog.metadata.configs import cluster as cluster_keys
from tidelog.metadata.configs import topic as topic_keys
from tidelog.metadata.configs.key import INT64_MAX, ConfigKey
from tidelog.server.replication.deadlines import Due
from tidelog.server.settings.in_force import SettingsInForce

BURST_MS = 250
"""How much may gather while nothing goes: more would be felt as more than the rate."""
WAKE_MS = 20
"""How much must be there before those who wait are told: else each would get a batch at a time."""

LEADER_REPLICAS = topic_keys.LEADER_REPLICATION_THROTTLED_REPLICAS
FOLLOWER_REPLICAS = topic_keys.FOLLOWER_REPLICATION_THROTTLED_REPLICAS


class Waiter(Protocol):
    """Something that was held back, and waits for room."""

    def on_room(self) -> None:
        """The throttle has room again: try once more. Called once for each `wait`."""
        ...


@dataclass(frozen=True, slots=True)
class Limit:
    """What one throttle is set to.

    Attributes:
        bytes_per_second: None for no limit; 0 lets nothing through.
        replicas: by topic, the partitions whose replicas here are throttled; None for every partition of the topic.
    """

    bytes_per_second: int | None = None
    replicas: Mapping[str, frozenset[int] | None] = field(default_factory=dict)


class Throttle:
    """See the module.

    Args:
        now_ms: the clock, monotonic.
        due_at: calls `on_due` at a time, or a little later.
    """

    __slots__ = ("_due_at", "_due_ms", "_filled_ms", "_limit", "_now_ms", "_room", "_waiting")

    def __init__(self, now_ms: Callable[[], int], due_at: Callable[[Due, int], None]) -> None:
        self._now_ms = now_ms
        self._due_at = due_at
        self._limit = Limit()
        self._room = 0.0
        self._filled_ms = now_ms()
        self._due_ms: int | None = None
        self._waiting: dict[Waiter, None] = {}

    @property
    def limit(self) -> Limit:
        return self._limit

    def configure(self, limit: Limit) -> None:
        """From now on; whoever waits is told to look again. What was too much by a former rate is forgotten."""
        if limit == self._limit:
            return
        if limit.bytes_per_second != self._limit.bytes_per_second:
            self._room = 0.0
            self._filled_ms = self._now_ms()
            self._due_ms = None  # by the former rate it may be days away
        self._limit = limit
        self._notify_waiting()

    def covers(self, topic_partition: TopicPartition) -> bool:
        """Whether the bytes of a partition count, since there is a rate and it names the replica here."""
        limit = self._limit
        if limit.bytes_per_second is None or topic_partition.topic not in limit.replicas:
            return False
        partitions = limit.replicas[topic_partition.topic]
        return partitions is None or topic_partition.partition in partitions

    @property
    def room_bytes(self) -> int:
        """How much may go now; 0 or less: nothing."""
        rate = self._limit.bytes_per_second
        if rate is None:
            return INT64_MAX
        now_ms = self._now_ms()
        self._room = min(self._room + rate * (now_ms - self._filled_ms) / 1000, max(rate * BURST_MS / 1000, 1))
        self._filled_ms = now_ms
        return int(self._room)

    def record(self, size_bytes: int) -> None:
        """Count bytes that were sent or received."""
        if self._limit.bytes_per_second is not None:
            self._room = self.room_bytes - size_bytes

    def wait(self, waiter: Waiter) -> None:
        """Call `on_room` of a waiter when there is room; once, however often it was added."""
        self._waiting[waiter] = None
        self._reschedule()

    def forget(self, waiter: Waiter) -> None:
        """Remove a waiter."""
        self._waiting.pop(waiter, None)

    def on_due(self, now_ms: int) -> None:
        """There may be room by now: notify the waiters, or wait on."""
        if self._due_ms is None or now_ms < self._due_ms:
            return
        self._due_ms = None
        if self._wait_ms == 0:
            self._notify_waiting()
        elif self._waiting:
            self._reschedule()

    def _notify_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            waiter.on_room()

    @property
    def _wait_ms(self) -> int | None:
        """How long until there is enough to go on; None: for ever, unless the rate is changed."""
        rate = self._limit.bytes_per_second
        if rate is None:
            return 0
        if rate == 0:
            return None
        missing = max(rate * WAKE_MS / 1000, 1) - self.room_bytes
        return 0 if missing <= 0 else int(missing * 1000 / rate) + 1

    def _reschedule(self) -> None:
        if self._due_ms is None:
            wait_ms = self._wait_ms
            if wait_ms is not None:
                self._due_ms = self._now_ms() + max(wait_ms, 1)
                self._due_at(self, self._due_ms)


def replication_limits(settings: SettingsInForce, broker_id: BrokerId) -> tuple[Limit, Limit]:
    """What is in force at a broker as a leader, and as a follower."""
    leader: dict[str, frozenset[int] | None] = {}
    follower: dict[str, frozenset[int] | None] = {}
    for resource, values in settings.configs.items():
        if resource.type == ResourceType.TOPIC:
            for key, replicas in ((LEADER_REPLICAS, leader), (FOLLOWER_REPLICAS, follower)):
                if values.get(key.name):
                    replicas[resource.name] = _partitions_here(key.parse(values[key.name]), broker_id)
    return (
        Limit(_rate(settings.broker, cluster_keys.LEADER_REPLICATION_THROTTLED_RATE), leader),
        Limit(_rate(settings.broker, cluster_keys.FOLLOWER_REPLICATION_THROTTLED_RATE), follower),
    )


def moves_limit(settings: BrokerSettings) -> Limit:
    """What is in force for moves within a broker."""
    return Limit(_rate(settings, cluster_keys.REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND))


def _partitions_here(elements: tuple[str, ...], broker_id: BrokerId) -> frozenset[int] | None:
    """None for every partition."""
    if "*" in elements:
        return None
    pairs = (element.split(":") for element in elements)
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == broker_id)


def _rate(settings: BrokerSettings, key: ConfigKey[int]) -> int | None:
    rate = settings[key]
    return None if rate == INT64_MAX else rate
