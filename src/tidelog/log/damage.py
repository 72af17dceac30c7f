"""A stretch of a segment whose bytes are not those that were written: it is refused to whoever reads there.

What lies before and behind it is served. The records that it held are known by their offsets alone, from the batches
around it, until they are fetched from another replica (`SegmentRepair`).

Kafka: none.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.base.errors import CorruptLogError
from tidelog.base.ids import Offset


class Damage(NamedTuple):
    """See the module. Ends are exclusive.

    Attributes:
        position: where it starts in the segment's file.
        end_position: where a batch starts that can be believed, or the segment ends.
        start_offset: what the batch at `position` had to start with.
        end_offset: the base offset of the batch at `end_position`, or where the segment ends.
        reason: what was found there.
        is_located: whether somebody looked where it ends; if not, it is all up to the segment's end.
        is_lost: whether every replica was asked, and none has the records.
        is_unreadable: whether the disk refused to read a part of it, which it may do for a while only.
    """

    position: int
    end_position: int
    start_offset: Offset
    end_offset: Offset
    reason: str
    is_located: bool = False
    is_lost: bool = False
    is_unreadable: bool = False

    @property
    def size_bytes(self) -> int:
        return self.end_position - self.position


class DamagedRecordsError(CorruptLogError):
    """The records asked for lie in a known damage.

    Attributes:
        is_located, is_lost: see `Damage`.
    """

    def __init__(self, path: str, damage: Damage) -> None:
        super().__init__(
            f"{path}: the records from offset {damage.start_offset} to {damage.end_offset - 1} are damaged: "
            f"{damage.reason}"
        )
        self.is_located = damage.is_located
        self.is_lost = damage.is_lost
