"""Which partition a record goes to: by its key, or, without one, where a batch fills.

| `partitioner` | with a key | who does so by default |
|---|---|---|
| `murmur2` | by the key's hash | Java's clients, kafka-python, aiokafka, franz-go, kafkajs |
| `crc32` | by the key's hash; an empty key is none | librdkafka and all on it: confluent-kafka, .NET, PHP, Ruby |
| `fnv1a` | by the key's hash | sarama |
| `sticky` | as without one | Java's clients with `partitioner.ignore.keys` |
| `round_robin` | as without one: each record to the next partition | Java's clients with `RoundRobinPartitioner` |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import Final, Protocol
from zlib import crc32

from tidelog.base.errors import Code, KafkaError
from tidelog.base.ports import Rng
from tidelog.records.keys import partition_for_key

ChoosePartition = Callable[[bytes | None, list[int], list[int]], int]
"""A user's own: of the key, all partitions, and those that have a leader. As kafka-python's and aiokafka's."""

OfKey = Callable[[bytes, int], int | None]
"""Of a key and the number of partitions; None: as a record without a key."""


class Keyless(Protocol):
    """Chooses for records without a key."""

    def partition(self, size_bytes: int, available: Sequence[int]) -> int:
        """Choose for a record of `size_bytes`, among `available` (not empty): the partitions that have a leader."""


class StickyPartitioner:
    """For records without a key: one partition until a batch's worth went there, then another at random (KIP-794).

    Full batches cost the brokers less than many partitions with a record each.
    """

    __slots__ = ("_bytes_left", "_partition", "_rng", "_switch_bytes")

    def __init__(self, switch_bytes: int, rng: Rng) -> None:
        self._switch_bytes = switch_bytes
        self._rng = rng
        self._partition: int | None = None
        self._bytes_left = 0

    def partition(self, size_bytes: int, available: Sequence[int]) -> int:
        """See `Keyless`."""
        if self._partition is None or self._bytes_left <= 0:
            others = [partition for partition in available if partition != self._partition] or available
            self._partition = others[self._rng.randrange(0, len(others))]
            self._bytes_left = self._switch_bytes
        self._bytes_left -= size_bytes
        return self._partition


class RoundRobinPartitioner:
    """Each record goes to the next partition."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0

    def partition(self, _size_bytes: int, available: Sequence[int]) -> int:
        """See `Keyless`."""
        chosen = available[self._next % len(available)]
        self._next += 1
        return chosen


def by_crc32(key: bytes, partition_count: int) -> int | None:
    """librdkafka's `consistent_random`."""
    return crc32(key) % partition_count if key else None


_FNV_PRIME: Final = 0x01000193
_FNV_BASIS: Final = 0x811C9DC5


def by_fnv1a(key: bytes, partition_count: int) -> int:
    """sarama's hash, which is librdkafka's `fnv1a`: of 32 bits with a sign, which is dropped."""
    found = _FNV_BASIS
    for byte in key:
        found = (found ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return (found if found < 1 << 31 else (1 << 32) - found) % partition_count


def by_nothing(_key: bytes, _partition_count: int) -> None:
    """Keys are not looked at."""


_OF_KEY: Final[dict[str, OfKey]] = {
    "murmur2": partition_for_key,
    "crc32": by_crc32,
    "fnv1a": by_fnv1a,
    "sticky": by_nothing,
    "round_robin": by_nothing,
}


class Partitioner:
    """Chooses among the partitions of one topic, as they are now.

    Args:
        given: a name of the table above, or the user's own function.
        topic: its name.
        partition_count: how many it has.
        available: those that have a leader; all if none has.
        sticky_bytes: how much goes to one partition before records without a key move on.
        rng: to choose among them.
    """

    __slots__ = ("_available", "_choose", "_keyless", "_of_key", "_partition_count", "_topic")

    def __init__(
        self,
        given: str | ChoosePartition,
        topic: str,
        partition_count: int,
        available: Sequence[int],
        *,
        sticky_bytes: int,
        rng: Rng,
    ) -> None:
        self._topic = topic
        self._partition_count = partition_count
        self._available = available
        self._choose = given if callable(given) else None
        self._of_key = by_nothing if callable(given) else _OF_KEY[given]
        self._keyless: Keyless = (
            RoundRobinPartitioner() if given == "round_robin" else StickyPartitioner(sticky_bytes, rng)
        )

    @property
    def asks_user(self) -> bool:
        """Whether the user's own function chooses."""
        return self._choose is not None

    def partition(self, key: bytes | None, size_bytes: int) -> int:
        """The partition of a record of so many bytes, but for the user's function: that is to be asked by `ask`."""
        found = None if key is None else self._of_key(key, self._partition_count)
        return self._keyless.partition(size_bytes, self._available) if found is None else found

    def ask(self, key: bytes | None) -> int:
        """The partition that the user's function returns.

        Raises:
            TypeError: it is no whole number.
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, the topic has no such partition.
        """
        assert self._choose is not None
        found = self._choose(key, list(range(self._partition_count)), list(self._available))
        try:
            partition = int(index(found))  # numpy's whole numbers too
        except TypeError:
            raise TypeError(
                f"the partitioner returned {found!r} for topic {self._topic!r}, which is no whole number"
            ) from None
        check_partition(self._topic, partition, self._partition_count)
        return partition

    def of_row(self) -> Callable[[bytes | None], int | None] | None:
        """What to ask for each row of columns: its partition, or None if it goes where the keyless go.

        None: rows go by "murmur2", which needs no function.
        """
        if self._choose is not None:
            return self.ask
        if isinstance(self._keyless, RoundRobinPartitioner):
            return lambda _: self._keyless.partition(0, self._available)
        if self._of_key is partition_for_key:
            return None
        return lambda key: None if key is None else self._of_key(key, self._partition_count)


def check_partition(topic: str, partition: int, partition_count: int) -> None:
    """Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION."""
    if not 0 <= partition < partition_count:
        raise KafkaError(
            f"topic {topic!r} has no partition {partition}: it has {partition_count}, counted from 0",
            code=Code.UNKNOWN_TOPIC_OR_PARTITION,
        )
