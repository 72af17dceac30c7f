"""What goes into and comes out of a node of the metadata quorum: plain values, with nothing of the wire in them.

Requests between nodes are the same values on both sides: what one node's `QuorumReady.requests` holds is what the other
one is told of by an `on_*_asked`, and what its `QuorumReady.replies` holds is what the first is told by `on_answered`.

Kafka: `VoterSet`, `ReplicaKey`, `OffsetAndEpoch`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from tidelog.base.errors import Code
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.quorum.state_file import QuorumState
from tidelog.records.lineage import EpochEntry


class ReplicaKey(NamedTuple):
    """A node of the quorum. Its directory tells a voter that lost its disk from the one that voted (KIP-853).

    `directory_id` is None where it is not known: with configured voters nobody tells, and all directories are one.
    """

    node_id: BrokerId
    directory_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter, and where it listens, by listener name.

    Attributes:
        endpoints: (listener name, host, port).
    """

    key: ReplicaKey
    endpoints: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class VoterSet:
    """Those who vote. `version` 0: from the configuration; 1: from the log (VotersRecord)."""

    voters: tuple[Voter, ...]
    version: int = 0

    @property
    def ids(self) -> tuple[BrokerId, ...]:
        return tuple(voter.key.node_id for voter in self.voters)

    @property
    def majority_size(self) -> int:
        return len(self.voters) // 2 + 1

    def voter(self, node_id: BrokerId) -> Voter | None:
        """The voter with this id, whatever its directory."""
        return next((voter for voter in self.voters if voter.key.node_id == node_id), None)

    def is_voter(self, key: ReplicaKey) -> bool:
        """Whether this very replica votes; a directory that one side does not know is not compared."""
        voter = self.voter(key.node_id)
        if voter is None:
            return False
        return None in (voter.key.directory_id, key.directory_id) or voter.key.directory_id == key.directory_id

    def is_majority(self, node_ids: Iterable[BrokerId]) -> bool:
        return len(set(node_ids) & set(self.ids)) >= self.majority_size

    def with_voter(self, voter: Voter) -> VoterSet:
        """With one more, or with another place or directory of the one with that id."""
        others = tuple(one for one in self.voters if one.key.node_id != voter.key.node_id)
        return VoterSet((*others, voter), self.version)

    def without_voter(self, node_id: BrokerId) -> VoterSet:
        return VoterSet(tuple(one for one in self.voters if one.key.node_id != node_id), self.version)


@dataclass(frozen=True, slots=True)
class QuorumSettings:
    """Times in ms, with Kafka's defaults.

    Attributes:
        election_timeout_ms: `controller.quorum.election.timeout.ms`: a candidacy lasts as long, up to twice.
        election_backoff_ms_max: `controller.quorum.election.backoff.max.ms`: after an election that was lost.
        fetch_timeout_ms: `controller.quorum.fetch.timeout.ms`: a follower that heard nothing of its leader for so long
            asks for a pre-vote; a leader that no majority fetched from for 1.5 times that resigns.
        request_timeout_ms: `controller.quorum.request.timeout.ms`.
        retry_backoff_ms: `controller.quorum.retry.backoff.ms`: before a request that failed is sent again.
        fetch_wait_ms_max: how long a leader parks a fetch that has no news (500).
    """

    election_timeout_ms: int = 1_000
    election_backoff_ms_max: int = 1_000
    fetch_timeout_ms: int = 2_000
    request_timeout_ms: int = 2_000
    retry_backoff_ms: int = 20
    fetch_wait_ms_max: int = 500


@dataclass(frozen=True, slots=True)
class SnapshotId:
    """A snapshot of everything below `end_offset` (exclusive), whose last record is of `leader_epoch`."""

    end_offset: Offset
    leader_epoch: LeaderEpoch


class Role(Enum):
    """What a node is to the log. Whoever is no voter is an observer: UNATTACHED, or a FOLLOWER that never asks."""

    UNATTACHED = "unattached"  # knows of no leader in its epoch
    PROSPECTIVE = "prospective"  # asks for a pre-vote, without a new epoch
    CANDIDATE = "candidate"
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"  # led in its epoch, and does not any more


# Between nodes.


@dataclass(frozen=True, slots=True)
class VoteRequested:
    """Vote (52). A pre-vote asks whether there would be one, and changes nothing.

    Attributes:
        leader_epoch: the candidate's; of a pre-vote the one that it is in.
        voter: who is asked; its directory as the candidate knows it.
        last_leader_epoch: of the last record of the candidate's log.
        log_end_offset: of its log, exclusive.
    """

    leader_epoch: LeaderEpoch
    candidate: ReplicaKey
    voter: ReplicaKey
    last_leader_epoch: LeaderEpoch
    log_end_offset: Offset
    is_pre_vote: bool = False


