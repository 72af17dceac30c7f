"""The memory of all that the coordinators of one kind take at a node, which is bounded.

Anybody may join a group that nobody heard of, or begin to produce under a new transactional id. Kafka has no such bound
but `group.max.size`, of the members of one group.
"""

from __future__ import annotations

import sys


class CoordinatorMemory:
    """What groups, or transactional ids, take together.

    Args:
        limit_bytes: what there is already may be above it, where the log tells of it.

    Attributes:
        used_bytes: by those that there are.
        refused: how often there was no room.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.refused = 0

    def has_room(self, more_bytes: int) -> bool:
        """Whether they may take so much more."""
        has_room = self.used_bytes + more_bytes <= self.limit_bytes
        self.refused += not has_room
        return has_room


class Charge:
    """What one holder takes of a memory: of one of its own, until it is told of another.

    Attributes:
        size_bytes: so much, now.
    """

    __slots__ = ("_memory", "size_bytes")

    def __init__(self, size_bytes: int = 0) -> None:
        self.size_bytes = size_bytes
        self._memory = CoordinatorMemory(sys.maxsize)
        self._memory.used_bytes = size_bytes

    def resize(self, more_bytes: int) -> None:
        """It takes so much more, or less."""
        self.size_bytes += more_bytes
        self._memory.used_bytes += more_bytes

    def charge(self, memory: CoordinatorMemory) -> None:
        """Have what it takes count there from now on."""
        self._memory.used_bytes -= self.size_bytes
        self._memory = memory
        memory.used_bytes += self.size_bytes

    def release(self) -> None:
        """Give back the memory that it took."""
        self.charge(CoordinatorMemory(sys.maxsize))
