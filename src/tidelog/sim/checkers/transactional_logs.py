"""LastStableOffsetIsStable, NothingStaysOpen: what a log itself says of its transactions, beside what its leader does.

Which transactions are open is found from batches and markers on the disk alone, by other code than the log's own:

    offset            0  1  2  3   4  5
    batch             a  a  b  A   b  c       A: the marker of a
    high watermark                    |       5
    undecided below        b..                from 2 on: the last stable offset is 2 at most
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tidelog.base.ids import BrokerId, Offset, ProducerId
from tidelog.sim.checkers.views import Broken


class TransactionalBatch(NamedTuple):
    """A batch of records in a transaction, or the marker that ends one.

    Attributes:
        next_offset: behind its last record.
        commits: what a marker says; None for records.
    """

    base_offset: Offset
    next_offset: Offset
    producer_id: ProducerId
    commits: bool | None = None


class Decided(NamedTuple):
    """A batch of records, and what became of its transaction.

    Attributes:
        commits: None while it is open.
    """

    batch: TransactionalBatch
    commits: bool | None


def decided(batches: Iterable[TransactionalBatch]) -> Iterator[Decided]:
    """All batches of records of a log, in no particular order, with what became of them."""
    open_ones: dict[ProducerId, list[TransactionalBatch]] = {}
    for batch in batches:
        if batch.commits is None:
            open_ones.setdefault(batch.producer_id, []).append(batch)
        else:
            for records in open_ones.pop(batch.producer_id, ()):
                yield Decided(records, batch.commits)
    for left in open_ones.values():
        for records in left:
            yield Decided(records, None)


def first_undecided(batches: Iterable[TransactionalBatch]) -> Offset | None:
    """Where the first transaction of a log begins that no marker has decided; None if there is none."""
    return min((batch.base_offset for batch, commits in decided(batches) if commits is None), default=None)


class TransactionalView(NamedTuple):
    """A leader's log.

    Attributes:
        batches: of transactions, in order; those of an earlier look come first, unless `reading` is another.
        reading: counts how often the log was read from its start.
        last_stable_offset: as the leader says it.
    """

    broker_id: BrokerId
    batches: Sequence[TransactionalBatch]
    reading: int
    high_watermark: Offset
    last_stable_offset: Offset


class _Seen:
    """How far a leader's log was looked at, and what is open there."""

    __slots__ = ("high_watermark", "open", "position", "reading")

    def __init__(self, reading: int) -> None:
        self.reading = reading
        self.position = 0
        self.high_watermark = Offset(0)
        self.open: dict[ProducerId, Offset] = {}


class LastStableOffsetIsStable:
    """The last stable offset passes no transaction that begins below the high watermark, and is not decided below it.

    And it keeps away from no other: where none is open, it is the high watermark, unless a marker is not replicated.
    """

    name = "LastStableOffsetIsStable"

    def __init__(self) -> None:
        self._seen: dict[BrokerId, _Seen] = {}

    def check(self, view: TransactionalView) -> Iterator[Broken]:
        """One leader, after a step."""
        first = self.first_open(view)
        if view.last_stable_offset > view.high_watermark:
            what = f"broker {view.broker_id} has last stable offset {view.last_stable_offset}"
            yield Broken(self.name, f"{what} above high watermark {view.high_watermark}")
        elif first is not None and view.last_stable_offset > first:
            what = f"broker {view.broker_id} has last stable offset {view.last_stable_offset}"
            yield Broken(self.name, f"{what}, and a transaction is open from offset={first} on")

    def first_open(self, view: TransactionalView) -> Offset | None:
        """Where the first transaction begins that is not decided below the high watermark; None if there is none."""
        seen = self._seen.get(view.broker_id)
        if seen is None or seen.reading != view.reading or view.high_watermark < seen.high_watermark:
            seen = self._seen[view.broker_id] = _Seen(view.reading)
        seen.high_watermark = view.high_watermark
        while seen.position < len(view.batches):
            batch = view.batches[seen.position]
            if batch.next_offset > view.high_watermark:
                break
            if batch.commits is None:
                seen.open.setdefault(batch.producer_id, batch.base_offset)
            else:
                seen.open.pop(batch.producer_id, None)
            seen.position += 1
        return min(seen.open.values(), default=None)
