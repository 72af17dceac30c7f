"""A member of a classic group. Kafka: `ClassicGroupMember`."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.coordinator.deadlines import Alarm, Cause
from tidelog.journal import RequestId

Protocols = tuple[tuple[str, bytes], ...]
"""Names and metadata, in the member's order of preference."""


MEMBER_BYTES = 1_024
"""About what a member takes beside its names, its metadata and its assignment."""


def protocols_bytes(protocols: Protocols) -> int:
    """About what a member's protocols take in memory."""
    return sum(100 + len(name) + 2 * len(metadata) for name, metadata in protocols)


@dataclass(slots=True)
class Member:
    """What the coordinator knows of a member.

    Attributes:
        instance_id: the name of a static member (KIP-345); None for a dynamic one.
        assignment: its part in the current generation; empty until the leader gave one.
        join_request: its JoinGroup that waits to be answered.
        sync_request: its SyncGroup that waits to be answered.
        is_new: whether it waits for its first generation.
    """

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join_request: RequestId | None = None
    sync_request: RequestId | None = None
    is_new: bool = False
    session: Alarm = field(init=False)

    def __post_init__(self) -> None:
        self.session = Alarm(Cause.SESSION, self.group_id, self.member_id)

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory. What the log says of it last is kept as well, so its part counts twice."""
        named_bytes = 2 * len(self.member_id) + len(self.client_id) + len(self.client_host)
        return MEMBER_BYTES + named_bytes + protocols_bytes(self.protocols) + 2 * len(self.assignment)

    @property
    def is_waiting(self) -> bool:
        """Whether it is the coordinator that owes an answer, so that no heartbeat can be expected."""
        return self.join_request is not None or self.sync_request is not None

    def metadata(self, protocol: str | None) -> bytes:
        """What it wants in a protocol; nothing in one that it does not support."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def vote(self, candidates: set[str]) -> str | None:
        """The candidate that it prefers."""
        return next((name for name, _ in self.protocols if name in candidates), None)

    def rename(self, member_id: str) -> None:
        """Give it the id under which it came back (static members)."""
        self.member_id = member_id
        self.session = Alarm(Cause.SESSION, self.group_id, member_id)
