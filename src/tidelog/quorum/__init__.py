"""The quorum of the metadata log: who leads it, and what is committed."""

from tidelog.quorum.log import QuorumLog
from tidelog.quorum.node import QuorumNode
from tidelog.quorum.progress import QuorumProgress, ReplicaDescription, ReplicaProgress
from tidelog.quorum.roles import TRANSITIONS, RoleCause
from tidelog.quorum.state_file import QuorumState, format_quorum_state, parse_quorum_state
from tidelog.quorum.values import (
    Answer,
    EpochAnswer,
    EpochBegun,
    EpochEnded,
    FetchAnswer,
    LeaderChange,
    PeerRequest,
    QuorumFetch,
    QuorumReady,
    QuorumReply,
    QuorumRequest,
    QuorumSettings,
    ReplicaKey,
    Role,
    SnapshotId,
    VoteAnswer,
    Voter,
    VoteRequested,
    VoterSet,
)
from tidelog.quorum.voter_changes import (
    check_may_change,
    decide_add_voter,
    decide_remove_voter,
    decide_update_voter,
    decide_voters_in_log,
)

__all__ = [
    "TRANSITIONS",
    "Answer",
    "EpochAnswer",
    "EpochBegun",
    "EpochEnded",
    "FetchAnswer",
    "LeaderChange",
    "PeerRequest",
    "QuorumFetch",
    "QuorumLog",
    "QuorumNode",
    "QuorumProgress",
    "QuorumReady",
    "QuorumReply",
    "QuorumRequest",
    "QuorumSettings",
    "QuorumState",
    "ReplicaDescription",
    "ReplicaKey",
    "ReplicaProgress",
    "Role",
    "RoleCause",
    "SnapshotId",
    "VoteAnswer",
    "VoteRequested",
    "Voter",
    "VoterSet",
    "check_may_change",
    "decide_add_voter",
    "decide_remove_voter",
    "decide_update_voter",
    "decide_voters_in_log",
    "format_quorum_state",
    "parse_quorum_state",
]
