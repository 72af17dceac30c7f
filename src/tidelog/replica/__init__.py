"""Replication of one partition: the leader's side."""

from tidelog.replica.isr import IsrProposal
from tidelog.replica.leader import LeaderReplica
from tidelog.replica.leader_epoch import check_leader_epoch
from tidelog.replica.values import (
    AcceptedFetch,
    Acknowledgement,
    FollowerFetch,
    LogBounds,
    Ready,
    ReplicationSettings,
)

__all__ = [
    "AcceptedFetch",
    "Acknowledgement",
    "FollowerFetch",
    "IsrProposal",
    "LeaderReplica",
    "LogBounds",
    "Ready",
    "ReplicationSettings",
    "check_leader_epoch",
]
