"""The memory of all that the coordinators of one kind take at a node, which is bounded.

Anybody may join a group that nobody heard of, or begin to produce under a new transactional id. Kafka has no such bound
but `group.max.size`, of the members of one group.
"""

from __future__ import annotations


class CoordinatorMemory:
    """What groups, or transactional ids, take together.

    Args:
        limit_bytes: what there is already may be above it, where the log tells of it.

    Attributes:
        used_bytes: by those that there are.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0

    def has_room(self, more_bytes: int) -> bool:
        """Whether they may take so much more."""
        return self.used_bytes + more_bytes <= self.limit_bytes
