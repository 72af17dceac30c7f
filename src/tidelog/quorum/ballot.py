"""The votes for a node, given or promised; and whom it may vote for itself.

Kafka: `EpochElection`.
"""

from __future__ import annotations

from tidelog.base.ids import BrokerId
from tidelog.quorum.log import QuorumLog
from tidelog.quorum.values import ReplicaKey, Role, VoteRequested, VoterSet


class Ballot:
    """The answers to one pre-vote, or to one vote."""

    __slots__ = ("granted", "refused")

    def __init__(self, own_id: BrokerId) -> None:
        self.granted = {own_id}
        self.refused: set[BrokerId] = set()

    def on_answered(self, voter: BrokerId, *, is_granted: bool) -> None:
        (self.granted if is_granted else self.refused).add(voter)

    def is_won(self, voters: VoterSet) -> bool:
        return voters.is_majority(self.granted)

    def is_lost(self, voters: VoterSet) -> bool:
        """Whether it cannot be won any more, however the rest answers."""
        return not voters.is_majority(set(voters.ids) - self.refused)

    def clone(self) -> Ballot:
        copy = Ballot.__new__(Ballot)
        copy.granted, copy.refused = self.granted.copy(), self.refused.copy()
        return copy

    def canonical_key(self) -> tuple[object, ...]:
        return tuple(sorted(self.granted)), tuple(sorted(self.refused))


def may_grant(
    requested: VoteRequested,
    *,
    role: Role,
    voted: ReplicaKey | None,
    leader_id: BrokerId | None,
    is_leader_alive: bool,
    log: QuorumLog,
) -> bool:
    """Whether a candidate in our epoch gets our vote, or would get it (KIP-595, KIP-996).

    One vote an epoch, and to nobody whose log has less than ours: whatever is committed is in ours or in that of
    another voter of any majority. A pre-vote costs no vote; it is refused while the leader is heard of.
    """
    is_up_to_date = log.has_no_more_than(requested.last_leader_epoch, requested.log_end_offset)
    if requested.is_pre_vote:
        return is_up_to_date and role is not Role.LEADER and not is_leader_alive
    if voted is not None:
        return is_same_replica(voted, requested.candidate)
    return is_up_to_date and leader_id is None


def is_same_replica(one: ReplicaKey, other: ReplicaKey) -> bool:
    """A directory that one side does not know is not compared."""
    if one.node_id != other.node_id:
        return False
    return None in (one.directory_id, other.directory_id) or one.directory_id == other.directory_id


def yields_to(requested: VoteRequested, own: ReplicaKey, log: QuorumLog) -> bool:
    """Of two that ask each other for a pre-vote at once, who lets the other go first: else both split the votes."""
    theirs = (requested.last_leader_epoch, requested.log_end_offset, -requested.candidate.node_id)
    return theirs > (log.last_leader_epoch, log.log_end_offset, -own.node_id)
