"""The quorum of the metadata log: who leads it, and what is committed."""

from tidelog.quorum.state_file import QuorumState, format_quorum_state, parse_quorum_state
from tidelog.quorum.voter import LeaderChange, QuorumVoter, Ready, Role

__all__ = [
    "LeaderChange",
    "QuorumState",
    "QuorumVoter",
    "Ready",
    "Role",
    "format_quorum_state",
    "parse_quorum_state",
]
