"""What opening a log found, and what it did about it: facts for the node to log and for people to read."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.base.ids import Offset


@dataclass(frozen=True, slots=True)
class TailTruncation:
    """Bytes that were truncated off the end of the log.

    Attributes:
        path: the segment.
        position: the first byte that is gone; what lies below it is whole and checked.
        size_bytes: how many went, those of all later segments included.
        end_offset: the log end offset since.
        reason: what was wrong at `position`.
        kept_as: the files that hold what was cut, if it was more than a torn last write. They may be removed.
    """

    path: str
    position: int
    size_bytes: int
    end_offset: Offset
    reason: str
    kept_as: tuple[str, ...] = ()

    def __str__(self) -> str:
        kept = f"; kept in {', '.join(self.kept_as)}" if self.kept_as else ""
        return (
            f"{self.path}: cut off {self.size_bytes} bytes from position {self.position} on, "
            f"the log now ends at offset {self.end_offset}: {self.reason}{kept}"
        )


@dataclass(slots=True)
class RecoveryReport:
    """All empty but for `was_clean` and the counts if there was nothing to say."""

    was_clean: bool
    scanned_segment_count: int = 0
    scanned_size_bytes: int = 0
    """Batches whose CRC was checked."""
    replayed_batch_count: int = 0
    """Batches looked at to know the producers."""
    truncation: TailTruncation | None = None
    damages: list[str] = field(default_factory=list)
    """What is wrong with segments that were synced long ago: nothing was cut, reads that come there fail."""
    rebuilt_indexes: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    """Files of something unfinished: removed, or what they stood for completed."""
    lineage_rebuilt: str | None = None
    """Why the lineage of leader epochs had to be derived from the batches."""
    lineage_dropped_count: int = 0
    """Leader epochs that started beyond the log end."""
    unusable_snapshots: list[str] = field(default_factory=list)
    mark_fault: str | None = None
    """Why it cannot be told up to where the log was compacted: gaps were taken for what compaction left."""

    @property
    def is_worth_a_warning(self) -> bool:
        """Whether anything was lost, or may have been."""
        return self.truncation is not None or bool(self.damages) or self.lineage_rebuilt is not None

    def lines(self) -> list[str]:
        """Each finding as a sentence; the worst first. None for a log that was found as it should be."""
        lines = list(self.damages)
        if self.truncation is not None:
            lines.append(str(self.truncation))
        if self.lineage_rebuilt is not None:
            lines.append(f"leader epochs derived from the batches: {self.lineage_rebuilt}")
        if self.lineage_dropped_count:
            lines.append(f"{self.lineage_dropped_count} leader epochs started beyond the log end: dropped")
        lines += [f"index built anew: {why}" for why in self.rebuilt_indexes]
        lines += [f"producer snapshot removed: {why}" for why in self.unusable_snapshots]
        if self.mark_fault is not None:
            lines.append(f"whether offsets are missing by compaction or by loss cannot be told: {self.mark_fault}")
        if self.leftovers:
            lines.append(f"unfinished files dealt with: {', '.join(self.leftovers)}")
        return lines
