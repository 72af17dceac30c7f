"""What shows which process wrote in a log directory last, and how it ended: three files of that directory.

Kafka: `CleanShutdownFileHandler` for the first of them.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.base.ids import BrokerEpoch
from tidelog.base.ports import Disk
from tidelog.log.files.checkpoint import format_clean_shutdown, parse_clean_shutdown
from tidelog.log.files.incarnation import NOTHING, SLOT_BYTES, Incarnation, Note, format_note, parse_notes, slot_of

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
STOPPED_FILE = ".tidelog_stopped"
INCARNATION_FILE = ".tidelog_incarnation"


class CleanShutdown(NamedTuple):
    """The marker of a clean shutdown."""

    was_clean: bool
    broker_epoch: BrokerEpoch | None
    """Of the incarnation that stopped cleanly, if the marker says so (KIP-966)."""


class RunFiles:
    """The three files of a directory that this process holds; see `log.directory` for their names.

    Args:
        path: of the directory.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path

    def take_clean_shutdown(self) -> CleanShutdown:
        """Tell how the last stop went, and take the marker away: from now on a crash is one.

        The marker is renamed, which needs no room. A process that ends before it serves has written nothing that
        counts, so what the marker shows of the logs still holds; `write_incarnation` replaces it.
        """
        path = f"{self._path}/{CLEAN_SHUTDOWN_FILE}"
        if not self._disk.exists(path):
            return CleanShutdown(False, None)
        broker_epoch = parse_clean_shutdown(self._disk.read_bytes(path))
        self._disk.rename(path, f"{self._path}/{STOPPED_FILE}")
        self._disk.sync_dir(self._path)
        return CleanShutdown(True, broker_epoch)

    def mark_clean_shutdown(self, broker_epoch: BrokerEpoch | None) -> None:
        """Every log is closed and the checkpoints are written: the next start need not look."""
        self._disk.write_atomically(f"{self._path}/{CLEAN_SHUTDOWN_FILE}", format_clean_shutdown(broker_epoch))

    def write_incarnation(self, incarnation: Incarnation) -> None:
        """Say who writes here, before anybody does. Without a boot id that could be told it is not said."""
        boot_id = self._disk.boot_id()
        if boot_id is None:
            self.forget_incarnation()
            return
        self._write_note(incarnation, boot_id)
        self._remove_stopped()

    def write_registering(self, incarnation: Incarnation) -> None:
        """Say who is about to register, and writes nothing yet: what is shown of the last run holds on.

        Raises:
            DiskError: the note is what it was.
        """
        boot_id = self._disk.boot_id()
        if boot_id is not None:
            self._write_note(incarnation, boot_id)

    def _write_note(self, incarnation: Incarnation, boot_id: str) -> None:
        """In place of the one before the last, where the file has the room of two."""
        path = f"{self._path}/{INCARNATION_FILE}"
        data = self._disk.read_bytes(path) if self._disk.exists(path) else b""
        last = parse_notes(data)
        note = Note(incarnation, boot_id, 0 if last is None else last.number + 1)
        if len(data) != 2 * SLOT_BYTES:
            slots = format_note(note), bytes(SLOT_BYTES)
            self._disk.write_atomically(path, b"".join(slots if note.number % 2 == 0 else reversed(slots)))
            return
        file = self._disk.open(path)
        try:
            file.write_at(slot_of(note.number), format_note(note))
            file.sync()
        finally:
            file.close()

    def read_incarnation(self) -> Incarnation:
        """Which wrote here, if all of it was kept: the machine has not been switched off since, or the last run that
        served stopped cleanly.
        """
        path = f"{self._path}/{INCARNATION_FILE}"
        note = parse_notes(self._disk.read_bytes(path)) if self._disk.exists(path) else None
        if note is not None and note.boot_id == self._disk.boot_id():
            return note.incarnation
        path = f"{self._path}/{STOPPED_FILE}"
        return Incarnation(parse_clean_shutdown(self._disk.read_bytes(path))) if self._disk.exists(path) else NOTHING

    def forget_incarnation(self) -> None:
        """What was written here may be lost although the machine runs on: the disk refused."""
        self._disk.remove(f"{self._path}/{INCARNATION_FILE}")
        self._remove_stopped()

    def _remove_stopped(self) -> None:
        path = f"{self._path}/{STOPPED_FILE}"
        if self._disk.exists(path):
            self._disk.remove(path)
            self._disk.sync_dir(self._path)
