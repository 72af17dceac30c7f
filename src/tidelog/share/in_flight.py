"""The records of a share partition that are in flight: between the start, before which all is done, and the end, from
which on nothing was delivered.

They are held in runs of records that stand alike, not one by one: 500 records that were read together and acknowledged
together are one run. Runs lie one behind the other, without holes.

```
 start                                                      end
   │ acquired by A, 2nd time │ done │ acquired by B │ available │   not delivered yet
```

Kafka: `InFlightBatch`, `InFlightState`, `SharePartition.cachedState`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.records.lineage import LeaderEpochLineage
from tidelog.share.reconciliation import epochs_of
from tidelog.share.state import DeliveryState, StateBatch

AVAILABLE = DeliveryState.AVAILABLE
ACQUIRED = DeliveryState.ACQUIRED
ACKNOWLEDGED = DeliveryState.ACKNOWLEDGED
ARCHIVED = DeliveryState.ARCHIVED

JOIN_FROM_RUNS = 32
"""Fewer runs are left as they are: to look for those that could be one costs more than they do."""


class Run:
    """Consecutive records that stand alike.

    Attributes:
        first: the first of them.
        last: the last of them, inclusive.
        delivery_count: how often they were delivered.
        leader_epoch: of these records.
        member_id: who has acquired them; empty if nobody has.
        deadline_ms: when they are taken from the member, monotonic.
        outcome: what an acknowledgement makes of them once it is kept; None where none is under way. Only of records
            that are acquired.
        is_dirty: whether they stand otherwise than is kept.
    """

    __slots__ = (
        "deadline_ms",
        "delivery_count",
        "first",
        "is_dirty",
        "last",
        "leader_epoch",
        "member_id",
        "outcome",
        "state",
    )

    def __init__(
        self, first: int, last: int, state: DeliveryState, delivery_count: int, leader_epoch: LeaderEpoch
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.delivery_count = delivery_count
        self.leader_epoch = leader_epoch
        self.member_id = ""
        self.deadline_ms = 0
        self.outcome: DeliveryState | None = None
        self.is_dirty = False

    @property
    def is_done(self) -> bool:
        return self.state is ACKNOWLEDGED or self.state is ARCHIVED

    @property
    def is_available(self) -> bool:
        return self.state is AVAILABLE

    def split(self, first: int) -> Run:
        """Have this run end before an offset within it. Returns the rest, which stands likewise."""
        rest = Run(first, self.last, self.state, self.delivery_count, self.leader_epoch)
        rest.member_id, rest.deadline_ms = self.member_id, self.deadline_ms
        rest.outcome, rest.is_dirty = self.outcome, self.is_dirty
        self.last = first - 1
        return rest

    def is_like(self, other: Run) -> bool:
        """Whether the two could be one. Of what is done and kept, it is not told how."""
        if self.leader_epoch != other.leader_epoch or self.is_dirty or other.is_dirty:
            return False
        if self.outcome is not None or other.outcome is not None:
            return False
        if self.is_done:
            return other.is_done
        return (
            self.state is other.state
            and self.delivery_count == other.delivery_count
            and self.member_id == other.member_id
            and self.deadline_ms == other.deadline_ms
        )

    def __repr__(self) -> str:
        return f"Run({self.first}-{self.last} {self.state.name} x{self.delivery_count} @{self.leader_epoch})"


class InFlight:
    """See the module. Offsets go in and come out as they are; who may do what, `SharePartition` decides.

    Attributes:
        runs: by offset; from `start` to below `end` without holes.
        end: exclusive.
        open_count: how many of the records are not done.
    """

    __slots__ = ("_available_from", "_firsts", "_joined_runs", "_lineage", "end", "open_count", "runs", "start")

    def __init__(self, start: Offset, batches: Iterable[StateBatch], lineage: LeaderEpochLineage) -> None:
        self.start: int = start
        self.end: int = start
        self.runs: list[Run] = []
        self.open_count = 0
        self._firsts: list[int] = []
        self._lineage = lineage
        self._available_from: int = start  # no record below it is available
        self._joined_runs = 0
        for batch in batches:
            if batch.first > self.end:
                self.append(batch.first - 1, AVAILABLE, 0)
            self._push(Run(batch.first, batch.last, batch.state, batch.delivery_count, batch.leader_epoch))
        self.drop_done()

    def first_available(self) -> int:
        """The first record that can be acquired again; `end` if there is none."""
        offset = max(self._available_from, self.start)
        if offset < self.end:
            runs = self.runs
            for index in range(self.index_of(offset), len(runs)):
                run = runs[index]
                if run.state is AVAILABLE:
                    self._available_from = run.first
                    return run.first
        self._available_from = self.end
        return self.end

    def append(self, last: int, state: DeliveryState, delivery_count: int) -> list[Run]:
        """Put the records from `end` to `last` (inclusive) in flight. Returns their runs, one for each leader epoch."""
        epochs = epochs_of(self._lineage, Offset(self.end), Offset(last))
        runs = [Run(first, end, state, delivery_count, epoch) for first, end, epoch in epochs]
        for run in runs:
            self._push(run)
        return runs

    def _push(self, run: Run) -> None:
        self._firsts.append(run.first)
        self.runs.append(run)
        self.end = run.last + 1
        if not run.is_done:
            self.open_count += run.last - run.first + 1

    def index_of(self, offset: int) -> int:
        """The place of the run that holds an offset in flight."""
        return bisect_right(self._firsts, offset) - 1

    def split_at(self, index: int, offset: int) -> None:
        """Divide the run at a place so that `offset`, within it, begins one."""
        rest = self.runs[index].split(offset)
        self.runs.insert(index + 1, rest)
        self._firsts.insert(index + 1, offset)

    def cut(self, index: int, first: int, last: int) -> int:
        """Divide the run at a place so that what it holds of [first, last] is a run. Returns the place of that."""
        run = self.runs[index]
        if run.first < first:
            self.split_at(index, first)
            index += 1
            run = self.runs[index]
        if run.last > last:
            self.split_at(index, last + 1)
        return index

    def divided(self, parts: Iterable[tuple[int, int, int]]) -> list[tuple[Run, int]]:
        """Divide runs so that each of some parts is made of whole runs.

        Args:
            parts: (first, last, type), by offset, all of it in flight. However many they are, runs are moved once.

        Returns:
            The runs of all parts, with the types of these.
        """
        runs, found, moved = self.runs, [], []
        begin = index = -1
        run: Run | None = None
        for first, last, type_ in parts:
            if run is None:
                begin = index = self.index_of(first)
                run = runs[index]
            while run.last < first:
                moved.append(run)
                index += 1
                run = runs[index]
            while True:
                if run.first < first:
                    rest = run.split(first)
                    moved.append(run)
                    run = rest
                found.append((run, type_))
                if run.last > last:
                    rest = run.split(last + 1)
                    moved.append(run)
                    run = rest
                    break
                if run.last == last:
                    break
                moved.append(run)
                index += 1
                run = runs[index]
        if run is not None:
            moved.append(run)
            runs[begin : index + 1] = moved
            self._firsts[begin : index + 1] = [one.first for one in moved]
        return found

    def join_last(self, count: int) -> None:
        """Make one of the first of the last `count` runs and the one before it."""
        self.runs[-count - 1].last = self.runs[-count].last
        del self.runs[-count], self._firsts[-count]

    def set_state(self, run: Run, state: DeliveryState) -> None:
        """Change how a run stands that is not done; it is nobody's any more."""
        run.state = state
        run.member_id = ""
        if run.is_done:
            self.open_count -= run.last - run.first + 1
        if state is AVAILABLE:
            self._available_from = min(self._available_from, run.first)

    def drop_done(self) -> None:
        """Move the start past what is done."""
        count = 0
        for run in self.runs:
            if not run.is_done:
                break
            count += 1
        if count:
            self._drop(count)

    def drop_before(self, offset: int) -> None:
        """Move the start to an offset, whatever lies before it."""
        if offset <= self.start:
            return
        if offset >= self.end:
            self.end = offset
            self._drop(len(self.runs))
            return
        self._drop(self.index_of(offset))
        run = self.runs[0]
        if not run.is_done:
            self.open_count -= offset - run.first
        run.first = self._firsts[0] = self.start = offset  # an acknowledgement that is under way knows the run

    def _drop(self, count: int) -> None:
        for run in self.runs[:count]:
            if not run.is_done:
                self.open_count -= run.last - run.first + 1
        del self.runs[:count], self._firsts[:count]
        self._joined_runs = min(self._joined_runs, len(self.runs))
        self.start = self.runs[0].first if self.runs else self.end

    def join(self) -> None:
        """Make one of neighbours that stand alike, once there are twice as many runs as there were after the last time.

        So to join them costs a few steps for each that was made since.
        """
        if len(self.runs) < max(JOIN_FROM_RUNS, 2 * self._joined_runs):
            return
        joined: list[Run] = []
        for run in self.runs:
            if joined and joined[-1].is_like(run):
                joined[-1].last = run.last
            else:
                joined.append(run)
        self.runs = joined
        self._firsts = [run.first for run in joined]
        self._joined_runs = len(joined)
