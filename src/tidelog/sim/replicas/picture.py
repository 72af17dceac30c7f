"""What a log holds, as somebody outside sees it: read from its files, but only what was not read before."""

from __future__ import annotations

from tidelog.base.errors import CorruptLogError, DiskError, MalformedBatchError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.log import Log
from tidelog.records import read_records, split_batches
from tidelog.sim.checkers.views import Record

READ_SIZE_BYTES = 1 << 20


class LogPicture:
    """The records of one log.

    Attributes:
        log_start_offset: of the first of `records`.
        records: each with its leader epoch; its value names it.
    """

    def __init__(self) -> None:
        self.log_start_offset = Offset(0)
        self.records: list[Record] = []

    @property
    def end_offset(self) -> Offset:
        return Offset(self.log_start_offset + len(self.records))

    def cut(self, end_offset: Offset) -> None:
        """The log was truncated: what lies there by now has to be looked at anew."""
        del self.records[max(0, end_offset - self.log_start_offset) :]

    def restart(self) -> None:
        """It is another log, or one that was recovered."""
        self.records.clear()

    def look(self, log: Log) -> None:
        """Read what is new. Damage ends the picture: what lies behind it nobody can read either."""
        start = log.log_start_offset
        if not self.records:
            self.log_start_offset = start
        elif start > self.log_start_offset:
            del self.records[: start - self.log_start_offset]
            self.log_start_offset = start
        self.cut(log.log_end_offset)
        while self.end_offset < log.log_end_offset:
            try:
                self._read_on(log)
            except (CorruptLogError, DiskError, MalformedBatchError):
                return

    def _read_on(self, log: Log) -> None:
        found = log.read(self.end_offset, size_bytes_max=READ_SIZE_BYTES, end_offset=log.log_end_offset)
        data = memoryview(found.read_all())
        for position, header in split_batches(data):
            if header.base_offset > self.end_offset:
                raise CorruptLogError(f"offset {self.end_offset} is missing")
            for record in read_records(data, position, header):
                if record.offset >= self.end_offset:
                    epoch = LeaderEpoch(header.leader_epoch)
                    self.records.append((epoch, bytes(record.value or b"").decode(errors="replace")))
