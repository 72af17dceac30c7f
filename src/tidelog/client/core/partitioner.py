"""Which partition a record goes to: by its key as Java's producer does, or sticking to one while a batch fills."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.base.ports import Rng

_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C
_WORD = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 of `data` under the seed that Kafka's clients share, as an unsigned number."""
    length = len(data)
    whole = length & ~3
    digest = _SEED ^ length
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _MULTIPLIER & _WORD
        word = (word ^ (word >> 24)) * _MULTIPLIER & _WORD
        digest = (digest * _MULTIPLIER & _WORD) ^ word
    if length > whole:
        digest = (digest ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _WORD
    digest = (digest ^ (digest >> 13)) * _MULTIPLIER & _WORD
    return digest ^ (digest >> 15)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of a key, the same as Java's: the hash without its sign bit, modulo all partitions there are."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class KeyPartitioner:
    """`partition_for_key` with a memory: the hash is dear in pure Python, and keys repeat."""

    __slots__ = ("_partition_count", "_seen")

    SEEN_COUNT_MAX = 1 << 16

    def __init__(self, partition_count: int) -> None:
        self._partition_count = partition_count
        self._seen: dict[bytes, int] = {}

    def partition(self, key: bytes) -> int:
        partition = self._seen.get(key)
        if partition is None:
            if len(self._seen) >= self.SEEN_COUNT_MAX:
                self._seen.clear()
            partition = self._seen[key] = partition_for_key(key, self._partition_count)
        return partition


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
        """Choose for a record of `size_bytes`, among `available` (not empty): the partitions that have a leader."""
        if self._partition is None or self._bytes_left <= 0:
            others = [partition for partition in available if partition != self._partition] or available
            self._partition = others[self._rng.randrange(0, len(others))]
            self._bytes_left = self._switch_bytes
        self._bytes_left -= size_bytes
        return self._partition
