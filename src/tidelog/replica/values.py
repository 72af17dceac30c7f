"""What goes into and comes out of the leader's side of a partition, and what both sides begin with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidelog.base.errors import Code
from tidelog.base.ids import BrokerEpoch, BrokerId, CorrelationId, LeaderEpoch, Offset
from tidelog.replica.isr import IsrProposal


@dataclass(frozen=True, slots=True)
class LogBounds:
    """Where the log stands when its replica begins to lead, or to follow.

    Attributes:
        log_start_offset: the first offset that is kept.
        log_end_offset: exclusive; the epoch of a leader starts here.
        high_watermark: as the checkpoint file has it; None when it has none.
    """

    log_start_offset: Offset
    log_end_offset: Offset
    high_watermark: Offset | None = None

    @property
    def clamped_high_watermark(self) -> Offset:
        """Where it is taken to be: as the file has it, within the log that there is (rule 4)."""
        checkpoint = self.log_start_offset if self.high_watermark is None else self.high_watermark
        return min(max(checkpoint, self.log_start_offset), self.log_end_offset)


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """What the configuration says about replication.

    Attributes:
        min_insync_replicas: the topic's `min.insync.replicas`.
        lag_ms_max: `replica.lag.time.max.ms`: who has not caught up for so long leaves the ISR.
        proposal_backoff_ms: after a proposal that was refused or not answered, none is made for so long.
        silence_ms_max: `broker.session.timeout.ms`: who has not fetched for so long, though there is something to
            fetch, is taken to be out of reach.
    """

    min_insync_replicas: int = 1
    lag_ms_max: int = 30_000
    proposal_backoff_ms: int = 1_000
    silence_ms_max: int = 9_000


@dataclass(frozen=True, slots=True)
class FollowerFetch:
    """A follower asks for records.

    Attributes:
        fetch_offset: the end of its log, so all below is there.
        leader_epoch: the one it believes is current.
        last_fetched_epoch: the leader epoch of its last record; None if it has no record, or does not say.
        broker_epoch: its incarnation; None if it does not say.
        now_ms: when the fetch was received, monotonic.
    """

    follower: BrokerId
    fetch_offset: Offset
    leader_epoch: LeaderEpoch | None
    last_fetched_epoch: LeaderEpoch | None
    broker_epoch: BrokerEpoch | None
    now_ms: int


@dataclass(frozen=True, slots=True)
class AcceptedFetch:
    """A follower's fetch that was neither fenced, nor diverging, nor out of range: so it proves something."""

    follower: BrokerId
    fetch_offset: Offset
    broker_epoch: BrokerEpoch | None
    now_ms: int


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """The answer to a producer that waited until its records are committed.

    `code` is NONE; NOT_ENOUGH_REPLICAS_AFTER_APPEND when the ISR fell below `min.insync.replicas` meanwhile;
    REQUEST_TIMED_OUT; or NOT_LEADER_OR_FOLLOWER when the leadership ended first, or when the leader is cut off.
    """

    correlation_id: CorrelationId
    code: Code


class LeaderReady(NamedTuple):
    """What the driver owes the world, in field order: publish, acknowledge, propose."""

    high_watermark: Offset
    acks: tuple[Acknowledgement, ...]
    isr_proposal: IsrProposal | None
