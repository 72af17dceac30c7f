"""The records of one partition as its files have them: read from the disk itself, whatever the node says of them."""

from __future__ import annotations

from tidelog.base.errors import MalformedBatchError
from tidelog.base.ids import LeaderEpoch
from tidelog.records import check_crc, read_header, read_records
from tidelog.sim.checkers.views import Record
from tidelog.sim.disk import SimulatedDisk

LOG_SUFFIX = ".log"


class StoredRecords:
    """Reads on where it stopped; from the start again where something but an append happened.

    Args:
        disk: of the machine.
        directory: of the partition.

    Attributes:
        records: of the whole log; offsets begin at 0. One without a value says which offset it has.
    """

    def __init__(self, disk: SimulatedDisk, directory: str) -> None:
        self.records: list[Record] = []
        self._disk = disk
        self._inside = f"{directory}/"
        self._read_up_to: dict[str, int] = {}
        self._is_to_be_read_again = True

    def on_change(self, operation: str, path: str) -> bool:
        """The disk is about to change. Returns whether that may be a change of the records."""
        if not path.startswith(self._inside):
            return False
        if operation == "write":
            return path.endswith(LOG_SUFFIX)
        if operation not in {"sync", "create"}:
            self._is_to_be_read_again = True
            return True
        return False

    def forget(self) -> None:
        """Anything may have changed."""
        self._is_to_be_read_again = True

    def read(self) -> tuple[int, list[Record]]:
        """Look at what changed since the last call.

        Returns:
            From which offset on the records are other ones, and those that were there before.
        """
        before = self.records
        if not self._is_to_be_read_again:
            known = len(before)
            self._read_new()
            return known, []
        self.records = []
        self._read_up_to = dict.fromkeys(
            sorted(path for path in self._disk.files if path.startswith(self._inside) and path.endswith(LOG_SUFFIX)), 0
        )
        self._is_to_be_read_again = False
        self._read_new()
        parted = next(
            (at for at, (old, new) in enumerate(zip(before, self.records, strict=False)) if old != new),
            min(len(before), len(self.records)),
        )
        return parted, before[parted:]

    def _read_new(self) -> None:
        files = self._disk.files
        for path in [path for path in files if path.startswith(self._inside) and path.endswith(LOG_SUFFIX)]:
            start = self._read_up_to.get(path, 0)
            data = bytes(memoryview(files[path].data)[start:])
            self._read_up_to[path] = start + self._take(data)

    def _take(self, data: bytes) -> int:
        """Take whole batches that follow what is known. Returns how many bytes they are."""
        position = 0
        while position < len(data):
            try:
                header = read_header(data, position)
                if header.base_offset != len(self.records) or position + header.size_bytes > len(data):
                    break
                check_crc(data, position, header)
                epoch = LeaderEpoch(header.leader_epoch)
                self.records += [
                    (epoch, record.value if record.value is not None else record.offset)
                    for record in read_records(data, position, header)
                ]
            except MalformedBatchError:
                break
            position += header.size_bytes
        return position
