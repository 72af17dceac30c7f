"""Which partition records without a key go to: one, while a batch fills. With a key: `tidelog.records.keys`."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.base.ports import Rng


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
