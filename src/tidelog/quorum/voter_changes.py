"""Adding, removing and moving voters (KIP-853): what the leader appends as the next voter set, or why it does not.

One at a time: two sets that differ in one voter have a majority in common, so a set may count as soon as it is in the
log. And only by a leader that has committed a record of its own epoch: else a change of an earlier leader, which this
one has not got, could still be committed, and the two sets need have nothing in common.

Kafka: `AddVoterHandler`, `RemoveVoterHandler`, `UpdateVoterHandler`.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from tidelog.base.errors import Code, refusal
from tidelog.base.ids import BrokerId
from tidelog.quorum.ballot import is_same_replica
from tidelog.quorum.node import QuorumNode
from tidelog.quorum.values import ReplicaKey, Role, Voter, VoterSet


def decide_add_voter(node: QuorumNode, voter: Voter, now_ms: int, *, caught_up_within_ms: int = 2_000) -> VoterSet:
    """The voters with one more, who has all that is committed, or nearly: else nothing is committed until it has.

    Args:
        caught_up_within_ms: how long ago it may have been at the end of the log, at most.

    Raises:
        KafkaError: as `check_may_change`; DUPLICATE_VOTER; REQUEST_TIMED_OUT if it has not caught up: try again.
    """
    check_may_change(node)
    key = voter.key
    if node.voters.latest.voter(key.node_id) is not None:
        raise refusal(Code.DUPLICATE_VOTER, f"node {key.node_id} is a voter; to replace its directory remove it first")
    progress = None if node.leading is None else node.leading.progress_of(key)
    caught_up_ms = None if progress is None else progress.last_caught_up_ms
    if caught_up_ms is None or now_ms - caught_up_ms > caught_up_within_ms:
        raise refusal(
            Code.REQUEST_TIMED_OUT,
            f"node {key.node_id} has not caught up with the metadata log: start it as an observer, and wait",
        )
    return node.voters.latest.with_voter(voter)


def decide_remove_voter(node: QuorumNode, key: ReplicaKey) -> VoterSet:
    """The voters without that one. If it leads, it resigns once that is committed.

    Raises:
        KafkaError: as `check_may_change`; VOTER_NOT_FOUND if no voter has that id and directory; INVALID_REQUEST if it
            is the only one.
    """
    check_may_change(node)
    _checked_voter(node, key)
    if len(node.voters.latest.voters) == 1:
        raise refusal(Code.INVALID_REQUEST, f"node {key.node_id} is the only voter: add another one first")
    return node.voters.latest.without_voter(key.node_id)


def decide_update_voter(node: QuorumNode, voter: Voter) -> VoterSet:
    """The voters with that one listening elsewhere; unchanged if it listens there.

    Raises:
        KafkaError: as `check_may_change`; VOTER_NOT_FOUND if no voter has that id and directory.
    """
    check_may_change(node)
    known, voters = _checked_voter(node, voter.key), node.voters.latest
    moved = replace(known, endpoints=voter.endpoints)
    if moved == known:
        return voters
    return replace(voters, voters=tuple(moved if one is known else one for one in voters.voters))


def decide_voters_in_log(node: QuorumNode) -> VoterSet:
    """The configured voters, as the log is to have them from now on: kraft.version 1. Nobody else votes by it.

    Each is bound to its directory, so all of them have to have fetched from this leader, which learns it by that. The
    same nodes are a majority of both sets: the change counts at once, as any other.

    Raises:
        KafkaError: as `check_may_change`; INVALID_UPDATE_VERSION while a voter was not heard of by this leader.
    """
    voters = node.voters.latest
    if voters.version:
        return voters
    _check_may_append(node)
    assert node.leading is not None
    unknown = [one.key.node_id for one in voters.voters if _directory_of(node, one.key.node_id) is None]
    if unknown:
        raise refusal(
            Code.INVALID_UPDATE_VERSION,
            f"kraft.version 1: voter {unknown[0]} has not fetched from the leader, node {node.key.node_id}, since that "
            f"leads: start voter {unknown[0]}, and try again",
        )
    return VoterSet(
        tuple(
            replace(one, key=ReplicaKey(one.key.node_id, _directory_of(node, one.key.node_id))) for one in voters.voters
        ),
        version=1,
    )


def _directory_of(node: QuorumNode, node_id: BrokerId) -> UUID | None:
    if node_id == node.key.node_id:
        return node.key.directory_id
    return None if node.leading is None else node.leading.directory_of(node_id)


def check_may_change(node: QuorumNode) -> None:
    """Whether the voter set may be changed now.

    Raises:
        KafkaError: NOT_LEADER_OR_FOLLOWER if this node does not lead; UNSUPPORTED_VERSION if the voters come from the
            configuration; REQUEST_TIMED_OUT, to be tried again, while nothing of this epoch is committed, or while
            another change is not.
    """
    if node.standing.role is not Role.LEADER:
        raise refusal(Code.NOT_LEADER_OR_FOLLOWER, f"node {node.key.node_id} does not lead the quorum")
    if node.voters.latest.version == 0:
        raise refusal(
            Code.UNSUPPORTED_VERSION,
            "the voters come from controller.quorum.voters: put them into the metadata log first, by "
            "`tidelog features upgrade --feature kraft.version=1`",
        )
    _check_may_append(node)


def _check_may_append(node: QuorumNode) -> None:
    if node.standing.role is not Role.LEADER:
        raise refusal(Code.NOT_LEADER_OR_FOLLOWER, f"node {node.key.node_id} does not lead the quorum")
    if not node.is_active:
        raise refusal(Code.REQUEST_TIMED_OUT, f"nothing is committed yet in leader epoch {node.standing.leader_epoch}")
    if node.voters.is_change_pending:
        raise refusal(Code.REQUEST_TIMED_OUT, "another change of the voters is not committed yet")


def _checked_voter(node: QuorumNode, key: ReplicaKey) -> Voter:
    voter = node.voters.latest.voter(key.node_id)
    if voter is None or not is_same_replica(voter.key, key):
        raise refusal(Code.VOTER_NOT_FOUND, f"node {key.node_id} with directory {key.directory_id} is no voter")
    return voter
