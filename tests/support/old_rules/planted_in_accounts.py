"""Bugs planted in the account of losses, while whole clusters run; and how many seeds it takes to find each.

As a program it prints the table, in some minutes:
`PYTHONPATH=tests python tests/support/old_rules/planted_in_accounts.py [NAME...]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from support.old_rules.planted import Patch, attribute, print_planted, run_cluster, seek
from support.old_rules.planted_bugs import Found
from tidelog.base.ids import BrokerId, Offset
from tidelog.base.losses import Loss, LossCause
from tidelog.controller import losses
from tidelog.log import lost_records
from tidelog.replica import Truncation
from tidelog.server.membership import loss_reports
from tidelog.server.replication.follower_driver import FollowerDriver, LostOffsets
from tidelog.server.replication.loss_notes import LossNotes
from tidelog.server.replication.partition import Partition
from tidelog.sim.faults.faults import Fault
from tidelog.sim.runs.cluster_plan import ClusterPlan
from tidelog.sim.runs.workload import WorkloadPlan

SEEDS_MAX = 10
MINUTES = 0.1
CLIENTS = WorkloadPlan(
    partitions=3, interval_ms=50, consumers=0, replication_factor=2, min_insync_replicas=1, syncs_each=False
)
PLAN = ClusterPlan(
    clients=CLIENTS,
    session_ms=1_000,
    lag_ms_max=1_000,
    fetch_timeout_ms=500,
    checkpoint_ms=60_000,
    allows_unclean=True,
)
LEFT_BEHIND = (
    Fault("kill", 500, lasts_ms=4_000, broker=BrokerId(2)),
    Fault("kill", 3_000, lasts_ms=7_000, broker=BrokerId(1)),
)
"""Node 1 writes alone and ends; node 2 is elected without what that wrote, and node 1 returns, and cuts it off."""
RETURNS_TWICE = (*LEFT_BEHIND, Fault("kill", 10_050, lasts_ms=100, broker=BrokerId(1)))
"""As that, and node 1 ends once more: after it cut its log, and before it told."""
MOVED = (*LEFT_BEHIND, *(Fault("reassignment", 8_600 + 400 * turn, float(turn)) for turn in range(1, 4)))
"""As that, and partitions are moved while node 1 is away and its entry open."""
BLACKOUTS = tuple(Fault("power loss of all", at_ms, lasts_ms=800) for at_ms in (1_500, 4_000))


@dataclass(frozen=True)
class PlantedInAccounts:
    """One bug.

    Attributes:
        words: what is done wrong.
        says: a part of what the checker says then.
        faults: in which it shows.
    """

    words: str
    plant: Patch
    says: str
    faults: tuple[Fault, ...] = LEFT_BEHIND
    rule: str = "the account"


_opened, _log_truncation, _is_settled = losses._opened, FollowerDriver._log_truncation, loss_reports._is_settled


def _open_for_elections_alone(*args: object) -> Loss | None:
    loss = _opened(*args)  # type: ignore[arg-type]
    return None if loss is None or loss.cause is LossCause.LOST_BY_LEADER else loss


def _shifted(offsets: int) -> Patch:
    """The range begins elsewhere than the cut."""

    def lost(self: FollowerDriver, truncation: Truncation) -> LostOffsets | None:
        found = _log_truncation(self, truncation)
        if found is None or found.start_offset is None:
            return found
        return found._replace(start_offset=Offset(max(min(found.start_offset + offsets, found.end_offset - 1), 0)))

    return attribute(FollowerDriver, "_log_truncation", lost)


def _below_the_high_watermark(self: FollowerDriver, truncation: Truncation) -> LostOffsets | None:
    found = _log_truncation(self, truncation)
    return None if found is None or found.high_watermark is None else found


def _settled_where_it_leads(partition: Partition, *args: object) -> bool:
    return partition.role.leader_replica is not None and _is_settled(partition, *args)  # type: ignore[arg-type]


PLANTED: Mapping[str, PlantedInAccounts] = {
    "entry-not-opened": PlantedInAccounts(
        "An election opens no entry in its batch.",
        attribute(losses, "_opened", lambda *_: None),
        "no entry was opened",
    ),
    "opened-for-elections-alone": PlantedInAccounts(
        "A leader that lost its own records opens no entry.",
        attribute(losses, "_opened", _open_for_elections_alone),
        "no entry was opened",
        BLACKOUTS,
    ),
    "note-in-memory": PlantedInAccounts(
        "What was cut off is not noted on disk.",
        attribute(lost_records, "_write_note", lambda *_: None),
        "no entry says so",
        RETURNS_TWICE,
    ),
    "range-too-short": PlantedInAccounts(
        "A replica tells of all but the first record that it cut off.", _shifted(1), "no entry says so"
    ),
    "range-too-long": PlantedInAccounts(
        "A replica tells of one record that it has kept.", _shifted(-1), "names offset"
    ),
    "tells-whole": PlantedInAccounts(
        "A replica that was cut tells that it held nothing more.",
        attribute(LossNotes, "note", lambda *_: None),
        "no entry says so",
    ),
    "tells-of-committed-alone": PlantedInAccounts(
        "A replica tells only of what lies below its own high watermark.",
        attribute(FollowerDriver, "_log_truncation", _below_the_high_watermark),
        "no entry says so",
        RETURNS_TWICE,
    ),
    "never-closes": PlantedInAccounts(
        "Followers tell nothing while nothing was cut off.",
        attribute(loss_reports, "_is_settled", _settled_where_it_leads),
        "awaits",
    ),
}


def seeds_until_found(bug: PlantedInAccounts, first_seed: int, seeds_max: int) -> Found | None:
    """How many seeds in a row it takes, and what is said then; None where so many do not find it."""
    return seek(bug, lambda seed: run_cluster(PLAN, bug.faults, seed, MINUTES).recorder.broken, first_seed, seeds_max)


if __name__ == "__main__":
    print_planted(PLANTED, seeds_until_found, SEEDS_MAX)
