"""A leader of a partition, by hand: its state, its log, and the fetches of its followers."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.base.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    TopicPartition,
)
from tidelog.metadata import PartitionImage
from tidelog.records.lineage import LeaderEpochLineage
from tidelog.replica import (
    AcceptedFetch,
    FollowerFetch,
    IsrProposal,
    JoinRule,
    LeaderReplica,
    LogBounds,
    ReplicationSettings,
    join_point,
)

PARTITION = TopicPartition("a", PartitionIndex(0))
LEADER, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
EPOCH = LeaderEpoch(5)
LAG_MS_MAX = 1000
BACKOFF_MS = 300
SILENCE_MS_MAX = 5000


def state_of(
    replicas: Sequence[int] = (1, 2, 3), isr: Sequence[int] = (1, 2, 3), partition_epoch: int = 9
) -> PartitionImage:
    return PartitionImage(
        replicas=tuple(map(BrokerId, replicas)),
        isr=tuple(map(BrokerId, isr)),
        leader=LEADER,
        leader_epoch=EPOCH,
        partition_epoch=PartitionEpoch(partition_epoch),
    )


def leader_of(
    state: PartitionImage | None = None,
    *,
    log_start: int = 0,
    log_end: int = 10,
    checkpoint: int | None = 0,
    min_insync: int = 1,
    older: Sequence[tuple[int, int]] = ((2, 0), (3, 4)),
    active: bool = True,
    join: JoinRule = join_point,
) -> LeaderReplica:
    lineage = LeaderEpochLineage((LeaderEpoch(epoch), Offset(start)) for epoch, start in older)
    lineage.assign(EPOCH, Offset(log_end))
    leader = LeaderReplica(
        PARTITION,
        LEADER,
        state or state_of(),
        LogBounds(Offset(log_start), Offset(log_end), None if checkpoint is None else Offset(checkpoint)),
        lineage,
        settings=ReplicationSettings(
            min_insync_replicas=min_insync,
            lag_ms_max=LAG_MS_MAX,
            proposal_backoff_ms=BACKOFF_MS,
            silence_ms_max=SILENCE_MS_MAX,
        ),
        now_ms=0,
        join=join,
    )
    if active:
        leader.on_brokers({TWO: BrokerEpoch(20), THREE: BrokerEpoch(30)})
    return leader


def fetch_of(
    follower: int,
    offset: int,
    *,
    leader_epoch: int | None = EPOCH,
    last_fetched_epoch: int | None = None,
    broker_epoch: int | None = None,
    now_ms: int = 0,
) -> FollowerFetch:
    return FollowerFetch(
        BrokerId(follower),
        Offset(offset),
        None if leader_epoch is None else LeaderEpoch(leader_epoch),
        None if last_fetched_epoch is None else LeaderEpoch(last_fetched_epoch),
        BrokerEpoch(follower * 10 if broker_epoch is None else broker_epoch),
        now_ms,
    )


def proposed(partition_epoch: int, *isr: BrokerId) -> IsrProposal:
    """The proposal of these members, on top of this partition epoch, as the leader knows the others' incarnations."""
    epochs = tuple((broker, BrokerEpoch(broker * 10)) for broker in sorted(isr) if broker != LEADER)
    return IsrProposal(EPOCH, PartitionEpoch(partition_epoch), frozenset(isr), epochs)


def fetch(leader: LeaderReplica, follower: int, offset: int, *, now_ms: int = 0) -> IsrProposal | None:
    """An accepted fetch; returns what is proposed because of it."""
    accepted = leader.accept_fetch(fetch_of(follower, offset, now_ms=now_ms))
    assert isinstance(accepted, AcceptedFetch)
    leader.on_fetch(accepted)
    return leader.take_ready().isr_proposal
