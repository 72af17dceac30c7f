"""Bugs planted in production code while whole runs go on, and how many seeds it takes until one is found.

As a program it prints the table, in some minutes:
`PYTHONPATH=tests python tests/support/old_rules/planted_in_runs.py [NAME...]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import pytest

from support.old_rules.planted import Patch, attribute, print_planted, seek
from support.old_rules.planted_bugs import Found
from support.old_rules.replica_rules import (
    WEAK_LEADERS,
    first_epoch_end,
    high_watermark_alone,
    joins_at_the_high_watermark,
)
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.client.cluster import Cluster
from tidelog.client.consistency import ConsistencyContextStore
from tidelog.client.core.positions import Intact
from tidelog.client.core.reader import PartitionReader
from tidelog.controller import brokers, replica_moves
from tidelog.controller.leaders import changes_on_leaving
from tidelog.controller.partition_changes import with_replicas
from tidelog.metadata import PartitionImage
from tidelog.quorum import QuorumNode, QuorumState, VoteRequested, VoterSet, format_quorum_state
from tidelog.quorum.standing import Standing
from tidelog.replica import FollowerFetch, FollowerReplica, FollowerState, LeaderReplica, stop
from tidelog.replica.isr import InSyncReplicas
from tidelog.replica.progress import FollowerProgress
from tidelog.server.api.tokens import TokenGate
from tidelog.server.node import Node
from tidelog.server.replication.partition import Partition
from tidelog.server.storage.metadata_files import MetadataFiles
from tidelog.sim.runs.run import run_seed
from tidelog.sim.world.disk import SimulatedDisk
from tidelog.wire.messages.api_03_metadata import MetadataResponse

MINUTES, CLUSTER_MINUTES = 0.3, 0.15
"""Of virtual time, of a run of one node, and of a cluster."""
SEEDS_MAX = 150


@dataclass(frozen=True)
class PlantedInRuns:
    """One bug.

    Attributes:
        rule: the number of the one that it breaks; 570 for the section on StopReplica.
        words: what is done wrong.
        nodes: of the runs; one, or a cluster.
    """

    rule: str
    words: str
    plant: Patch
    nodes: int = 3


def _default(function: object, name: str, value: object) -> Patch:
    """Another value for an argument that nobody gives."""
    return lambda patch: patch.setitem(function.__kwdefaults__, name, value)  # type: ignore[attr-defined]


def _accepts_what_diverges(patch: pytest.MonkeyPatch) -> None:
    accept_fetch = LeaderReplica.accept_fetch

    def accept(self: LeaderReplica, fetch: FollowerFetch) -> object:
        return accept_fetch(self, replace(fetch, last_fetched_epoch=None))

    patch.setattr(LeaderReplica, "accept_fetch", accept)


def _before_it_is_ready(weaken: Callable[[LeaderReplica], None]) -> Patch:
    take_ready = LeaderReplica.take_ready

    def weakly(self: LeaderReplica) -> object:
        weaken(self)
        return take_ready(self)

    return attribute(LeaderReplica, "take_ready", weakly)


def _keeps_seats(*args: object, **kwargs: object) -> object:
    return [] if "is_lost" in kwargs else changes_on_leaving(*args, **kwargs)  # type: ignore[arg-type]


def _never_lost(*args: object, **kwargs: object) -> object:
    return changes_on_leaving(*args, **{**kwargs, "is_lost": False})  # type: ignore[arg-type]


def _in_the_same_epoch(before: PartitionImage, *args: object, **kwargs: object) -> PartitionImage:
    after = with_replicas(before, *args, **kwargs)  # type: ignore[arg-type]
    return replace(after, leader_epoch=before.leader_epoch) if after.leader == before.leader else after


PLANTED: Mapping[str, PlantedInRuns] = {
    "high-watermark": PlantedInRuns(
        "2",
        "A follower truncates to its own high watermark.",
        _default(FollowerReplica.__init__, "truncation", high_watermark_alone),
    ),
    "kip-101-alone": PlantedInRuns(
        "2",
        "A follower requests the end of its last epoch once, and truncates there, whatever epoch the answer names.",
        _default(FollowerReplica.__init__, "truncation", first_epoch_end),
    ),
    "unfenced": PlantedInRuns(
        "3",
        "A leader serves senders of any leader epoch.",
        attribute(LeaderReplica, "check_leader_epoch", lambda *_: None),
    ),
    "diverging-fetch-counts": PlantedInRuns(
        "3", "A leader does not check the epoch of the fetcher's last record.", _accepts_what_diverges
    ),
    "incarnations-alike": PlantedInRuns(
        "3",
        "Fetches of an earlier incarnation count.",
        attribute(FollowerProgress, "is_overtaken", lambda *_: False),
    ),
    **{name: PlantedInRuns("4", words, _before_it_is_ready(weaken)) for name, (words, weaken) in WEAK_LEADERS.items()},
    "commits-alone": PlantedInRuns(
        "4",
        "Records are committed when all replicas in sync have them, however few these are.",
        attribute(InSyncReplicas, "size_min", property(lambda _: 1, lambda *_: None)),
    ),
    "joins-at-the-high-watermark": PlantedInRuns(
        "5",
        "A follower at the high watermark joins the ISR, wherever the leader's epoch starts.",
        _default(LeaderReplica.__init__, "join", joins_at_the_high_watermark),
    ),
    "keeps-its-seat": PlantedInRuns(
        "6",
        "A broker that registers again keeps its leaderships and its places in ISRs.",
        attribute(brokers, "changes_on_leaving", _keeps_seats),
    ),
    "unclean-is-clean": PlantedInRuns(
        "7", "A replica that lost power stays eligible.", attribute(brokers, "changes_on_leaving", _never_lost)
    ),
    "same-epoch": PlantedInRuns(
        "8",
        "A change of the replicas keeps the leader epoch.",
        attribute(replica_moves, "with_replicas", _in_the_same_epoch),
    ),
    "serves-at-once": PlantedInRuns(
        "9",
        "A follower serves consumers before it is reconciled.",
        attribute(FollowerReplica, "is_reconciled", property(lambda self: self.state is not FollowerState.STOPPED)),
    ),
    "stop-without-epoch": PlantedInRuns(
        "570",
        "A broker does not check the leader epoch of a StopReplica.",
        attribute(stop, "check_stop_order", lambda *_: None),
    ),
    "consumer-trusts": PlantedInRuns(
        "14",
        "A consumer treats every answer about its position as valid.",
        _default(PartitionReader.__init__, "rule", lambda *_: Intact()),
        nodes=1,
    ),
    "acknowledged-unsynced": PlantedInRuns(
        "the promise",
        "Records are acknowledged before they are synced.",
        attribute(Partition, "is_sync_awaited", property(lambda _: False)),
        nodes=1,
    ),
}


def _forgets_votes(patch: pytest.MonkeyPatch) -> None:
    def write(self: MetadataFiles, state: QuorumState) -> None:
        data = format_quorum_state(state)
        self._disk.open(self._quorum_state_path, create=True).truncate(0)
        self._disk.open(self._quorum_state_path).append(data)

    patch.setattr(MetadataFiles, "write_quorum_state", write)


def _syncs_later(patch: pytest.MonkeyPatch) -> None:
    on_appended = QuorumNode.on_appended

    def appended(self: QuorumNode, log_end_offset: Offset, now_ms: int) -> None:
        on_appended(self, log_end_offset, now_ms)
        self.on_synced(log_end_offset, now_ms)

    patch.setattr(QuorumNode, "on_appended", appended)


def _grants_anybody(patch: pytest.MonkeyPatch) -> None:
    """Whatever the candidate's log lacks."""
    on_vote_request = QuorumNode.on_vote_request

    def asked(self: QuorumNode, ticket: int, vote: VoteRequested, now_ms: int) -> None:
        better = replace(vote, last_leader_epoch=LeaderEpoch(1 << 30), log_end_offset=Offset(1 << 60))
        on_vote_request(self, ticket, better, now_ms)

    patch.setattr(QuorumNode, "on_vote_request", asked)


