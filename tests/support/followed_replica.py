"""A follower of a partition, by hand: its log, what it asks, and what it is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionEpoch, PartitionIndex, TopicPartition
from tidelog.metadata import PartitionImage
from tidelog.records.lineage import LeaderEpochLineage
from tidelog.replica import (
    AskEpochEnd,
    AskRecords,
    Fetched,
    FollowerReady,
    FollowerReplica,
    FollowerSettings,
    LogBounds,
    Truncation,
    TruncationRule,
    truncation_point,
)

PARTITION = TopicPartition("a", PartitionIndex(0))
LEADER, US = BrokerId(1), BrokerId(2)
EPOCH = LeaderEpoch(5)
BACKOFF_MS = 50


class Following:
    """A follower with its log: its lineage, and where it ends. The driver's part is done by hand."""

    def __init__(
        self,
        entries: Sequence[tuple[int, int]] = ((1, 0), (3, 6)),
        *,
        end: int = 10,
        start: int = 0,
        checkpoint: int = 4,
        in_isr: bool = True,
        leader: BrokerId | None = LEADER,
        rule: TruncationRule = truncation_point,
        unclean_epoch: int | None = None,
    ) -> None:
        self.lineage = LeaderEpochLineage((LeaderEpoch(epoch), Offset(offset)) for epoch, offset in entries)
        state = PartitionImage((LEADER, US), (LEADER, US) if in_isr else (LEADER,), leader, EPOCH, PartitionEpoch(9))
        if unclean_epoch is not None:
            state = replace(state, unclean_epoch=LeaderEpoch(unclean_epoch))
        self.machine = FollowerReplica(
            PARTITION,
            US,
            state,
            LogBounds(Offset(start), Offset(end), Offset(checkpoint)),
            self.lineage,
            settings=FollowerSettings(fetch_backoff_ms=BACKOFF_MS),
            truncation=rule,
        )

    def asks(self, epoch: int) -> int:
        request = self.machine.take_ready().request
        assert isinstance(request, AskEpochEnd)
        assert (request.leader, request.current_leader_epoch, request.leader_epoch) == (LEADER, EPOCH, epoch)
        return request.number

    def fetches(self) -> AskRecords:
        request = self.machine.take_ready().request
        assert isinstance(request, AskRecords)
        assert (request.leader, request.current_leader_epoch) == (LEADER, EPOCH)
        return request

    def told(self, number: int, epoch: int, end: int) -> None:
        self.machine.on_epoch_end(number, (LeaderEpoch(epoch), Offset(end)), 0)

    def cuts(self, *, to: int | None = None) -> Truncation:
        """Do what is owed, as a log would; `to`: where it ends then, if lower than asked."""
        ready = self.machine.take_ready()
        assert ready.truncation is not None
        assert ready.request is None, "nothing is sent before the disk has done it"
        assert self.machine.take_ready() == FollowerReady(None, None, None, (), None, self.machine.high_watermark, None)
        end = ready.truncation.end_offset if to is None else Offset(to)
        if ready.truncation.starts_anew:
            self.lineage.clear()
        self.lineage.truncate_from_end(end)
        self.machine.on_truncated(end)
        return ready.truncation

    def reconciled(self) -> FollowerReplica:
        """In step with a leader that has all its records."""
        self.told(self.asks(3), 3, 100)
        return self.machine

    def gets(self, request: AskRecords, answer: Fetched, *, epochs: Sequence[tuple[int, int]] = ()) -> FollowerReady:
        """The answer comes, and its records are appended, with the epochs that their batches tell."""
        self.machine.on_fetched(request.number, answer, 0)
        ready = self.machine.take_ready()
        if ready.append is None:
            return ready
        assert ready.append == request.number
        assert ready.request is None, "nothing is sent before the records are written"
        assert answer.end_offset is not None
        for epoch, offset in epochs:
            self.lineage.assign(LeaderEpoch(epoch), Offset(offset))
        self.machine.on_appended(answer.end_offset)
        return self.machine.take_ready()
