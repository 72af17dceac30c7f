"""LossesAreAccounted: the account of losses names what is gone, names nothing else, and awaits nobody for good.

What must hold once all is healed, for each partition; `there` is the log of its leader:

- Every leader epoch that may lack what was committed before has its entry, as soon as the epoch itself is committed.
- A record that was ever committed and is not there, above the log's start, was written in an older epoch than that of
  some entry. If a replica cut it off, a row of that replica names it: its offset is in the range, its epoch in those of
  the row. Three things excuse a replica from that: its disk or directory went, and what it had noted with it; its log
  was deleted because it was moved elsewhere; or it had lost the record by itself, as by a loss of power, and cut off
  nothing.
- A row names offsets and a range of epochs, which may also cover another record that is there: a replica may have cut
  off epochs 3 and 7 where the log has epoch 5 now, after two unclean elections. So each offset of a row has to name one
  record that this replica once had, of those epochs, and that is not there.
- The one record that may be named and be there is one that a later entry brought back: its replica cut it off, and a
  later unclean election made somebody the leader who still had it.
- No entry awaits anybody: all replicas are back and in sync.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from tidelog.base.ids import BrokerId, LeaderEpoch
from tidelog.base.losses import Loss, LossId, ReplicaFate, ReplicaLoss
from tidelog.metadata.image import MetadataImage
from tidelog.sim.checkers.history import PartitionHistory
from tidelog.sim.checkers.views import Broken, PartitionView, Record, ReplicaView, text_of

NAME = "LossesAreAccounted"


class SeenRecords:
    """What each replica of a partition once had, and what became of it, as its disk showed.

    A record is known by its offset and its leader epoch: no other one has both.
    """

    def __init__(self) -> None:
        self._had: dict[BrokerId, dict[int, dict[LeaderEpoch, Record]]] = {}
        self._gone: dict[BrokerId, set[tuple[int, LeaderEpoch]]] = {}
        self._cut: dict[BrokerId, set[tuple[int, LeaderEpoch]]] = {}

    def on_read(
        self, broker: BrokerId, begin: int, before: Sequence[Record], now: Sequence[Record], *, is_cut: bool
    ) -> None:
        """A log has other records from an offset on.

        Args:
            before: those that were there.
            now: those that are.
            is_cut: whether its process removed the former while it served the log.
        """
        had = self._had.setdefault(broker, {})
        for records in (before, now):
            for offset, record in enumerate(records, begin):
                had.setdefault(offset, {})[record[0]] = record
        gone = {(offset, record[0]) for offset, record in enumerate(before, begin)}
        self._gone.setdefault(broker, set()).update(gone)
        if is_cut:
            self._cut.setdefault(broker, set()).update(gone)

    def on_notes_lost(self, broker: BrokerId) -> None:
        """The directory of its log went: nothing of what it noted is asked for any more."""
        self._cut.pop(broker, None)

    def who_cut(self, offset: int, record: Record) -> list[BrokerId]:
        """Replicas that cut it off, and can tell."""
        return sorted(broker for broker, cut in self._cut.items() if (offset, record[0]) in cut)

    def who_lost(self, offset: int) -> Iterator[tuple[BrokerId, Record]]:
        """Replicas that had a record there and lost it by themselves, as by a loss of power; and the record."""
        for broker, gone in self._gone.items():
            for epoch, record in self._had[broker].get(offset, {}).items():
                if (offset, epoch) in gone and (offset, epoch) not in self._cut.get(broker, ()):
                    yield broker, record

    def had(self, broker: BrokerId, offset: int, row: ReplicaLoss) -> list[LeaderEpoch]:
        """The epochs of a row, in which a replica once had a record at an offset."""
        epochs = self._had.get(broker, {}).get(offset, ())
        return sorted(epoch for epoch in epochs if _covers(row, offset, epoch))

    def has_lost(self, broker: BrokerId, offset: int, epoch: LeaderEpoch) -> bool:
        """Whether a record was removed there, one way or another, if only for a while."""
        return (offset, epoch) in self._gone.get(broker, ())


class LossesAreAccounted:
    """See the module.

    Args:
        seen: of the one partition.
    """

    name = NAME

    def __init__(self, seen: SeenRecords) -> None:
        self._seen = seen

    def check(self, view: PartitionView, history: PartitionHistory, losses: Collection[Loss]) -> Iterator[Broken]:
        """All is healed: every replica has what the leader has.

        Args:
            losses: entries of this partition.
        """
        leader = None if view.state.leader is None else view.replicas.get(view.state.leader)
        if leader is None:
            return
        for offset, record in history.ever_committed():
            if offset >= max(leader.log_start_offset, leader.starts_at) and leader.at(offset) != record:
                yield from self._check_gone(offset, record, losses)
        for loss in losses:
            for row in loss.cut:
                yield from self._check_named(leader, loss, row, losses)

    def _check_gone(self, offset: int, record: Record, losses: Collection[Loss]) -> Iterator[Broken]:
        what = f"{text_of(record)} offset={offset} was committed, and is gone"
        if all(loss.leader_epoch <= record[0] for loss in losses):
            yield Broken(self.name, f"{what}: no entry is of a later epoch")
        for broker in self._seen.who_cut(offset, record):
            rows = (loss.replica(broker) for loss in losses)
            if not any(row is not None and _covers(row, offset, record[0]) for row in rows):
                yield Broken(self.name, f"{what}: broker {broker} cut it off, and no entry says so")

    def _check_named(
        self, leader: ReplicaView, loss: Loss, row: ReplicaLoss, losses: Collection[Loss]
    ) -> Iterator[Broken]:
        assert row.cut_from is not None
        assert row.end_offset is not None
        who = f"{loss.name} names offset"
        for offset in range(row.cut_from, row.end_offset):
            epochs = self._seen.had(row.broker_id, offset, row)
            if not epochs:
                yield Broken(self.name, f"{who}={offset}, where broker {row.broker_id} had no record of those epochs")
                return
            there = leader.at(offset)
            if there is None or any(epoch != there[0] for epoch in epochs):
                continue
            if all(other.leader_epoch <= loss.leader_epoch for other in losses):
                yield Broken(self.name, f"{who}={offset} of broker {row.broker_id}, where {text_of(there)} is")
                return
            if not self._seen.has_lost(row.broker_id, offset, there[0]):
                yield Broken(self.name, f"{who}={offset} of broker {row.broker_id}, which has kept {text_of(there)}")
                return


def _covers(row: ReplicaLoss, offset: int, epoch: LeaderEpoch) -> bool:
    if row.fate is not ReplicaFate.CUT or row.cut_from is None or row.end_offset is None:
        return False
    is_late_enough = row.first_epoch is None or row.first_epoch <= epoch
    is_early_enough = row.last_epoch is None or epoch <= row.last_epoch
    return row.cut_from <= offset < row.end_offset and is_late_enough and is_early_enough


def without_entry(image: MetadataImage, unclean: Iterable[LossId]) -> Iterator[Broken]:
    """Epochs whose leader may lack what was committed, that the account does not know of.

    Args:
        image: as it was when the last of them was committed.
    """
    for loss_id in unclean:
        if loss_id not in image.losses:
            topic = image.topics_by_id.get(loss_id.topic_id)
            name = loss_id.topic_id if topic is None else topic.name
            what = f"epoch {loss_id.leader_epoch} of {name}-{loss_id.partition} may lack what was committed"
            yield Broken(NAME, f"{what}, and no entry was opened with it")


def awaited(image: MetadataImage) -> Iterator[str]:
    """Entries that await somebody, in words."""
    for loss in image.losses.values():
        if loss.is_open:
            yield f"{loss.name} awaits {list(loss.awaited)}"
