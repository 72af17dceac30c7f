"""Rules that a proposal replaced, to be passed in where production has today's: what they cost is shown by tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from support.worlds.replica_values import Rules
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionEpoch
from tidelog.controller.partition_changes import IsActive
from tidelog.metadata.image import PartitionImage
from tidelog.records.lineage import LeaderEpochLineage
from tidelog.replica import (
    EpochEndOffset,
    LeaderReady,
    LeaderReplica,
    OwnLog,
    TruncationStep,
    truncation_point,
)
from tidelog.replica.isr import InSyncReplicas


def high_watermark_alone(log: OwnLog, answer: EpochEndOffset | None) -> TruncationStep:
    """Before KIP-101: a follower asks nobody, and keeps what it knows to be committed."""
    return TruncationStep(log.high_watermark)


def first_epoch_end(log: OwnLog, answer: EpochEndOffset | None) -> TruncationStep:
    """KIP-101 alone: one question, and the end offset in the answer counts, whatever epoch the answer is of."""
    if answer is None:
        return TruncationStep(log.log_end_offset, next_epoch_to_request=log.last_leader_epoch)
    return TruncationStep(min(answer.end_offset, log.log_end_offset))


def only_when_told(log: OwnLog, answer: EpochEndOffset | None) -> TruncationStep:
    """No question before the first fetch: the leader tells who diverged. Kafka's since 2.7, and no weaker than ours."""
    return TruncationStep(log.log_end_offset) if answer is None else truncation_point(log, answer)


def never_halts(log: OwnLog, end_offset: Offset, unclean_epoch: LeaderEpoch | None) -> bool:
    """Kafka's followers cut whatever the leader says."""
    return False


def joins_at_the_high_watermark(high_watermark: Offset, epoch_start: Offset) -> Offset:
    """Before the start of the leader's epoch counted too."""
    return high_watermark


def last_one_keeps_its_seat(
    partition: PartitionImage,
    broker: BrokerId,
    *,
    min_insync_replicas: int,
    is_active: IsActive,
    is_lost: bool,
) -> PartitionImage | None:
    """Before KIP-966: the ISR is never empty, and who was in it last leads again, whatever it has lost."""
    isr = tuple(one for one in partition.isr if one != broker) or partition.isr
    leads = partition.leader == broker
    if isr == partition.isr and not leads:
        return None
    heirs = [one for one in isr if one != broker and is_active(one)]
    return replace(
        partition,
        isr=isr,
        leader=next(iter(heirs), None) if leads else partition.leader,
        leader_epoch=LeaderEpoch(partition.leader_epoch + leads),
        partition_epoch=PartitionEpoch(partition.partition_epoch + 1),
    )


def fetches_ahead_of_all(end_offset: Offset, high_watermark: Offset | None) -> bool:
    """Whatever comes, the next fetch goes out before it is written."""
    return True


def fetches_ahead_to_the_end(end_offset: Offset, high_watermark: Offset | None) -> bool:
    """One offset further than today's rule: up to what is committed, that end included."""
    return high_watermark is not None and end_offset <= high_watermark


class EpochJournal(LeaderEpochLineage):
    """A journal of epochs: what it has stays as it is when the next one is added."""

    def assign(self, leader_epoch: LeaderEpoch, start_offset: Offset) -> bool:
        if self.latest_leader_epoch is not None and leader_epoch <= self.latest_leader_epoch:
            return False
        self._leader_epochs.append(leader_epoch)
        self._start_offsets.append(start_offset)
        return True


class ForgetfulLeader(LeaderReplica):
    """A proposal that was not answered is taken not to have been granted."""

    def on_proposal_unanswered(self, now_ms: int) -> None:
        super().on_proposal_unanswered(now_ms)
        self.in_sync.maximal, self.in_sync._proposals = self.in_sync.committed, frozenset()


class OneIsEnough(InSyncReplicas):
    """Whoever is in sync is enough."""

    __slots__ = ()
    size_min = property(lambda self: 1, lambda self, value: None)  # never another


