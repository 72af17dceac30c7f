"""What an Admin tells of groups: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidelog.base.ids import TopicPartition


class ShareGroupOffset(NamedTuple):
    """Where a share group stands in a partition (KIP-932)."""

    start_offset: int
    """All before it is done."""
    lag: int | None
    """How many records from there on are not done (KIP-1226); None where the broker does not tell."""


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group that there is."""

    group_id: str
    protocol_type: str
    """`consumer` or `share`; empty for a group that only ever committed."""
    state: str | None
    """`Stable`, `Empty` …; None where the broker does not tell (before 2.6)."""
    type: str | None
    """`classic`, `consumer`, `share` …; None where the broker does not tell (before 3.8)."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group."""

    member_id: str
    group_instance_id: str | None
    """Of a static member (KIP-345)."""
    client_id: str
    client_host: str
    partitions: tuple[TopicPartition, ...]
    """What it reads, sorted; empty while the group rebalances, and for other protocols than `consumer`."""
    epoch: int | None = None
    """Of a member of a group of the new protocol (KIP-848), or of a share group."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group with its members."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    """The assignor: that the members agreed on, or, in a group of the new protocol, the coordinator's."""
    coordinator: int
    """The broker."""
    members: tuple[GroupMember, ...]
    epoch: int | None = None
    """Of a group of KIP-848, or of a share group: raised whenever a member, or what it wants, changes."""
