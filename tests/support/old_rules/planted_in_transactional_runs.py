"""Bugs planted in what transactions rest on, while whole clusters run; and how many seeds it takes to find each.

As a program it prints the table, in some minutes:
`PYTHONPATH=tests python tests/support/old_rules/planted_in_transactional_runs.py [NAME...]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import pytest

from support.old_rules.planted import Patch, attribute, print_planted, run_cluster, seek
from support.old_rules.planted_bugs import Found
from support.old_rules.planted_transactions import PLANTED as IN_THE_COORDINATOR
from tidelog.base.errors import Code
from tidelog.base.ids import BrokerId, TopicPartition
from tidelog.coordinator.groups.pending_offsets import PendingOffsets
from tidelog.coordinator.groups.state import RecordedGroups
from tidelog.journal.transaction_part import TransactionRecord
from tidelog.log.compaction.cleaner_transactions import CleanedTransactions
from tidelog.log.files.transaction_index import AbortedEntry
from tidelog.log.producer_state import ProducerState, ProducerStates, RememberedBatch
from tidelog.log.recovery import Recovery
from tidelog.log.segments import Segments
from tidelog.log.snapshots import ProducerSnapshots
from tidelog.log.verification import Verifications
from tidelog.records.batch import BatchHeader
from tidelog.records.transaction_marker import TransactionMarker
from tidelog.server.replication.partition import Partition
from tidelog.server.transactions.markers import MarkerWriter
from tidelog.server.transactions.verification import TransactionVerification, Verified
from tidelog.sim.faults.faults import Fault
from tidelog.sim.runs.cluster_plan import ClusterPlan
from tidelog.sim.runs.transaction_plan import COPIES, TRANSACTION_STATE, TransactionPlan
from tidelog.sim.runs.workload import WorkloadPlan

SEEDS_MAX = 10
CLIENTS = WorkloadPlan(
    partitions=2, interval_ms=50, consumers=0, replication_factor=3, min_insync_replicas=2, syncs_each=False
)
PLAN = ClusterPlan(clients=CLIENTS, session_ms=1_000, lag_ms_max=1_000, fetch_timeout_ms=500, checkpoint_ms=60_000)
TRANSACTIONS = TransactionPlan(versions=(1, 2), interval_ms=20, segment_bytes=700)
COORDINATOR = float(replace(PLAN, transactions=TRANSACTIONS).partitions.index(TRANSACTION_STATE))
"""The amount of a fault that meets whoever coordinates."""
MINUTES = 0.1
RESTARTS = tuple(Fault("rolling restart", at_ms, broker=BrokerId(1)) for at_ms in (1_500, 4_000))
KILLS = tuple(
    Fault("leader killed", at_ms, amount, 700) for at_ms, amount in ((1_000, 1.0), (2_500, 2.0), (4_000, 3.0))
)
RESETS = (Fault("network half reset", amount=0.03),)
LOSSES = (Fault("network loss", amount=0.04),)


@dataclass(frozen=True)
class PlantedInTransactions:
    """One bug.

    Attributes:
        rule: that it breaks.
        words: what is done wrong.
        invariants: one of which is found broken.
        faults: that it takes.
        transactions: what clients do.
    """

    rule: str
    words: str
    plant: Patch
    invariants: frozenset[str]
    faults: tuple[Fault, ...] = ()
    transactions: TransactionPlan = TRANSACTIONS


def _of_the_coordinator(name: str, *invariants: str, faults: tuple[Fault, ...] = ()) -> PlantedInTransactions:
    """One that the small worlds find as well."""
    bug = IN_THE_COORDINATOR[name]
    words = f"{name[0].upper()}{name[1:]}."
    return PlantedInTransactions(
        "KIP-98, 890", words, attribute(bug.owner, bug.name, bug.bug), frozenset(invariants), faults
    )


def _is_first_copy(topic_partition: TopicPartition) -> bool:
    return topic_partition.topic == COPIES and not topic_partition.partition


def _skip_the_first_partition(patch: pytest.MonkeyPatch) -> None:
    write = MarkerWriter.write

    async def skipping(
        self: MarkerWriter, topic_partition: TopicPartition, marker: TransactionMarker, leader_epoch: int = -1
    ) -> None:
        if not _is_first_copy(topic_partition):
            await write(self, topic_partition, marker, leader_epoch)

    patch.setattr(MarkerWriter, "write", skipping)


def _end_the_first_partition(patch: pytest.MonkeyPatch, *, commits: bool) -> None:
    write = MarkerWriter.write

    async def writing(
        self: MarkerWriter, topic_partition: TopicPartition, marker: TransactionMarker, leader_epoch: int = -1
    ) -> None:
        is_first = _is_first_copy(topic_partition)
        await write(self, topic_partition, replace(marker, is_commit=commits) if is_first else marker, leader_epoch)

    patch.setattr(MarkerWriter, "write", writing)


def _list_all(patch: pytest.MonkeyPatch) -> None:
    """Those that are committed are listed as aborted, too."""
    end_transaction = ProducerStates.end_transaction

    def listing(
        self: ProducerStates, header: BatchHeader, offset: int, coordinator_epoch: int, now_ms: int, *, committed: bool
    ) -> AbortedEntry | None:
        is_listed = committed and offset % 5 != 0
        return end_transaction(self, header, offset, coordinator_epoch, now_ms, committed=is_listed)

    patch.setattr(ProducerStates, "end_transaction", listing)


def _forget_at_a_start(patch: pytest.MonkeyPatch) -> None:
    resolve = Recovery._resolve_transaction_indexes

    def forgetting(self: Recovery, segments: Segments, snapshots: ProducerSnapshots) -> None:
        resolve(self, segments, snapshots)
        for segment in segments:
            segment.indexes.transactions.replace([])

    patch.setattr(Recovery, "_resolve_transaction_indexes", forgetting)


def _apply_at_once(patch: pytest.MonkeyPatch) -> None:
    apply = RecordedGroups.apply

    def applying(self: RecordedGroups, record: object) -> None:
        apply(self, record.record if isinstance(record, TransactionRecord) else record)

    patch.setattr(RecordedGroups, "apply", applying)


def _drop_what_is_pending(patch: pytest.MonkeyPatch) -> None:
    end = PendingOffsets.end
    patch.setattr(
        PendingOffsets, "end", lambda self, producer_id, *, is_committed: end(self, producer_id, is_committed=False)
    )


def _append_what_is_there(patch: pytest.MonkeyPatch) -> None:
    check, find_original = ProducerState.check, ProducerState.find_original

    def checking(self: ProducerState, header: BatchHeader) -> RememberedBatch | None:
        return None if find_original(self, header) is not None else check(self, header)

    patch.setattr(ProducerState, "check", checking)
    patch.setattr(ProducerState, "find_original", lambda *_: None)


def _keep_what_was_aborted(patch: pytest.MonkeyPatch) -> None:
    """And its index forgets it."""
    is_void = CleanedTransactions.is_void

    def keeping(self: CleanedTransactions, buffer: bytes, at: int, header: BatchHeader) -> bool:
        return is_void(self, buffer, at, header) and header.is_control

    patch.setattr(CleanedTransactions, "is_void", keeping)


async def _say_yes(_: TransactionVerification, asked: Verified) -> dict[TopicPartition, Code]:
    return dict.fromkeys(asked.partitions, Code.NONE)


PLANTED: Mapping[str, PlantedInTransactions] = {
    "marker-not-written": PlantedInTransactions(
        "KIP-98",
        "The first partition gets no marker, and is answered for.",
        _skip_the_first_partition,
        frozenset({"NothingStaysOpen"}),
    ),
    "marker-aborts": PlantedInTransactions(
        "KIP-98",
        "The first partition gets an abort, whatever was decided.",
        partial(_end_the_first_partition, commits=False),
        frozenset({"AllOrNothing", "AnsweredCommitsAreCommitted", "CopiedOnce"}),
        transactions=replace(TRANSACTIONS, dies=0.15),
    ),
    "marker-commits": PlantedInTransactions(
        "KIP-98",
        "The first partition gets a commit, whatever was decided.",
        partial(_end_the_first_partition, commits=True),
        frozenset({"AnsweredAbortsAreAborted", "NoAbortedRead"}),
    ),
    "passes-what-is-open": PlantedInTransactions(
        "KIP-98",
        "The last stable offset is the high watermark.",
        attribute(Partition, "last_stable_offset", property(lambda self: self.high_watermark)),
        frozenset({"LastStableOffsetIsStable"}),
    ),
    "lists-what-is-committed": PlantedInTransactions(
        "KIP-98", "Some committed transactions are listed as aborted.", _list_all, frozenset({"CommittedIsRead"})
    ),
    "index-forgets": PlantedInTransactions(
        "KIP-98",
        "A start forgets which transactions were aborted.",
        _forget_at_a_start,
        frozenset({"NoAbortedRead"}),
        RESTARTS,
    ),
    "offsets-at-once": PlantedInTransactions(
        "D11",
        "Offsets that are committed in a transaction count before its end.",
        _apply_at_once,
        frozenset({"OffsetsFollowTransactions"}),
    ),
    "offsets-dropped": PlantedInTransactions(
        "D11",
        "Offsets of a committed transaction are dropped.",
        _drop_what_is_pending,
        frozenset({"OffsetsFollowTransactions"}),
    ),
    "asks-nobody": PlantedInTransactions(
        "KIP-890",
        "A batch may begin a transaction, whatever the coordinator knows of it.",
        attribute(TransactionVerification, "_ask", _say_yes),
        frozenset({"AnsweredAbortsAreAborted", "NoAbortedRead", "NothingStaysOpen"}),
        LOSSES,
        replace(TRANSACTIONS, versions=(1, 1), dies=0.0, gives_up=0.3),
    ),
    "guard-dropped": PlantedInTransactions(
        "KIP-890",
        "A batch is appended although a marker came while the coordinator was asked.",
        attribute(Verifications, "check_guard", lambda *_: None),
        frozenset({"AnsweredAbortsAreAborted", "NoAbortedRead", "NothingStaysOpen"}),
        LOSSES,
        replace(TRANSACTIONS, versions=(1, 1), dies=0.0, gives_up=0.3),
    ),
    "duplicates-appended": PlantedInTransactions(
        "KIP-98",
        "A batch that is sent again is written again.",
        _append_what_is_there,
        frozenset({"CopiedOnce"}),
        RESETS,
    ),
    "compaction-keeps-aborted": PlantedInTransactions(
        "11",
        "Compaction takes aborted records for committed ones.",
        _keep_what_was_aborted,
        frozenset({"LastOfEachKey", "NoAbortedRead"}),
    ),
    "no-epoch-is-checked": _of_the_coordinator("no epoch is checked", "AnsweredAbortsAreAborted", "NoAbortedRead"),
    "further-partition-replaces": _of_the_coordinator("a further partition replaces the first", "NothingStaysOpen"),
    "time-out-commits": _of_the_coordinator("a time-out commits", "AnsweredAbortsAreAborted", "NoAbortedRead"),
    "newer-instance-aborts-nothing": _of_the_coordinator("a newer instance aborts nothing", "NothingStaysOpen"),
}


def seeds_until_found(bug: PlantedInTransactions, first_seed: int, seeds_max: int) -> Found | None:
    """How many seeds in a row it takes, and what is said then; None where so many do not find it."""
    plan = replace(PLAN, transactions=bug.transactions)
    return seek(bug, lambda seed: run_cluster(plan, bug.faults, seed, MINUTES).recorder.broken, first_seed, seeds_max)


if __name__ == "__main__":
    print_planted(PLANTED, seeds_until_found, SEEDS_MAX)
