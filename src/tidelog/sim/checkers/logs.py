"""EpochOffsetUnique, LogsArePrefixes, LineageTellsTheLog: what leader epochs say about a log is true."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.records.lineage import EpochEntry
from tidelog.sim.checkers.growth import Changes
from tidelog.sim.checkers.history import PartitionHistory
from tidelog.sim.checkers.views import Broken, PartitionView, Record, ReplicaView, text_of


class EpochOffsetUnique:
    """No pair of leader epoch and offset is ever written twice: not by two leaders, nor by one that comes back.

    What an unclean election or a loss of power removes does not change that.
    """

    name = "EpochOffsetUnique"

    def __init__(self) -> None:
        self._written: dict[tuple[LeaderEpoch, int], Hashable] = {}

    def written(self, leader_epoch: LeaderEpoch, offset: int) -> Hashable | None:
        """What a leader epoch wrote at an offset; None where no log has shown it."""
        return self._written.get((leader_epoch, offset))

    def check(self, view: PartitionView, history: PartitionHistory, changes: Changes) -> Iterator[Broken]:
        leaders: dict[LeaderEpoch | None, str] = {}
        for replica in view.replicas.values():
            if replica.leads:
                other = leaders.setdefault(replica.leader_epoch, replica.called)
                if other != replica.called:
                    yield Broken(self.name, f"{other} and {replica.called} both lead epoch {replica.leader_epoch}")
        for broker, begin in changes.items():
            replica = view.replicas[broker]
            for offset in range(begin, replica.log_end_offset):
                leader_epoch, value = replica.records[offset - replica.log_start_offset]
                first = self._written.setdefault((leader_epoch, offset), value)
                if first != value:
                    what = f"{replica.called} has {value}@{leader_epoch} at offset={offset}"
                    yield Broken(self.name, f"{what}, where {first}@{leader_epoch} was written")
                    break


class LogsArePrefixes:
    """Equal epoch at equal offset: equal history.

    That is so if, wherever a record is, the one before it is the same: it is compared with the first log that had it,
    which may have been truncated since.
    """

    name = "LogsArePrefixes"

    def __init__(self) -> None:
        self._before: dict[tuple[LeaderEpoch, int], tuple[Record, str]] = {}

    def before(self, leader_epoch: LeaderEpoch, offset: int) -> Record | None:
        """The record that lies before another in every log; None where no log has shown it."""
        known = self._before.get((leader_epoch, offset))
        return None if known is None else known[0]

    def check(self, view: PartitionView, history: PartitionHistory, changes: Changes) -> Iterator[Broken]:
        for broker, begin in changes.items():
            replica = view.replicas[broker]
            for offset in range(max(begin, replica.log_start_offset + 1), replica.log_end_offset):
                index = offset - replica.log_start_offset
                before, record = replica.records[index - 1], replica.records[index]
                known, who = self._before.setdefault((record[0], offset), (before, replica.called))
                if known != before:
                    both = f"{replica.called} has {text_of(before)}, {who} {text_of(known)}"
                    yield Broken(self.name, f"at offset={offset - 1} {both}, both before {text_of(record)}")
                    break


class LineageTellsTheLog:
    """Each replica that is up knows the leader epochs of its records, and where each of them begins."""

    name = "LineageTellsTheLog"

    def __init__(self) -> None:
        self._runs: dict[BrokerId, list[EpochEntry]] = {}
        self._told: dict[BrokerId, tuple[Sequence[EpochEntry], Offset]] = {}  # and was found to be right

    def check(self, view: PartitionView, history: PartitionHistory, changes: Changes) -> Iterator[Broken]:
        for broker, replica in view.replicas.items():
            if not replica.is_up:
                continue
            told = (replica.lineage, max(replica.log_start_offset, replica.starts_at))
            if broker in changes:
                self._note(replica, changes[broker])
            elif self._told.get(broker) == told:
                continue
            self._told[broker] = told
            runs = _within(self._runs.get(broker, []), replica)
            entries = _within(replica.lineage, replica)
            if runs != entries:
                del self._told[broker]
                known = [tuple(entry) for entry in entries]
                yield Broken(self.name, f"{replica.called} does not know the epochs of its records: {known}")

    def _note(self, replica: ReplicaView, begin: int) -> None:
        runs = self._runs.setdefault(replica.broker_id, [])
        while runs and runs[-1].start_offset >= begin:
            runs.pop()
        for offset in range(begin, replica.log_end_offset):
            leader_epoch = replica.records[offset - replica.log_start_offset][0]
            if not runs or runs[-1].leader_epoch != leader_epoch:
                runs.append(EpochEntry(leader_epoch, Offset(offset)))


def _within(entries: Sequence[EpochEntry], replica: ReplicaView) -> list[EpochEntry]:
    """Those of which the log has records; the one that covers its start begins there."""
    start, end = max(replica.log_start_offset, replica.starts_at), replica.log_end_offset
    if start >= end:
        return []
    within = [entry for entry in entries if entry.start_offset < end]
    while len(within) > 1 and within[1].start_offset <= start:
        del within[0]
    if within and within[0].start_offset < start:
        within[0] = EpochEntry(within[0].leader_epoch, start)
    return within
