"""Which records of the log nobody needs any more: all that lie before the oldest of the latest snapshots.

```
 offset   0   1   2   3   4   5   6   7
          A   a   B   a   A   a   b   a        A, B: snapshots; a, b: updates
                  ▲
                  └── B's latest snapshot is the oldest, so offsets 0 and 1 may go
```

Kafka: `ShareCoordinatorOffsetsManager`.
"""

from __future__ import annotations

from collections import deque

from tidelog.base.ids import Offset
from tidelog.share.key import ShareKey


class SnapshotOffsets:
    """Where the latest snapshot of each state lies. What is not committed yet counts apart: it may be lost.

    Attributes:
        latest: by key, the oldest first, with those that are not committed yet.
    """

    def __init__(self) -> None:
        self.latest: dict[ShareKey, Offset] = {}
        self._committed: dict[ShareKey, Offset] = {}
        self._pending: deque[tuple[Offset, ShareKey, bool]] = deque()

    def on_written(self, key: ShareKey, offset: Offset, *, is_tombstone: bool) -> None:
        """A snapshot was written, behind all before, or the tombstone that ends a state."""
        _put(self.latest, key, offset, is_tombstone=is_tombstone)
        self._pending.append((offset, key, is_tombstone))

    def on_committed(self, end_offset: Offset) -> None:
        """All below `end_offset` (exclusive) is there to stay."""
        pending = self._pending
        while pending and pending[0][0] < end_offset:
            offset, key, is_tombstone = pending.popleft()
            _put(self._committed, key, offset, is_tombstone=is_tombstone)

    def redundant_before(self, end_offset: Offset) -> Offset:
        """What lies below this offset may go.

        Args:
            end_offset: below which all is committed: the answer where there is no state.
        """
        return next(iter(self._committed.values()), end_offset)


def _put(offsets: dict[ShareKey, Offset], key: ShareKey, offset: Offset, *, is_tombstone: bool) -> None:
    offsets.pop(key, None)  # the order of the dict is that of the offsets
    if not is_tombstone:
        offsets[key] = offset
