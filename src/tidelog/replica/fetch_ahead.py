"""When a follower may fetch on before it has written what came last.

```
 leader     ├──────────────────────────────┼────────────┤
            0                    told high watermark   log end
 follower   ├─────────────┼╌╌╌╌╌╌╌╌╌╌╌╌┤
              written        came, and     ▲ the next fetch may start here: below the high watermark it
                             is written      acknowledges nothing that is not committed already
```

The offset of a fetch acknowledges all below it. The leader counts that for two things: the high watermark, and whether
the follower may join the ISR. Below the high watermark it counts for neither. The high watermark never goes back within
a leader epoch, and a follower joins at the high watermark or above.

So a replica that is being filled asks for the next records while it writes the last ones. A replica in the ISR never
does: it has all that is committed, so what comes to it lies above the high watermark that came with it.

Kafka: followers fetch and write in turn. Its leaders apply the same two rules, so they may be asked ahead as well.
"""

from __future__ import annotations

from typing import Protocol

from tidelog.base.ids import Offset


class AheadRule(Protocol):
    """Whether a follower may fetch from `end_offset` on before all below it is written."""

    def __call__(self, end_offset: Offset, high_watermark: Offset | None) -> bool: ...


def is_committed_without(end_offset: Offset, high_watermark: Offset | None) -> bool:
    """The one rule in production: strictly below what the leader of this epoch has told is committed.

    At the high watermark itself the fetch would let the follower join the ISR.

    Args:
        end_offset: exclusive, of the records that came.
        high_watermark: that came with them; None where the leader told none.
    """
    return high_watermark is not None and end_offset < high_watermark
