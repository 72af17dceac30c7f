"""Replication of one partition: the leader's side, the follower's side, and how a replica is stopped."""

from tidelog.replica.fetch_ahead import AheadRule, is_committed_without
from tidelog.replica.follower import FollowerReplica
from tidelog.replica.follower_states import FollowerState
from tidelog.replica.follower_values import (
    EpochEndRequest,
    FetchOutcome,
    FollowerReady,
    FollowerRequest,
    FollowerSettings,
    Halt,
    LogStartRequest,
    RecordsRequest,
    Truncation,
)
from tidelog.replica.isr import IsrProposal, JoinRule, isr_size_min, join_point
from tidelog.replica.leader import LeaderReplica
from tidelog.replica.leader_epoch import check_leader_epoch
from tidelog.replica.stop import (
    HeldReplica,
    ReplicaId,
    StopOrder,
    StoppedReplicas,
    StopReady,
    check_metadata_offset,
    check_stop_order,
    check_stop_request,
)
from tidelog.replica.truncation import (
    EpochEndOffset,
    HaltRule,
    OwnLog,
    TruncationRule,
    TruncationStep,
    belies_what_was_committed,
    truncation_point,
)
from tidelog.replica.values import (
    AcceptedFetch,
    Acknowledgement,
    FollowerFetch,
    LeaderReady,
    LogBounds,
    ReplicationSettings,
)

__all__ = [
    "AcceptedFetch",
    "Acknowledgement",
    "AheadRule",
    "EpochEndOffset",
    "EpochEndRequest",
    "FetchOutcome",
    "FollowerFetch",
    "FollowerReady",
    "FollowerReplica",
    "FollowerRequest",
    "FollowerSettings",
    "FollowerState",
    "Halt",
    "HaltRule",
    "HeldReplica",
    "IsrProposal",
    "JoinRule",
    "LeaderReady",
    "LeaderReplica",
    "LogBounds",
    "LogStartRequest",
    "OwnLog",
    "RecordsRequest",
    "ReplicaId",
    "ReplicationSettings",
    "StopOrder",
    "StopReady",
    "StoppedReplicas",
    "Truncation",
    "TruncationRule",
    "TruncationStep",
    "belies_what_was_committed",
    "check_leader_epoch",
    "check_metadata_offset",
    "check_stop_order",
    "check_stop_request",
    "is_committed_without",
    "isr_size_min",
    "join_point",
    "truncation_point",
]
