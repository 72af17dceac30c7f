"""How far the replicas of the metadata log are, as its leader knows: what DescribeQuorum shows.

Kafka: `LeaderState.ReplicaState`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.quorum.values import ReplicaKey


class ReplicaDescription(NamedTuple):
    """One replica. The times are monotonic, None if there was no such moment in this leader's epoch.

    Attributes:
        log_end_offset: of its accepted fetches; of the leader, what is on its disk. None if it has not fetched.
    """

    key: ReplicaKey
    log_end_offset: Offset | None
    last_fetch_ms: int | None
    last_caught_up_ms: int | None


@dataclass(frozen=True, slots=True)
class QuorumProgress:
    """What a node knows of the quorum; only a leader knows of the others."""

    leader_id: BrokerId | None
    leader_epoch: LeaderEpoch
    high_watermark: Offset | None
    voters: tuple[ReplicaDescription, ...]
    observers: tuple[ReplicaDescription, ...]


class ReplicaProgress:
    """What a leader knows of another replica. It starts empty in each epoch.

    Attributes:
        log_end_offset: exclusive; all below it is on its disk, and as ours. None before a fetch was accepted.
        last_contact_ms: when it last asked in our epoch, accepted or not: it follows us.
    """

    __slots__ = ("_last_leader_end_offset", "last_caught_up_ms", "last_contact_ms", "last_fetch_ms", "log_end_offset")

    def __init__(self, now_ms: int) -> None:
        self.log_end_offset: Offset | None = None
        self.last_contact_ms = now_ms
        self.last_fetch_ms: int | None = None
        self.last_caught_up_ms: int | None = None
        self._last_leader_end_offset = Offset(0)

    def on_fetch(self, fetch_offset: Offset, leader_end_offset: Offset, now_ms: int) -> None:
        """It was accepted. Who has now what there was at its fetch before was caught up then."""
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif self.last_fetch_ms is not None and fetch_offset >= self._last_leader_end_offset:
            self.last_caught_up_ms = self.last_fetch_ms
        self.log_end_offset = fetch_offset
        self.last_fetch_ms = now_ms
        self._last_leader_end_offset = leader_end_offset

    def clone(self) -> ReplicaProgress:
        copy = ReplicaProgress(self.last_contact_ms)
        for name in ReplicaProgress.__slots__:
            setattr(copy, name, getattr(self, name))
        return copy
