"""The records of one partition as its files have them: read from the disk itself, whatever the node says of them."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.base.errors import MalformedBatchError
from tidelog.base.ids import LeaderEpoch, Offset, ProducerId
from tidelog.records import BatchHeader, check_crc, read_header, read_records
from tidelog.records import Record as LogRecord
from tidelog.records.control import ControlType, read_control_type
from tidelog.sim.checkers.transactional_logs import TransactionalBatch
from tidelog.sim.checkers.views import Record
from tidelog.sim.world.disk import SimulatedDisk

LOG_SUFFIX = ".log"


class Control(NamedTuple):
    """The value of a record that the protocol itself wrote."""

    value: bytes | int


class StoredRecords:
    """Reads on where it stopped; from the start again where something but an append happened.

    Args:
        disk: of the machine.
        directory: of the partition.

    Attributes:
        start_offset: of the first of `records`: that of the first file.
        records: of the whole log. One without a value says which offset it has, one of the protocol's own is `Control`.
        transactional: batches of transactions, and their markers, of the whole log.
        readings: how often the log was read from its start.
    """

    def __init__(self, disk: SimulatedDisk, directory: str) -> None:
        self.start_offset = Offset(0)
        self.records: list[Record] = []
        self.transactional: list[TransactionalBatch] = []
        self.readings = 0
        self._disk = disk
        self._inside = f"{directory}/"
        self._read_up_to: dict[str, int] = {}
        self._unread: set[str] = set()  # files that were written to since, or that end within a batch
        self._batch_ends: list[tuple[Offset, str, int]] = []  # offset, file, position in it
        self._is_to_be_read_again = True

    def on_change(self, operation: str, path: str) -> bool:
        """The disk is about to change. Returns whether that may be a change of the records."""
        kind, _, target = operation.partition(" to ")
        if kind in {"rename", "remove"} and any(
            each and self._inside.startswith(f"{each}/") for each in (path, target)
        ):
            self._is_to_be_read_again = True  # the directory itself comes or goes
            return True
        if not any(each.startswith(self._inside) and each.endswith(LOG_SUFFIX) for each in (path, target)):
            return False
        if kind == "write":
            self._unread.add(path)
            return True
        if kind in {"sync", "create"}:
            return False
        self._is_to_be_read_again = True
        return True

    def forget(self) -> None:
        """Anything may have changed."""
        self._is_to_be_read_again = True

    def read(self) -> tuple[int, list[Record]]:
        """Look at what changed since the last call.

        Returns:
            From which offset on the records are other ones, and those that were there before.
        """
        before, began_at = self.records, self.start_offset
        if not self._is_to_be_read_again:
            known = self.end_offset
            self._read_new()
            return known, []
        self.records = []
        self.transactional = []
        self.readings += 1
        self._batch_ends = []
        paths = sorted(path for path in self._disk.files if path.startswith(self._inside) and path.endswith(LOG_SUFFIX))
        self.start_offset = Offset(_base_offset(paths[0]) if paths else 0)
        self._read_up_to = {}
        self._unread = set(paths)
        self._is_to_be_read_again = False
        self._read_new()
        begin = max(began_at, self.start_offset)  # what lies below is of one of the two only
        old, new = before[begin - began_at :], self.records[begin - self.start_offset :]
        same = next(
            (at for at, (one, other) in enumerate(zip(old, new, strict=False)) if one != other), min(len(old), len(new))
        )
        return begin + same, old[same:]

    @property
    def end_offset(self) -> Offset:
        return Offset(self.start_offset + len(self.records))

    def synced_end_offset(self) -> Offset:
        """How far a loss of power would leave it, of what `read` has seen: at the least, and in whole batches."""
        for end_offset, path, position in reversed(self._batch_ends):
            if self._disk.synced_bytes(path) >= position:
                return end_offset
        return self.start_offset

    def _read_new(self) -> None:
        for path in sorted(self._unread):  # in the order of their base offsets
            start = self._read_up_to.get(path, 0)
            data = bytes(memoryview(self._disk.files[path].data)[start:])
            taken = self._take(path, start, data)
            self._read_up_to[path] = start + taken
            if taken == len(data):
                self._unread.remove(path)

    def _take(self, path: str, start: int, data: bytes) -> int:
        """Take whole batches that follow what is known. Returns how many bytes they are."""
        position = 0
        while position < len(data):
            try:
                header = read_header(data, position)
                if header.base_offset != self.end_offset or position + header.size_bytes > len(data):
                    break
                check_crc(data, position, header)
                epoch = LeaderEpoch(header.leader_epoch)
                records = list(read_records(data, position, header))
                values = (record.value if record.value is not None else record.offset for record in records)
                self.records += [(epoch, Control(value) if header.is_control else value) for value in values]
                if header.is_transactional:
                    self.transactional.append(_transactional(header, records))
            except MalformedBatchError:
                break
            position += header.size_bytes
            self._batch_ends.append((self.end_offset, path, start + position))
        return position


def _transactional(header: BatchHeader, records: list[LogRecord]) -> TransactionalBatch:
    commits = read_control_type(records[0].key) is ControlType.COMMIT if header.is_control else None
    begin, end = Offset(header.base_offset), Offset(header.next_offset)
    return TransactionalBatch(begin, end, ProducerId(header.producer_id), commits)


def _base_offset(path: str) -> int:
    return int(path.rpartition("/")[2].removesuffix(LOG_SUFFIX))
