"""The lineage of leader epochs of one log, and its file: leader-epoch-checkpoint (KIP-101).

Kafka: `LeaderEpochFileCache`, `LeaderEpochCheckpointFile`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import dropwhile

from tidelog.base.errors import CorruptLogError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.base.ports import Disk
from tidelog.records.batch import BatchHeader
from tidelog.records.lineage import EpochEntry, LeaderEpochLineage

LINEAGE_FILE = "leader-epoch-checkpoint"


def read_lineage(disk: Disk, directory: str, *, is_there: bool | None = None) -> LeaderEpochLineage:
    """What the file says. Raises `CorruptLogError`: it is missing, or was never written so.

    Args:
        is_there: whether there is a file, for who has listed the directory.
    """
    path = f"{directory}/{LINEAGE_FILE}"
    if not (disk.exists(path) if is_there is None else is_there):
        raise CorruptLogError(f"{path}: missing")
    try:
        text = disk.read_bytes(path).decode()
    except UnicodeDecodeError:
        raise CorruptLogError(f"{path}: not text") from None
    return LeaderEpochLineage.from_text(text, path=path)


class LineageFile:
    """Keeps file and memory equal: a change is on the disk before anybody can see it here.

    But for what is trimmed at the start: the file may hold older entries until it is next written. Whoever opens the
    log trims them again, by where it starts.

    Attributes:
        lineage: the same object as long as the log is open; others hold on to it, and only read it.
    """

    __slots__ = ("_disk", "_path", "lineage")

    def __init__(self, disk: Disk, directory: str, lineage: LeaderEpochLineage) -> None:
        """Take over a lineage that the file says already, or that is yet to be written by `write`."""
        self._disk = disk
        self._path = f"{directory}/{LINEAGE_FILE}"
        self.lineage = lineage

    def write(self) -> None:
        """Replace the file. Raises `DiskError`: the file is as it was."""
        self._disk.write_atomically(self._path, self.lineage.to_text().encode())

    def _change(self, change: Callable[[LeaderEpochLineage], bool]) -> None:
        changed = self.lineage.clone()
        if change(changed):
            self._disk.write_atomically(self._path, changed.to_text().encode())
            change(self.lineage)

    # As the methods of the same names of `LeaderEpochLineage`. They raise `DiskError`, with nothing changed.

    def assign(self, leader_epoch: LeaderEpoch, start_offset: Offset) -> None:
        self._change(lambda lineage: lineage.assign(leader_epoch, start_offset))

    def planned(self, entries: Iterable[EpochEntry]) -> tuple[str, bytes]:
        """The file, and what it has to say before `assign_written` is called."""
        changed = self.lineage.clone()
        for entry in entries:
            changed.assign(*entry)
        return self._path, changed.to_text().encode()

    def says(self, entry: EpochEntry) -> bool:
        """Whether nothing would change if it were assigned."""
        return not self.lineage.clone().assign(*entry)

    def assign_written(self, entries: Iterable[EpochEntry]) -> None:
        """What was `planned` is on disk."""
        for entry in entries:
            self.lineage.assign(*entry)

    def assign_all(self, headers: Iterable[BatchHeader]) -> None:
        """Take in batches that carry their leader epochs, writing the file once at most. What it says stays.

        From the first that it does not say on, all are assigned: the first takes out whatever lies above it.
        """
        added = self.unknown(headers)
        if added:
            self.assign_entries(added)

    def unknown(self, headers: Iterable[BatchHeader]) -> list[EpochEntry]:
        """What `assign_all` would assign."""
        entries = (
            EpochEntry(LeaderEpoch(header.leader_epoch), Offset(header.base_offset))
            for header in headers
            if header.leader_epoch >= 0
        )
        epoch_at = self.lineage.epoch_at
        return list(dropwhile(lambda entry: entry.leader_epoch == epoch_at(entry.start_offset), entries))

    def assign_entries(self, entries: Sequence[EpochEntry]) -> None:
        """Several in their order, in one write."""

        def assign_each(lineage: LeaderEpochLineage) -> bool:
            changed = [lineage.assign(*entry) for entry in entries]
            return any(changed)

        self._change(assign_each)

    def replace(self, lineage: LeaderEpochLineage) -> None:
        """Say what another one says."""

        def take_over(own: LeaderEpochLineage) -> bool:
            if own == lineage:
                return False
            own.clear()
            for entry in lineage.entries:
                own.assign(*entry)
            return True

        self._change(take_over)

    def truncate_from_end(self, end_offset: Offset) -> None:
        self._change(lambda lineage: lineage.truncate_from_end(end_offset))

    def truncate_from_start(self, log_start_offset: Offset) -> None:
        self.lineage.truncate_from_start(log_start_offset)  # no write: retention would wait for the disk on the loop

    def clear(self) -> None:
        self._change(LeaderEpochLineage.clear)
