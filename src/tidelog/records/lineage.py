"""The lineage of leader epochs: which leader wrote which offsets (KIP-101).

One class answers "where does epoch E end?" for data partitions, the metadata quorum and consumers alike. Each
entry says where an epoch starts; it ends where the next one starts, and the latest at the log end:

    entries      (1, 0)          (3, 6)      (4, 9)
    offsets      0 1 2 3 4 5     6 7 8       9 10 |log end = 11
    ends for     1 -> (1, 6)     2 -> (1, 6) 3 -> (3, 9)   4 -> (4, 11)   5 -> None   0 -> (0, 0)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from tidelog.base.errors import CorruptLogError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.base.invariant import invariant

CHECKPOINT_VERSION = 0
"""Of the text format, which Kafka's own tools read too."""


class EpochEntry(NamedTuple):
    """The first offset that was, or will be, written in a leader epoch."""

    leader_epoch: LeaderEpoch
    start_offset: Offset


class LeaderEpochLineage:
    """The leader epochs of one log, oldest first; both epochs and start offsets strictly increase.

    It is state, not a file: whoever owns it persists `to_text()` after each change, and a leader does so before it
    serves (rule 1). It is trimmed at the start by the log start alone, never by what compaction left (rule 11).
    """

    __slots__ = ("_leader_epochs", "_start_offsets")

    def __init__(self, entries: Iterable[tuple[LeaderEpoch, Offset]] = ()) -> None:
        """Take entries in any order that `assign` would take them in; contradictions are resolved as it does."""
        self._leader_epochs: list[LeaderEpoch] = []
        self._start_offsets: list[Offset] = []
        for leader_epoch, start_offset in entries:
            self.assign(leader_epoch, start_offset)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(map(EpochEntry, self._leader_epochs, self._start_offsets))

    @property
    def latest_leader_epoch(self) -> LeaderEpoch | None:
        return self._leader_epochs[-1] if self._leader_epochs else None

    def assign(self, leader_epoch: LeaderEpoch, start_offset: Offset) -> bool:
        """Note that `leader_epoch` starts at `start_offset`; what contradicts this, being later, is dropped.

        An entry contradicts if it starts at or above `start_offset`, or is of the same epoch or a newer one: so an
        epoch in which nothing was written leaves no trace. The latest epoch is not moved up by assigning it again.

        Returns:
            Whether anything changed, that is, whether there is something to persist.
        """
        invariant(leader_epoch >= 0 and start_offset >= 0, "leader epoch {} at offset {}", leader_epoch, start_offset)
        if self._leader_epochs and leader_epoch == self._leader_epochs[-1] and start_offset >= self._start_offsets[-1]:
            return False
        keep = min(bisect_left(self._leader_epochs, leader_epoch), bisect_left(self._start_offsets, start_offset))
        del self._leader_epochs[keep:], self._start_offsets[keep:]
        self._leader_epochs.append(leader_epoch)
        self._start_offsets.append(start_offset)
        return True

    def end_offset_for(self, leader_epoch: LeaderEpoch, log_end_offset: Offset) -> tuple[LeaderEpoch, Offset] | None:
        """Where the records of `leader_epoch` and before it end: OffsetForLeaderEpoch's answer (KIP-101, KIP-279).

        Args:
            leader_epoch: the epoch asked for.
            log_end_offset: where the latest epoch ends, exclusive.

        Returns:
            The largest known epoch that is not newer than the asked one, and its end offset (exclusive). Asked for
            an epoch older than the first known: that epoch itself and the start of the first known. None, which the
            wire spells (-1, -1) and which never is a reason to truncate, for an epoch newer than the latest.
        """
        after = bisect_right(self._leader_epochs, leader_epoch)
        if after == len(self._leader_epochs):
            if self._leader_epochs and self._leader_epochs[-1] == leader_epoch:
                return leader_epoch, log_end_offset
            return None
        known = self._leader_epochs[after - 1] if after else leader_epoch
        return known, self._start_offsets[after]

    def epoch_at(self, offset: Offset) -> LeaderEpoch | None:
        """The epoch that wrote `offset`, taken to lie below the log end; None below the first entry."""
        after = bisect_right(self._start_offsets, offset)
        return self._leader_epochs[after - 1] if after else None

    def truncate_from_end(self, end_offset: Offset) -> bool:
        """Forget the epochs that start at or above `end_offset`, the new log end or one beyond it. Returns: changed."""
        keep = bisect_left(self._start_offsets, end_offset)
        changed = keep < len(self._start_offsets)
        del self._leader_epochs[keep:], self._start_offsets[keep:]
        return changed

    def truncate_from_start(self, log_start_offset: Offset) -> bool:
        """Forget the epochs that ended at or below `log_start_offset`; the one that covers it now starts there.

        The latest epoch is kept in any case, so a log that retention emptied still knows its epoch. Returns: changed.
        """
        covering = bisect_right(self._start_offsets, log_start_offset) - 1
        if covering < 0 or (covering == 0 and self._start_offsets[0] == log_start_offset):
            return False
        del self._leader_epochs[:covering], self._start_offsets[:covering]
        self._start_offsets[0] = log_start_offset
        return True

    def clear(self) -> bool:
        """Forget all: the log starts anew elsewhere. Returns: changed."""
        changed = bool(self._leader_epochs)
        self._leader_epochs.clear()
        self._start_offsets.clear()
        return changed

    def clone(self) -> LeaderEpochLineage:
        """An independent copy."""
        copy = LeaderEpochLineage()
        copy._leader_epochs = self._leader_epochs.copy()
        copy._start_offsets = self._start_offsets.copy()
        return copy

    def to_text(self) -> str:
        """The leader-epoch-checkpoint file: version, number of entries, then `epoch start_offset` lines."""
        lines = [str(CHECKPOINT_VERSION), str(len(self._leader_epochs))]
        lines += [f"{epoch} {start}" for epoch, start in zip(self._leader_epochs, self._start_offsets, strict=True)]
        return "\n".join(lines) + "\n"

    @staticmethod
    def from_text(text: str, *, path: str = "leader-epoch-checkpoint") -> LeaderEpochLineage:
        """The inverse of `to_text`.

        Args:
            text: the whole file.
            path: named in errors.

        Raises:
            CorruptLogError: names the line that was never written so, a missing one included.
        """

        def corrupt(number: int, why: str) -> CorruptLogError:
            return CorruptLogError(f"{path}: line {number}: {why}")

        lines = text.splitlines()
        if not lines or lines[0] != str(CHECKPOINT_VERSION):
            raise corrupt(1, f"version {CHECKPOINT_VERSION} is expected, not {lines[0] if lines else 'nothing'!r}")
        if len(lines) < 2 or not _is_number(lines[1]):
            raise corrupt(2, "the number of entries is expected")
        if len(lines) - 2 != int(lines[1]):
            raise corrupt(2, f"{lines[1]} entries are announced, {len(lines) - 2} follow")
        lineage = LeaderEpochLineage()
        for number, line in enumerate(lines[2:], start=3):
            epoch, _, start = line.partition(" ")
            if not _is_number(epoch) or not _is_number(start):
                raise corrupt(number, f"a leader epoch and its start offset are expected, not {line!r}")
            lineage.assign(LeaderEpoch(int(epoch)), Offset(int(start)))
            if len(lineage._leader_epochs) != number - 2:
                raise corrupt(number, f"{line!r} does not lie after the entry above it")
        return lineage

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LeaderEpochLineage) and self.entries == other.entries

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __len__(self) -> int:
        return len(self._leader_epochs)

    def __repr__(self) -> str:
        return "LeaderEpochLineage(" + " ".join(f"{e.leader_epoch}@{e.start_offset}" for e in self.entries) + ")"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
