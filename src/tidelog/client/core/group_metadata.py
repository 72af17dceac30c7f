"""Who commits for a group: what a transaction is told of the consumer whose offsets it takes along (KIP-447)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A consumer as a member of its group, at the moment.

    Attributes:
        group_id: the group.
        generation: or the member epoch; -1 for who is no member.
        member_id: empty for who is no member.
        group_instance_id: of a static member.
    """

    group_id: str
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
