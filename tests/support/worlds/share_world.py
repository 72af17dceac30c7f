"""One partition and a share group: the machine of its leader, logs as lists, and a coordinator that never fails."""

from __future__ import annotations

from support.fixtures.share_states import changed
from support.old_rules.share_rules import ShareRules
from support.worlds.reader_world import PartitionWorld
from tidelog.base.ids import CorrelationId, LeaderEpoch, Offset
from tidelog.share import (
    NO_LEADER_EPOCH,
    AcknowledgedRecords,
    AcknowledgeType,
    Bounds,
    LogBatch,
    SharePartition,
    ShareSettings,
    ShareState,
)
from tidelog.sim.checkers.views import Record, text_of

RECORDS_MAX = 1_000


class ShareWorld(PartitionWorld):
    """The partition, and what a group has done with it.

    Attributes:
        kept: by the share coordinator.
        machine: of the leader, once a member has asked it; None after an election.
        holders: which member has which offsets, as the members know.
        done: the records that were accepted or rejected, as was confirmed.
        broken: invariants, as they showed.
    """

    def __init__(self, brokers: list[str], *, begins_at_end: bool, rules: ShareRules) -> None:
        super().__init__(brokers)
        self.kept = ShareState(0)
        self.machine: SharePartition | None = None
        self.holders: dict[str, list[int]] = {}
        self.done: set[Record] = set()
        self.broken: list[str] = []
        self._begins_at_end = begins_at_end
        self._rules = rules
        self._begins: int | None = None

    def elect(self, broker: str) -> None:
        super().elect(broker)
        self.machine = None
        self.holders.clear()

    def serving(self) -> SharePartition:
        """The leader's machine."""
        if self.machine is None:
            self.machine = self._load()
            self._keep()
        return self.machine

    def _load(self) -> SharePartition:
        bounds = Bounds(Offset(0), self.led.end_offset)
        kept, is_new = self.kept, self.kept.start is None
        if is_new:
            start = bounds.log_end_offset if self._begins_at_end else Offset(0)
            kept = ShareState(0, start, NO_LEADER_EPOCH)
            self._begins = start if self._begins is None else self._begins
        state, forgotten = self._rules.load(kept, self.led.lineage, bounds)
        for first, last, leader_epoch, here in forgotten:
            now = "is not in the log" if here is None else f"is of epoch {here} now"
            self.events.append(
                f"what the group has done from {first} to {last} is forgotten: epoch {leader_epoch}, {now}"
            )
        return SharePartition(
            LeaderEpoch(self.leader_epoch),
            state,
            self.led.lineage,
            settings=ShareSettings(),
            is_kept=not forgotten and not (is_new and self._rules.keeps_first_start),
        )

    def _keep(self) -> None:
        """Keep what the machine wants kept."""
        assert self.machine is not None
        while (change := self.machine.take_ready().change) is not None:
            self.kept = changed(self.kept, change)
            self.machine.on_written(0)

    def acquire(self, member: str) -> None:
        machine, records = self.serving(), self.led.records
        offset = machine.next_offset()
        assert offset is not None
        batches = [LogBatch(at, at) for at in range(offset, len(records))]
        acquired = machine.on_acquire(member, offset, batches, records_max=RECORDS_MAX, is_strict=False, now_ms=0)
        self._keep()
        given = [at for first, last, _ in acquired for at in range(first, last + 1)]
        self.holders.setdefault(member, []).extend(given)
        self.events.append(f"{member} gets {' '.join(text_of(records[at]) for at in given) or 'nothing'}")
        for at in given:
            if records[at] in self.done:
                self.broken.append(f"WhatIsDoneStaysDone: {text_of(records[at])} offset={at} is delivered again")
        self._check()

    def acknowledge(self, member: str, offsets: list[int], type_: AcknowledgeType) -> None:
        """Raises KafkaError, as the member is told."""
        machine = self.serving()
        batches = [AcknowledgedRecords(at, at, [type_]) for at in offsets]
        machine.on_acknowledge(CorrelationId(1), member, batches, 0)
        self._keep()
        for at in offsets:
            self.holders[member].remove(at)
            if type_ != AcknowledgeType.RELEASE:
                self.done.add(self.led.records[at])

    def _check(self) -> None:
        """Who has asked for all that there is has it, or it is done."""
        assert self._begins is not None
        held = {at for offsets in self.holders.values() for at in offsets}
        for at, record in enumerate(self.led.records[self._begins :], start=self._begins):
            if at not in held and record not in self.done:
                self.broken.append(f"NoneIsForgotten: {text_of(record)} offset={at} is delivered to nobody")
