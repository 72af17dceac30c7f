"""The memory of all groups that a node coordinates, which is bounded: anybody may join a group that nobody heard of.

Kafka has no such bound but `group.max.size`, of the members of one group.
"""

from __future__ import annotations

GROUP_BYTES = 1_024
MEMBER_BYTES = 1_024
"""About what a group, or a member, takes beside its names, its metadata and its assignment."""


class GroupMemory:
    """What groups take, together.

    Args:
        limit_bytes: `group.coordinator.memory.bytes`; what there is already may be above it, where the log tells of it.

    Attributes:
        used_bytes: by the groups that there are.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0

    def has_room(self, more_bytes: int) -> bool:
        """Whether groups may take so much more."""
        return self.used_bytes + more_bytes <= self.limit_bytes
