"""Replication of one partition: the leader's side."""

from tidelog.replica.isr import IsrProposal, PartitionState
from tidelog.replica.leader import (
    AcceptedFetch,
    Acknowledgement,
    FollowerFetch,
    LeaderReplica,
    LogBounds,
    Ready,
    ReplicationSettings,
)
from tidelog.replica.leader_epoch import check_leader_epoch

__all__ = [
    "AcceptedFetch",
    "Acknowledgement",
    "FollowerFetch",
    "IsrProposal",
    "LeaderReplica",
    "LogBounds",
    "PartitionState",
    "Ready",
    "ReplicationSettings",
    "check_leader_epoch",
]
