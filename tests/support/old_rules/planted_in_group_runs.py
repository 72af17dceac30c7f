"""Bugs planted in the coordinator of groups, while whole clusters run; and how many seeds it takes to find each.

As a program it prints the table, in some minutes:
`PYTHONPATH=tests python tests/support/old_rules/planted_in_group_runs.py [NAME...]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from uuid import UUID

import pytest

from support.old_rules.planted import Patch, attribute, print_planted, run_cluster, seek
from support.old_rules.planted_bugs import Found
from tidelog.base.ids import Offset
from tidelog.coordinator.groups import offsets, rebalance
from tidelog.coordinator.groups.consumer import consumer_groups
from tidelog.coordinator.groups.consumer.consumer_groups import ConsumerGroups
from tidelog.coordinator.groups.consumer.conversion import upgraded
from tidelog.coordinator.groups.consumer.group import ConsumerGroup
from tidelog.coordinator.groups.consumer.known_topics import KnownTopics
from tidelog.coordinator.groups.consumer.member import CurrentAssignment
from tidelog.coordinator.groups.coordinator import GroupCoordinator
from tidelog.coordinator.groups.group import Group
from tidelog.coordinator.groups.group_journal import GroupJournal
from tidelog.coordinator.groups.records import OFFSET_KEY_VERSIONS, encode_offset
from tidelog.journal import KeyValue, RequestId
from tidelog.sim.faults.faults import Fault
from tidelog.sim.runs.cluster_plan import OFFSETS, ClusterPlan
from tidelog.sim.runs.group_plan import CLASSIC, GroupPlan
from tidelog.sim.runs.workload import WorkloadPlan
from tidelog.wire.primitives import ZERO_UUID

SEEDS_MAX = 10
MINUTES = 0.12
CLIENTS = WorkloadPlan(
    partitions=3, interval_ms=50, consumers=0, replication_factor=3, min_insync_replicas=2, syncs_each=False
)
PLAN = ClusterPlan(clients=CLIENTS, session_ms=1_000, lag_ms_max=1_000, fetch_timeout_ms=500, checkpoint_ms=60_000)
GROUP = GroupPlan(session_ms=1_000, commit_ms=50, leaves=10, crashes=10, stalls=10, away_ms_max=500)
CLASSIC_GROUP = replace(GROUP, protocols=CLASSIC, later_protocols=CLASSIC, stalls=30)
UPGRADED = replace(GROUP, protocols=CLASSIC, changes_at_ms=1_000)
DOWNGRADED = replace(GROUP, later_protocols=CLASSIC, changes_at_ms=1_000)
COORDINATOR = float(replace(PLAN, group=GROUP).partitions.index(OFFSETS))
"""The amount of a fault that meets whoever coordinates."""
KILLS = tuple(Fault("leader killed", at_ms, COORDINATOR, 700) for at_ms in (2_000, 4_500))
ISOLATIONS = tuple(Fault("leader isolated", at_ms, COORDINATOR, 1_500) for at_ms in (1_500, 4_500))


@dataclass(frozen=True)
class PlantedInGroups:
    """One bug.

    Attributes:
        rule: that it breaks.
        words: what is done wrong.
        invariants: one of which is found broken.
        faults: that it takes.
        group: what members do.
    """

    rule: str
    words: str
    plant: Patch
    invariants: frozenset[str]
    faults: tuple[Fault, ...] = ()
    group: GroupPlan = GROUP


def _check_no_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsumerGroups, "check_commit", lambda self, request, _: request.group_id in self.groups)


def _answer_at_once(patch: pytest.MonkeyPatch) -> None:
    def answering(
        self: GroupJournal, records: tuple[KeyValue, ...], request_id: RequestId, outcome: object, **_: object
    ) -> None:
        self.write(records)
        self.answer_at_once(request_id, outcome)  # type: ignore[arg-type]

    patch.setattr(GroupJournal, "write_and_answer", answering)


def _keep_the_first(patch: pytest.MonkeyPatch) -> None:
    """An offset that is read after another one of its position is taken for the older."""
    replay = GroupCoordinator.replay

    def replaying(
        self: GroupCoordinator,
        key: bytes | None,
        value: bytes | None,
        offset: Offset,
        *,
        transaction_of: int | None = None,
    ) -> None:
        known = self.__dict__.setdefault("known_keys", set())
        if key is None or key not in known:
            replay(self, key, value, offset, transaction_of=transaction_of)
        if key is not None and key[:2] in OFFSET_KEY_VERSIONS:
            known.add(key)

    patch.setattr(GroupCoordinator, "replay", replaying)


def _forget_leader_epochs(
    offset: int, _: int, metadata: str, commit_timestamp_ms: int, topic_id: UUID = ZERO_UUID
) -> bytes:
    return encode_offset(offset, -1, metadata, commit_timestamp_ms, topic_id)


def _never_end_sessions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsumerGroups, "on_due", lambda *_: None)
    patch.setattr(rebalance, "on_session_due", lambda *_: None)


def _upgrade_without_parts(patch: pytest.MonkeyPatch) -> None:
    def upgrading(group: Group, known: KnownTopics) -> ConsumerGroup | None:
        found = upgraded(group, known)
        for member_id in () if found is None else found.subscriptions:
            assert found is not None
            found.set_current(member_id, CurrentAssignment(group.generation_id, group.generation_id))
        return found

    patch.setattr(consumer_groups, "upgraded", upgrading)


PLANTED: Mapping[str, PlantedInGroups] = {
    "handed-on-unrevoked": PlantedInGroups(
        "KIP-848 G1",
        "A partition is given to a member although another one has not given it up.",
        attribute(ConsumerGroup, "owner", lambda *_: None),
        frozenset({"OnePartitionOneOwner"}),
    ),
    "member-epoch-unchecked": PlantedInGroups(
        "KIP-848 G8",
        "Whoever asks may commit.",
        _check_no_commit,
        frozenset({"OnePartitionOneOwner"}),
    ),
    "generation-unchecked": PlantedInGroups(
        "classic groups",
        "Whoever asks may commit, in a classic group.",
        attribute(offsets, "check_committer", lambda *_: None),
        frozenset({"OnePartitionOneOwner"}),
        group=CLASSIC_GROUP,
    ),
    "upgrade-forgets-parts": PlantedInGroups(
        "KIP-848 G9",
        "A classic group becomes a consumer group in which its members have nothing.",
        _upgrade_without_parts,
        frozenset({"OnePartitionOneOwner"}),
        group=UPGRADED,
    ),
    "commit-answered-at-once": PlantedInGroups(
        "KIP-848 G8",
        "A commit is answered before the log has committed it.",
        _answer_at_once,
        frozenset({"NoCommitLost"}),
        ISOLATIONS,
    ),
    "replay-keeps-the-first": PlantedInGroups(
        "KIP-848 G10",
        "A new coordinator takes the first of several offsets of a position.",
        _keep_the_first,
        frozenset({"NoCommitLost"}),
        KILLS,
    ),
    "leader-epoch-dropped": PlantedInGroups(
        "KIP-320",
        "The leader epoch that comes with an offset is not kept.",
        attribute(offsets, "encode_offset", _forget_leader_epochs),
        frozenset({"EpochsOfCommits"}),
    ),
    "session-never-ends": PlantedInGroups(
        "KIP-848 G6",
        "A member that is silent stays.",
        _never_end_sessions,
        frozenset({"GroupMakesProgress"}),
        group=replace(GROUP, crashes=40),
    ),
}


def seeds_until_found(bug: PlantedInGroups, first_seed: int, seeds_max: int) -> Found | None:
    """How many seeds in a row it takes, and what is said then; None where so many do not find it."""
    plan = replace(PLAN, group=bug.group)
    return seek(bug, lambda seed: run_cluster(plan, bug.faults, seed, MINUTES).recorder.broken, first_seed, seeds_max)


if __name__ == "__main__":
    print_planted(PLANTED, seeds_until_found, SEEDS_MAX)
