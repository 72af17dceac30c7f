"""Bugs planted in the leaders and the coordinator of a share group, while whole clusters run; and how many seeds it
takes to find each.

As a program it prints the table, in some minutes:
`PYTHONPATH=tests python tests/support/old_rules/planted_in_share_runs.py [NAME...]`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from support.old_rules.planted import Patch, attribute, print_planted, run_cluster, seek
from support.old_rules.planted_bugs import Found
from support.old_rules.share_rules import as_it_was_kept
from tidelog.base.errors import Code
from tidelog.base.ids import CorrelationId, LeaderEpoch, Offset
from tidelog.coordinator.share.coordinator import ShareCoordinator
from tidelog.coordinator.share.records import ShareRecordType, read_key
from tidelog.server.share_fetching import share_driver
from tidelog.server.share_fetching.share_driver import ShareDriver
from tidelog.share import AcknowledgedRecords, SharePartition, StateChange
from tidelog.share.in_flight import ACQUIRED, ARCHIVED
from tidelog.share.reconciliation import Reconciliation
from tidelog.sim.faults.faults import Fault
from tidelog.sim.runs import share_workload
from tidelog.sim.runs.cluster_plan import ClusterPlan
from tidelog.sim.runs.share_plan import SHARE_STATE, SharePlan
from tidelog.sim.runs.workload import WorkloadPlan

SEEDS_MAX = 10
MINUTES = 0.12
CLIENTS = WorkloadPlan(
    partitions=2, interval_ms=50, consumers=0, replication_factor=3, min_insync_replicas=2, syncs_each=False
)
SHARE = SharePlan(session_ms=1_000, leaves=10, crashes=10, away_ms_max=500)
PLAN = ClusterPlan(
    clients=CLIENTS, session_ms=1_000, lag_ms_max=1_000, fetch_timeout_ms=500, checkpoint_ms=60_000, share=SHARE
)
LOSING = replace(PLAN, clients=replace(CLIENTS, partitions=1, interval_ms=20), allows_unclean=True)
"""An operator lets anybody lead."""
COORDINATOR = float(PLAN.partitions.index(SHARE_STATE))
"""The amount of a fault that meets whoever coordinates."""
KILLS = tuple(Fault("leader killed", at_ms, 0.0, 700) for at_ms in (2_000, 4_500))
COORDINATOR_KILLS = tuple(Fault("leader killed", at_ms, COORDINATOR, 700) for at_ms in (2_000, 4_500))
ISOLATIONS = tuple(Fault("leader isolated", at_ms, COORDINATOR, 1_500) for at_ms in (1_500, 4_500))
KILLS_MEANWHILE = tuple(
    Fault("leader killed", at_ms, place, 700)
    for at_ms, place in ((1_800, 0.0), (2_400, 1.0), (4_800, 0.0), (5_400, 1.0))
)
LOSSES = tuple(Fault("logs lost", at_ms, amount, 700) for at_ms, amount in ((1_500, 1.0), (3_000, 2.0), (4_500, 9.0)))
"""Of the records, at all nodes."""


@dataclass(frozen=True)
class PlantedInShareGroups:
    """One bug.

    Attributes:
        rule: that it breaks.
        words: what is done wrong.
        invariants: one of which is found broken.
        faults: that it takes.
        plan: of the cluster.
    """

    rule: str
    words: str
    plant: Patch
    invariants: frozenset[str]
    faults: tuple[Fault, ...] = ()
    plan: ClusterPlan = PLAN


def _answer_at_once(patch: pytest.MonkeyPatch) -> None:
    acknowledge = ShareDriver.acknowledge

    def answering(self: ShareDriver, member_id: str, batches: Sequence[AcknowledgedRecords]) -> asyncio.Future[Code]:
        acknowledge(self, member_id, batches)
        answer: asyncio.Future[Code] = asyncio.get_running_loop().create_future()
        answer.set_result(Code.NONE)
        return answer

    patch.setattr(ShareDriver, "acknowledge", answering)


def _skip_updates(patch: pytest.MonkeyPatch) -> None:
    replay = ShareCoordinator.replay

    def replaying(self: ShareCoordinator, key: bytes | None, *rest: Any, **more: Any) -> None:
        read = None if key is None else read_key(key)
        if read is None or read[0] is not ShareRecordType.UPDATE:
            replay(self, key, *rest, **more)

    patch.setattr(ShareCoordinator, "replay", replaying)


def _release_early(patch: pytest.MonkeyPatch) -> None:
    on_tick = SharePartition.on_tick
    patch.setattr(SharePartition, "on_tick", lambda self, now_ms: on_tick(self, now_ms + self.settings.lock_ms // 2))


def _renew_nothing(patch: pytest.MonkeyPatch) -> None:
    on_acknowledge = SharePartition.on_acknowledge

    def acknowledging(
        self: SharePartition,
        correlation_id: CorrelationId,
        member_id: str,
        batches: Sequence[AcknowledgedRecords],
        now_ms: int,
    ) -> None:
        before = [(run.first, run.last, run.deadline_ms) for run in self.in_flight.runs]
        on_acknowledge(self, correlation_id, member_id, batches, now_ms)
        for run in self.in_flight.runs:
            if run.state is ACQUIRED:
                run.deadline_ms = next(ms for first, last, ms in before if first <= run.first <= last)

    patch.setattr(SharePartition, "on_acknowledge", acknowledging)


def _release_all(patch: pytest.MonkeyPatch) -> None:
    on_member_left = SharePartition.on_member_left

    def leaving(self: SharePartition, _: str) -> None:
        for member_id in {run.member_id for run in self.in_flight.runs}:
            on_member_left(self, member_id)

    patch.setattr(SharePartition, "on_member_left", leaving)


def _begin_at_the_end(patch: pytest.MonkeyPatch) -> None:
    take_change = SharePartition._take_change

    def taking(self: SharePartition) -> StateChange:
        return replace(take_change(self), start=self.end, batches=())

    patch.setattr(SharePartition, "_take_change", taking)


def _keep_the_start(self: Reconciliation, kept: Offset, _: LeaderEpoch) -> Offset:
    return min(max(kept, self._bounds.log_start_offset), self._bounds.log_end_offset)


def _release_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SharePartition, "on_member_left", lambda *_: None)
    patch.setattr(SharePartition, "on_tick", lambda *_: None)
    # No state is missed here.
    patch.setattr(share_workload, "POLLS_WITHOUT_PROGRESS_MAX", round(20.0 / share_workload.POLL_SECONDS))


PLANTED: Mapping[str, PlantedInShareGroups] = {
    "acceptance-answered-at-once": PlantedInShareGroups(
        "KIP-932 P2",
        "An acknowledgement is answered before the share coordinator keeps it.",
        _answer_at_once,
        frozenset({"AcceptedOnce"}),
        (*ISOLATIONS, *KILLS_MEANWHILE),
    ),
    "updates-not-replayed": PlantedInShareGroups(
        "KIP-932 P2",
        "A new share coordinator takes the last snapshot of a state, and no update since.",
        _skip_updates,
        frozenset({"AcceptedOnce"}),
        (*COORDINATOR_KILLS, *KILLS),
    ),
    "time-is-over-early": PlantedInShareGroups(
        "KIP-932 P1",
        "A record is taken from its member when half of its time is over.",
        _release_early,
        frozenset({"OneMemberAtATime"}),
        plan=replace(PLAN, share=replace(SHARE, works_ms_max=900)),
    ),
    "renewed-for-nothing": PlantedInShareGroups(
        "KIP-1222 P6",
        "A member that asks for more time has no more than before.",
        _renew_nothing,
        frozenset({"OneMemberAtATime"}),
        plan=replace(PLAN, share=replace(SHARE, works_ms_max=900, renews=50)),
    ),
    "one-leaves-all-leave": PlantedInShareGroups(
        "KIP-932 P1",
        "The end of one member's session releases what all members have.",
        _release_all,
        frozenset({"OneMemberAtATime"}),
        plan=replace(PLAN, share=replace(SHARE, works_ms_max=900)),
    ),
    "released-is-archived": PlantedInShareGroups(
        "KIP-932 P4",
        "A record that is released is delivered to nobody any more.",
        attribute(SharePartition, "_released", lambda *_: ARCHIVED),
        frozenset({"NoRecordSkipped"}),
    ),
    "begins-behind-what-is-acquired": PlantedInShareGroups(
        "KIP-932 P2",
        "What is kept says that all is done that was delivered.",
        _begin_at_the_end,
        frozenset({"NoRecordSkipped"}),
        KILLS,
    ),
    "offsets-alone": PlantedInShareGroups(
        "KIP-932 P8",
        "A state is taken for true whatever the log holds now (as in Kafka).",
        attribute(share_driver, "reconciled", as_it_was_kept),
        frozenset({"NewRecordsAreDelivered"}),
        LOSSES,
        LOSING,
    ),
    "start-stays": PlantedInShareGroups(
        "KIP-932 P8",
        "What lies before the start of a group is done, whatever the log holds now.",
        attribute(Reconciliation, "start", _keep_the_start),
        frozenset({"NewRecordsAreDelivered"}),
        LOSSES,
        LOSING,
    ),
    "released-by-nobody": PlantedInShareGroups(
        "KIP-932 P1",
        "What a member has stays with it, after its time is over and when it has left.",
        _release_nothing,
        frozenset({"ShareGroupMakesProgress"}),
    ),
}


def seeds_until_found(bug: PlantedInShareGroups, first_seed: int, seeds_max: int) -> Found | None:
    """How many seeds in a row it takes, and what is said then; None where so many do not find it."""
    return seek(
        bug, lambda seed: run_cluster(bug.plan, bug.faults, seed, MINUTES).recorder.broken, first_seed, seeds_max
    )


if __name__ == "__main__":
    print_planted(PLANTED, seeds_until_found, SEEDS_MAX)