@dataclass(frozen=True, slots=True)
class EpochBegun:
    """BeginQuorumEpoch (53): the sender leads in this epoch, and listens at `endpoints`."""

    leader_epoch: LeaderEpoch
    leader_id: BrokerId
    voter: ReplicaKey
    endpoints: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class EpochEnded:
    """EndQuorumEpoch (54): the sender leads no more; who stands first in `preferred` should try to be next."""

    leader_epoch: LeaderEpoch
    leader_id: BrokerId
    preferred: tuple[ReplicaKey, ...]


@dataclass(frozen=True, slots=True)
class QuorumFetch:
    """Fetch (1) of the metadata log, by a voter or an observer.

    Attributes:
        fetch_offset: the end of its log; all below it is there, and synced.
        last_fetched_epoch: the leader epoch of its last record; 0 where it has none.
        high_watermark: what it knows; None if it knows none. Read only if `sends_high_watermark` (KIP-1166, Fetch 18).
        wait_ms_max: how long it is ready to wait.
    """

    replica: ReplicaKey
    leader_epoch: LeaderEpoch
    fetch_offset: Offset
    last_fetched_epoch: LeaderEpoch
    high_watermark: Offset | None
    wait_ms_max: int
    sends_high_watermark: bool = True


PeerRequest = VoteRequested | EpochBegun | EpochEnded | QuorumFetch


@dataclass(frozen=True, slots=True)
class VoteAnswer:
    """With any `code` but NONE (INVALID_REQUEST, INCONSISTENT_VOTER_SET, FENCED_LEADER_EPOCH …) nothing was granted."""

    code: Code
    leader_epoch: LeaderEpoch
    leader_id: BrokerId | None
    is_granted: bool = False


@dataclass(frozen=True, slots=True)
class EpochAnswer:
    """To BeginQuorumEpoch and EndQuorumEpoch."""

    code: Code
    leader_epoch: LeaderEpoch
    leader_id: BrokerId | None


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """To a fetch of the metadata log.

    When `code` is NONE and there is neither `diverging` nor `snapshot`, the leader's driver adds the records from
    `fetch_offset` on as it reads them; the follower's is told only where they end.

    Attributes:
        high_watermark: the leader's; None while it has committed nothing of its epoch.
        diverging: truncate: the leader's largest epoch up to the one asked for, and its exclusive end.
        snapshot: load this first: the leader keeps no records from `fetch_offset` on any more.
        end_offset: of the records that came, exclusive; None if there were none. Set by the follower's driver.
    """

    code: Code
    leader_epoch: LeaderEpoch
    leader_id: BrokerId | None
    fetch_offset: Offset
    high_watermark: Offset | None = None
    diverging: EpochEntry | None = None
    snapshot: SnapshotId | None = None
    end_offset: Offset | None = None


Answer = VoteAnswer | EpochAnswer | FetchAnswer


# Between the machine and its driver.


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The control record that opens an epoch. Appended alone, after the epoch was assigned to the lineage."""

    leader_epoch: LeaderEpoch
    leader_id: BrokerId
    voters: tuple[ReplicaKey, ...]
    granting_voters: tuple[ReplicaKey, ...]


class QuorumRequest(NamedTuple):
    """To be sent to a node. Its answer comes by `on_answered(number, …)`, its failure by `on_unanswered(number, …)`."""

    number: int
    target: BrokerId
    message: PeerRequest


class QuorumReply(NamedTuple):
    """The answer to the request of `ticket`."""

    ticket: int
    answer: Answer


class QuorumReady(NamedTuple):
    """What the driver has to do, in field order: persist, truncate, append, load, open, publish, reply, send.

    Attributes:
        state: to be in the quorum-state file, synced, before anything else is done.
        truncation: keep what is below; then `on_truncated`. Never below the high watermark.
        append: the number of the fetch whose records are to be appended and synced; then `on_appended`, `on_synced`.
            Nothing is fetched meanwhile: a fetch says that all below its offset is on disk.
        load: the snapshot to be fetched from the leader (FetchSnapshot) and loaded; then `on_snapshot_loaded`, or
            `on_snapshot_failed`.
        leader_change: to be appended as a control batch of its own; then `on_epoch_opened`, and `on_synced`.
        high_watermark: exclusive end of what is committed; None while that is not known. Never goes back.
        replies: those to fetches are completed with what the log holds now.
        requests: to be sent.
    """

    state: QuorumState | None
    truncation: Offset | None
    append: int | None
    load: SnapshotId | None
    leader_change: LeaderChange | None
    high_watermark: Offset | None
    replies: tuple[QuorumReply, ...]
    requests: tuple[QuorumRequest, ...]
