"""What consumers and producers went by before, or go by elsewhere: passed in where production has today's rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidelog.base.ids import LeaderEpoch, Position
from tidelog.client.core.positions import EpochEnd, Intact, PositionStatus, ValidationRule, Verdict, judge
from tidelog.client.core.reader import PartitionReader


def as_it_stands(reader: PartitionReader) -> Position:
    """What a consumer stores."""
    assert reader.position is not None
    return reader.position


@dataclass(frozen=True)
class ReaderRules:
    """What the clients go by; the defaults are production's.

    Attributes:
        says: what such rules come to.
        knows_topic_ids: whether metadata tells them to the consumer.
        is_idempotent: whether the producer counts its records.
    """

    says: str = ""
    validation: ValidationRule = judge
    reader: type[PartitionReader] = PartitionReader
    store: Callable[[PartitionReader], Position] = as_it_stands
    knows_topic_ids: bool = True
    is_idempotent: bool = True


def all_is_well(standing: PositionStatus, requested_epoch: LeaderEpoch, answer: EpochEnd) -> Verdict:
    """Before KIP-320: a new leader is believed to have all that the old one had."""
    return Intact()


def end_offset_alone(standing: PositionStatus, requested_epoch: LeaderEpoch, answer: EpochEnd) -> Verdict:
    """As in Apache Kafka's Java client: what does not end below the position is well, whatever epoch it is of."""
    if answer is not None and answer[1] >= standing.offset:
        return Intact()
    return judge(standing, requested_epoch, answer)


class ResettingInSilence(PartitionReader):
    """Before KIP-320: a position outside the log is one that the policy moves, and nobody need know."""

    def on_out_of_range(self, generation: int) -> None:
        if self._is_current(generation, self.phase):
            self._new_generation()
            self._go_to(self._first_place())


class KeepingPrefetched(PartitionReader):
    """Fetched records are delivered even after a change of the leader."""

    def _on_new_leader_epoch(self) -> None:
        held = list(self.held)
        super()._on_new_leader_epoch()
        self.held.extend(held)


def offset_alone(reader: PartitionReader) -> Position:
    """Before KIP-320: of a position, the offset is stored."""
    return as_it_stands(reader)._replace(leader_epoch=None)


def with_the_leaders_epoch(reader: PartitionReader) -> Position:
    """A stored position has the current leader's epoch, though no record of that epoch was read."""
    return as_it_stands(reader)._replace(leader_epoch=reader.leader_epoch)


OLD_READER_RULES = {
    "no-validation": ReaderRules(
        "A consumer assumes that a new leader has all records that it read (before KIP-320).", all_is_well
    ),
    "end-offset-alone": ReaderRules(
        "A position is valid if the answered end is not below it, whatever epoch the answer names (as in Java).",
        end_offset_alone,
    ),
    "resets-in-silence": ReaderRules(
        "A position outside the log is reset without an error (before KIP-320).", all_is_well, ResettingInSilence
    ),
    "keeps-prefetched": ReaderRules(
        "Fetched records are delivered even after a change of the leader.", reader=KeepingPrefetched
    ),
    "stores-offsets-alone": ReaderRules(
        "A stored position consists of the offset alone (before KIP-320).", store=offset_alone
    ),
    "stores-the-leaders-epoch": ReaderRules(
        "A stored position has the current leader's epoch, though no record of that epoch was read.",
        store=with_the_leaders_epoch,
    ),
    "names-alone": ReaderRules("A topic is identified by its name (before KIP-516).", knows_topic_ids=False),
    "no-sequences": ReaderRules("A producer does not count its records (before KIP-98).", is_idempotent=False),
}
"""By the name that a story replays it under."""
