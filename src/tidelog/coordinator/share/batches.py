"""Combining what was kept of a partition with what is new: the newer wins, offset by offset.

```
 kept    ├──── acknowledged @3 ────┤├── released @3 ──┤
 new               ├── acknowledged @4 ──┤
         ├───── @3 ┤├────── @4 ─────────┤├─ released ─┤
```

Equal neighbours become one, unless their records are of different leader epochs: an offset may be used again after a
truncation, and what was acknowledged there before says nothing of the record that lies there now.

Kafka: `PersisterStateBatchCombiner`. There the batch of more deliveries wins, or of the higher state, for the leader
epoch of the record is not known.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import replace
from operator import attrgetter

from tidelog.base.ids import Offset
from tidelog.share.state import StateBatch

FIRST = attrgetter("first")
LAST = attrgetter("last")


def combine(kept: list[StateBatch], newer: Iterable[StateBatch], start: Offset | None) -> None:
    """Change `kept`, which is in order and without overlap, to what holds by now.

    Args:
        newer: each wins over all before it.
        start: what lies before is done, and goes; None if that is not known.
    """
    for batch in newer:
        _lay_over(kept, batch)
    if start is not None:
        _cut_before(kept, start)


def _lay_over(kept: list[StateBatch], batch: StateBatch) -> None:
    low = bisect_left(kept, batch.first - 1, key=LAST)  # a neighbour may become one with it
    high = bisect_right(kept, batch.last + 1, low, key=FIRST)
    if low == high:
        kept.insert(low, batch)
        return
    before, after = kept[low], kept[high - 1]
    first, last = batch.first, batch.last
    left: list[StateBatch] = []
    right: list[StateBatch] = []
    if before.first < first:
        if _are_alike(before, batch):
            first = before.first
        else:
            left.append(replace(before, last=Offset(first - 1)))
    if after.last > last:
        if _are_alike(after, batch):
            last = after.last
        else:
            right.append(replace(after, first=Offset(last + 1)))
    if (first, last) != (batch.first, batch.last):
        batch = replace(batch, first=first, last=last)
    kept[low:high] = [*left, batch, *right]


def _cut_before(kept: list[StateBatch], start: Offset) -> None:
    del kept[: bisect_left(kept, start, key=LAST)]
    if kept and kept[0].first < start:
        kept[0] = replace(kept[0], first=start)


def _are_alike(one: StateBatch, other: StateBatch) -> bool:
    return (
        one.state is other.state
        and one.delivery_count == other.delivery_count
        and one.leader_epoch == other.leader_epoch
    )
