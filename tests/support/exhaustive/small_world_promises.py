"""What a small world remembers and no replica does, and what must hold of its states.

The same is said by the checkers of simulations, which are slower by far; a test holds these against those.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from support.exhaustive.small_world_parts import Log, Part
from support.worlds.replica_values import Stored, name_of, text_of
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.metadata import PartitionImage
from tidelog.sim.checkers.history import PartitionHistory


class Promised(NamedTuple):
    """What is still promised.

    Attributes:
        history: what it is read from.
        offsets: the records that must be where they were.
        doubtful: who lost power, and has not won back its seat in the ISR since.
    """

    history: PartitionHistory
    records: tuple[tuple[int, Stored], ...]
    doubtful: frozenset[BrokerId]


class Promises:
    """Every history that was seen, by number."""

    def __init__(self, power_losses_max: int) -> None:
        self.values: list[Promised] = []
        self._numbers: dict[tuple[object, ...], int] = {}
        self._after: dict[tuple[object, ...], tuple[int, str]] = {}
        self.first = self._of(PartitionHistory(power_losses_max))

    def on_committed(self, number: int, part: Part) -> tuple[int, str]:
        """A leader has these records below its high watermark. Returns: what is promised then, and what is wrong."""
        key = (number, part.epoch, part.committed)
        found = self._after.get(key)
        if found is None:
            history, broken = self.values[number].history.clone(), ""
            for offset, record in enumerate(part.committed):
                if history.was_committed(offset, record):
                    continue  # who still knows of it promises nothing anew, where that promise has ended
                other = history.on_committed(LeaderEpoch(part.epoch), offset, record)
                if other is not None:
                    what = f"{_name(part)} committed {text_of(record)} at offset={offset}"
                    broken = broken or f"AckedRecordsSurvive: {what}, where {other[1]}@{other[0]} was"
            found = self._after[key] = (self._of(history), broken)
        return found

    def on_unclean_election(self, number: int, leader_epoch: LeaderEpoch) -> int:
        history = self.values[number].history.clone()
        history.on_unclean_election(leader_epoch)
        return self._of(history)

    def on_power_lost(self, number: int, broker: BrokerId) -> int:
        history = self.values[number].history.clone()
        history.on_power_lost(broker)
        return self._of(history)

    def on_state(self, number: int, image: PartitionImage, down: Collection[BrokerId]) -> int:
        """As the controller has it."""
        if not self.values[number].doubtful:
            return number
        history = self.values[number].history.clone()
        history.on_state(image, down)
        return self._of(history)

    def _of(self, history: PartitionHistory) -> int:
        key = history.canonical_key()
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.values)
            records = []
            for offset in range(history.committed_end_offset):
                record = history.promised(offset)
                if record is not None:
                    assert isinstance(record, Stored)
                    records.append((offset, record))
            ids = range(1, 10)
            doubtful = frozenset(BrokerId(one) for one in ids if history.is_doubtful(BrokerId(one)))
            self.values.append(Promised(history, tuple(records), doubtful))
        return number


class Checks:
    """What must hold, with what was found before kept."""

    def __init__(self, tolerated: frozenset[str] = frozenset()) -> None:
        self._agreeing: dict[tuple[Log, Log], str] = {}
        self._is_lineage_checked = "LineageTellsTheLog" not in tolerated
        self._is_weak_isr_checked = "WeakIsr" not in tolerated

    def broken(self, parts: Sequence[Part], image: PartitionImage, promised: Promised) -> str:
        """What does not hold, beginning with the name of the invariant; empty if all does."""
        agreeing = self._agreeing
        for at, part in enumerate(parts):
            for other in parts[:at]:
                both = (other.log, part.log)
                found = agreeing.get(both)
                if found is None:
                    found = agreeing[both] = _disagreement(*both)
                if found:
                    return f"LogsArePrefixes: {_name(other)} and {_name(part)} have {found}"
                if part.leads and other.leads and part.epoch == other.epoch:
                    return f"EpochOffsetUnique: two leaders of epoch {part.epoch}"
        if image.leader is not None and image.leader not in image.isr:
            return f"LeaderInIsr: {name_of(image.leader)} leads"
        records = promised.records
        if records:
            for broker in (*image.isr, *image.eligible_leader_replicas):
                if broker not in promised.doubtful:
                    log = parts[broker - 1].log
                    for offset, record in records:
                        if offset >= len(log) or log[offset] != record:
                            return _missing(offset, record, broker, image)
        for part in parts:
            if (
                part.leads
                and records
                and self._is_weak_isr_checked
                and promised.history.is_bound(LeaderEpoch(part.epoch))
            ):
                for broker in part.isr:
                    found = self._agree(part, parts[broker - 1], promised) if broker not in promised.doubtful else ""
                    if found:
                        return found
            if part.lineage_is_wrong and self._is_lineage_checked:
                return f"LineageTellsTheLog: {_name(part)} does not know the epochs of its records"
            if part.shown:
                for offset, record in enumerate(part.shown):
                    if not promised.history.was_committed(offset, record):
                        what = f"{_name(part)} shows {text_of(record)} at offset={offset}"
                        return f"DeliveredStaysDeliverable: {what}, which is not committed"
        return ""

    @staticmethod
    def _agree(leader: Part, other: Part, promised: Promised) -> str:
        for offset, _ in promised.records:
            if offset < len(leader.committed) and leader.log[offset] != (
                other.log[offset] if offset < len(other.log) else None
            ):
                who = f"{_name(leader)} leads epoch {leader.epoch} and presumes {_name(other)} in sync"
                return f"WeakIsr: {who}, which lacks {text_of(leader.log[offset])}"
        return ""


def _name(part: Part) -> str:
    return name_of(part.replica.broker_id)


def _disagreement(one: Log, other: Log) -> str:
    agreed = [offset for offset, (mine, theirs) in enumerate(zip(one, other, strict=False)) if mine[0] == theirs[0]]
    for offset in range(agreed[-1] + 1 if agreed else 0):
        if one[offset] != other[offset]:
            return f"{text_of(one[offset])} and {text_of(other[offset])} at offset={offset}"
    return ""


def _missing(offset: int, record: Stored, broker: BrokerId, image: PartitionImage) -> str:
    what = f"{text_of(record)} offset={Offset(offset)} is missing from"
    if broker == image.leader:
        return f"AckedRecordsSurvive: {what} leader {name_of(broker)}"
    part = "is in sync" if broker in image.isr else "may be elected"
    return f"StrongIsr: {what} {name_of(broker)}, which {part}"