async def _at_once(*_: object) -> None:
    """Wait for nothing."""


_fetch_metadata = Cluster.fetch_metadata


async def _from_the_cache(self: Cluster, topics: Iterable[str] | None, *, create: bool = False) -> MetadataResponse:
    known = self.metadata.topics.keys() | self.metadata.errors.keys()
    is_known = bool(self.metadata.topics) if topics is None else known >= set(topics)
    return MetadataResponse() if is_known else await _fetch_metadata(self, topics, create=create)


PLANTED_IN_CLUSTERS: Mapping[str, PlantedInRuns] = {
    "votes-unsynced": PlantedInRuns("the quorum", "A voter grants a vote before the vote is synced.", _forgets_votes),
    "says-synced": PlantedInRuns(
        "the quorum", "A voter reports records as synced when they are only written.", _syncs_later
    ),
    "grants-anybody": PlantedInRuns("the quorum", "A voter does not compare the candidate's log.", _grants_anybody),
    "votes-though-lost": PlantedInRuns(
        "the quorum",
        "A voter that lost its log or its votes continues to vote.",
        attribute(Standing, "may_vote", property(lambda _: True)),
    ),
    "one-is-a-majority": PlantedInRuns(
        "the quorum",
        "A record on one voter is committed, and a candidate's own vote suffices.",
        attribute(VoterSet, "majority_size", property(lambda _: 1)),
    ),
    "own-writes-unseen": PlantedInRuns(
        "the promise",
        "CreateTopics is answered before the client's broker knows the topic.",
        attribute(Node, "caught_up", _at_once),
    ),
    "answers-from-the-past": PlantedInRuns(
        "the promise",
        "A broker answers whatever the client has seen elsewhere.",
        attribute(TokenGate, "is_reached", lambda *_: True),
    ),
    "clients-apart": PlantedInRuns(
        "the promise",
        "A client keeps the tokens that it sees from the others, and sends none.",
        attribute(ConsistencyContextStore, "on_state", lambda *_: None),
    ),
    "believes-its-cache": PlantedInRuns(
        "the promise",
        "A client answers from its cached metadata, whatever another client has seen since.",
        attribute(Cluster, "fetch_metadata", _from_the_cache),
    ),
    "same-boot": PlantedInRuns(
        "7",
        "A loss of power is treated as a crash.",
        attribute(SimulatedDisk, "boot_id", lambda _: "b"),
    ),
    "consumer-trusts": replace(PLANTED["consumer-trusts"], nodes=3),
}


def seeds_until_found(bug: PlantedInRuns, first_seed: int, seeds_max: int) -> Found | None:
    """How many seeds in a row it takes, and what is said then; None where so many do not find it."""
    minutes = MINUTES if bug.nodes == 1 else CLUSTER_MINUTES
    return seek(bug, lambda seed: run_seed(seed, nodes=bug.nodes, minutes=minutes).broken, first_seed, seeds_max)


if __name__ == "__main__":
    in_clusters = {f"{name}-in-a-cluster": bug for name, bug in PLANTED_IN_CLUSTERS.items()}
    print_planted({**PLANTED, **in_clusters}, seeds_until_found, SEEDS_MAX)