class ContentLeader(LeaderReplica):
    """Before min.insync.replicas: acks=all is acknowledged by whoever is in sync, be it the leader alone."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.in_sync.__class__ = OneIsEnough


class CommittingAlone(ContentLeader):
    """Before KIP-966: what everyone in sync has is committed, however few they are."""

    def check_enough_replicas(self) -> None:
        """As ever."""
        if len(self.isr) < self._settings.min_insync_replicas:
            super().check_enough_replicas()


def _unfenced(rules: Rules) -> Rules:
    return replace(rules, is_fetch_fenced=False, is_truncation_fenced=False, compares_last_epoch=False)


class OldRule(NamedTuple):
    """What some went by, and what it says, in the words of who went by it."""

    rules: Rules
    says: str


def _trust_the_log(leader: LeaderReplica) -> None:
    leader.high_watermark = max(leader.high_watermark, leader.epoch_start)


def _forget_who_leaves(leader: LeaderReplica) -> None:
    if leader.in_sync._to_send is not None:
        leader.in_sync.maximal = leader.in_sync._to_send.isr


def _forget_who_joins(leader: LeaderReplica) -> None:
    leader.in_sync.maximal = leader.in_sync.committed


WEAK_LEADERS: Mapping[str, tuple[str, Callable[[LeaderReplica], None]]] = {
    "trusts-its-log": ("A new leader treats its whole log as committed.", _trust_the_log),
    "shrinks-unasked": (
        "The leader does not wait for a replica that it proposes to remove from the ISR.",
        _forget_who_leaves,
    ),
    "grows-unasked": ("The leader does not wait for a replica that it proposes to add to the ISR.", _forget_who_joins),
}
"""By name what a leader does wrong, and how: before each time that it says what is owed. All of them break rule 4."""


def _weak_leader(weaken: Callable[[LeaderReplica], None]) -> type[LeaderReplica]:
    class WeakLeader(LeaderReplica):
        def take_ready(self) -> LeaderReady:
            weaken(self)
            return super().take_ready()

    return WeakLeader


OLD_RULES = {
    "high-watermark": OldRule(
        _unfenced(Rules(truncation=high_watermark_alone)),
        "A follower truncates to its own high watermark (before KIP-101).",
    ),
    "kip-101-alone": OldRule(
        _unfenced(Rules(truncation=first_epoch_end)),
        "A follower requests the end of its last epoch once, and truncates there, whatever epoch the answer names.",
    ),
    "kip-279-alone": OldRule(
        _unfenced(Rules()), "A follower asks until both logs know an epoch, but no broker checks the epochs of senders."
    ),
    "kip-320-first-try": OldRule(
        Rules(is_fetch_fenced=False), "A fetch carries the epoch of its last record, and not that of its sender."
    ),
    "unfenced-truncation": OldRule(
        Rules(is_truncation_fenced=False, compares_last_epoch=False),
        "Fetches are fenced; requests for the end of an epoch are not.",
    ),
    "joins-at-the-high-watermark": OldRule(
        Rules(join=joins_at_the_high_watermark),
        "A follower at the high watermark joins the ISR, wherever the leader's epoch starts.",
    ),
    "fetches-ahead-of-all": OldRule(
        Rules(ahead=fetches_ahead_of_all), "A follower fetches on before it has written what came, whatever that is."
    ),
    "fetches-ahead-to-the-end": OldRule(
        Rules(ahead=fetches_ahead_to_the_end),
        "A follower fetches on from the high watermark before it has written all below it.",
    ),
    "diverging-fetch-counts": OldRule(
        Rules(counts_diverging=True), "A fetch acknowledges records, even if it diverges."
    ),
    "returns-in-its-epoch": OldRule(Rules(keeps_epoch=True), "A leader that restarts at once continues in its epoch."),
    "keeps-its-seat": OldRule(
        Rules(keeps_seats=True), "A replica that restarts before the controller notices stays in the ISR."
    ),
    "joins-as-its-predecessor": OldRule(
        Rules(checks_broker_epochs=False), "Fetches of one incarnation count for the next (before KIP-903)."
    ),
    "cuts-what-was-committed": OldRule(
        Rules(halts=never_halts),
        "A follower truncates committed records that the leader lacks, though no unclean election gave them up.",
    ),
    "last-one-keeps-its-seat": OldRule(
        Rules(leaving=last_one_keeps_its_seat), "The ISR is never empty (before KIP-966)."
    ),
    "epoch-file-as-it-was": OldRule(
        Rules(lineage=EpochJournal, trims_lineage=False),
        "After an unclean shutdown, the epoch file is read as it is.",
    ),
    "unsynced-truncation": OldRule(
        Rules(syncs_truncation=False), "A truncation is on disk some time after the epochs are."
    ),
    "forgotten-proposals": OldRule(Rules(leader=ForgetfulLeader), "An ISR change without an answer counts as refused."),
    "acks-duplicates-at-once": OldRule(
        Rules(acks_duplicates=True), "A duplicate is acknowledged at once, because its original is written."
    ),
    "commits-alone": OldRule(
        Rules(leader=CommittingAlone),
        "Records are committed when all replicas in sync have them, however few these are (before KIP-966).",
    ),
    **{name: OldRule(Rules(leader=_weak_leader(weaken)), words) for name, (words, weaken) in WEAK_LEADERS.items()},
    "acks-of-who-is-left": OldRule(
        Rules(leader=ContentLeader), "acks=all waits for the replicas in sync, even if that is the leader alone."
    ),
    "serves-at-once": OldRule(
        Rules(serves_unreconciled=True), "A follower serves consumers as soon as it learns of an epoch."
    ),
    "checkpoint-stays": OldRule(
        Rules(lowers_checkpoint=False), "The checkpoint of the high watermark never decreases."
    ),
}
"""By the name that a story replays it under."""
