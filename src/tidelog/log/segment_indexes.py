"""What is known of the batches of one segment without reading them: its indexes, and its times.

    batches ── every index.interval.bytes ──► offset -> position          (offset_index.py)
            │                                 timestamp -> offset         (time_index.py)
            └─ every abort marker ──────────► aborted transactions        (transaction_index.py)

Kafka: `LazyIndex`, `LogSegment`.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.base.errors import DiskError
from tidelog.base.ids import Offset
from tidelog.base.ports import Disk
from tidelog.log.config import LogConfig
from tidelog.log.files.offset_index import OffsetIndex
from tidelog.log.files.time_index import MaxTimestamp, TimeIndex
from tidelog.log.files.transaction_index import AbortedEntry, TransactionIndex
from tidelog.log.placed import Placed
from tidelog.records.batch import BatchHeader

NO_TIMESTAMP = -1
TIMESTAMP_MAX = 2**63 - 1


class IndexPaths(NamedTuple):
    """Where the indexes of a segment lie."""

    offsets: str
    times: str
    transactions: str


class SegmentIndexes:
    """The indexes of one segment. It tells them of each batch, once, in order.

    Attributes:
        max_timestamp: the largest, and where it is; None for none.
        first_timestamp: the largest of the first batch, by which segments roll; None if there is no batch, or if it is
            not known yet.
        holds_producers: whether there may be batches with a producer id.
        holds_markers: whether `note_header` was told of a batch that decides a transaction.
        is_full: whether `segment.index.bytes` asks for a new segment.
    """

    __slots__ = (
        "_interval_bytes",
        "_is_damaged",
        "_is_spill_due",
        "_size_since_entry",
        "first_timestamp",
        "holds_markers",
        "holds_producers",
        "is_full",
        "max_timestamp",
        "offsets",
        "times",
        "transactions",
    )

    def __init__(self, disk: Disk, paths: IndexPaths, base_offset: Offset, config: LogConfig) -> None:
        """Name them; nothing is opened."""
        self.offsets = OffsetIndex(disk, paths.offsets, base_offset, config.index_size_bytes_max)
        self.times = TimeIndex(disk, paths.times, base_offset, config.index_size_bytes_max)
        self.transactions = TransactionIndex(disk, paths.transactions)
        self.max_timestamp: MaxTimestamp | None = None
        self.first_timestamp: int | None = None
        self.holds_producers = True
        self.holds_markers = False
        self.is_full = False
        self._interval_bytes = config.index_interval_bytes
        self._size_since_entry = 0
        self._is_spill_due = False
        self._is_damaged = False

    # Opening.

    def open_existing(self, size_bytes: int, end_offset: Offset | None) -> None:
        """Take over the files that are there.

        Args:
            size_bytes: of the batches.
            end_offset: exclusive, of the segment; None if it is not known yet.

        Raises:
            CorruptIndexError: one is missing, or does not fit the log.
        """
        self._size_since_entry = 0
        self.offsets.open_existing()
        self.offsets.check(size_bytes)
        self.times.open_existing()
        if end_offset is not None:
            self.times.check(end_offset)
        self.max_timestamp = self.times.newest()

    def resume(self) -> None:
        """Make ready to grow: of the times, only those that are in the index are known."""
        self._size_since_entry = 0
        self.max_timestamp = self.times.newest()
        self.first_timestamp = None

    # Growing.

    def note(self, written: list[Placed], position: int) -> int:
        """Take in batches that were written one after the other from `position` on. Returns where they end."""
        if not position:
            self.first_timestamp = written[0][4]
        newest = NO_TIMESTAMP if self.max_timestamp is None else self.max_timestamp[0]
        size_since_entry, interval_bytes = self._size_since_entry, self._interval_bytes
        for _, header, _, last_offset, max_timestamp in written:
            if max_timestamp > newest:
                newest = max_timestamp
                self.max_timestamp = MaxTimestamp(max_timestamp, last_offset)
            if size_since_entry > interval_bytes:
                self._note_entries(last_offset, position)
                size_since_entry = 0
            size_bytes = header[1]
            size_since_entry += size_bytes
            position += size_bytes
        self._size_since_entry = size_since_entry
        return position

    def note_aborted(self, entry: AbortedEntry) -> None:
        """Take in that an abort marker was written, which decides a transaction."""
        self.transactions.note(entry)
        try:
            self.transactions.spill()
        except DiskError:  # the marker is in the log; the next batch is refused if this cannot be made good
            self._is_spill_due = True

    def spill(self) -> None:
        """Write blocks that have gathered in memory: before a batch is, when failing does no harm yet."""
        if self._is_spill_due:
            self.offsets.spill()
            self.times.spill()
            self.transactions.spill()
            self._is_spill_due = False

    def _note_entries(self, last_offset: int, position: int) -> None:
        self.offsets.note(last_offset, position)
        if self.max_timestamp is not None and not self._is_damaged:
            self.times.note(*self.max_timestamp)
        self._size_since_entry = 0
        self._is_spill_due |= self.offsets.is_spill_due or self.times.is_spill_due
        self.is_full = self.offsets.is_full or self.times.is_full

    # Deriving them from the headers.

    def begin(self) -> None:
        """Forget what is known of offsets and times, to derive it anew with `note_header` and `finish`."""
        self.offsets.clear()
        self.times.clear()
        self._is_damaged = False
        self.holds_producers = self.holds_markers = False
        self.max_timestamp = None
        self.first_timestamp = None
        self._size_since_entry = 0

    def note_header(self, position: int, header: BatchHeader) -> None:
        """Take in a batch that is in the file already."""
        self.note_times(position, header)
        if header.producer_id >= 0:
            self.holds_producers = True
            self.holds_markers |= header.is_control
        if self._size_since_entry > self._interval_bytes:
            self._note_entries(header.last_offset, position)
            self.spill()
        self._size_since_entry += header.size_bytes

    def note_times(self, position: int, header: BatchHeader) -> None:
        """Take in the times of a batch that is in the file already, and in the index maybe."""
        if not position:
            self.first_timestamp = header.max_timestamp
        newest = self.max_timestamp
        if not header.record_count:
            return  # all were removed by compaction: no record has the time
        if header.max_timestamp > (NO_TIMESTAMP if newest is None else newest.timestamp):
            self.max_timestamp = MaxTimestamp(header.max_timestamp, header.last_offset)

    def give_up(self, end_offset: Offset) -> None:
        """The headers cannot be read to the end. No time index is left: the next start looks again, and says so."""
        self._is_damaged = True
        self.times.clear()
        self.times.remove()
        self.max_timestamp = MaxTimestamp(TIMESTAMP_MAX, end_offset - 1)  # who looks for a time must look here
        self.holds_producers = True

    def finish(self) -> None:
        """Write what was derived, or noted: no batch comes after this, or none for now."""
        self.offsets.spill()
        self.transactions.spill()
        if self._is_damaged:
            return
        if self.max_timestamp is not None:
            self.times.note(*self.max_timestamp)
        self.times.spill()

    # Cutting, leaving.

    def truncate_to(self, position: int, end_offset: Offset) -> None:
        """Forget entries of offsets and times beyond these. Raises CorruptIndexError: they are to be derived anew."""
        self.offsets.truncate_to(position)
        self.times.truncate_to(end_offset)

    def release(self) -> None:
        """Let go of descriptors and memory; the next look-up gets back what it needs."""
        self.offsets.release()
        self.times.release()
        self.transactions.release()

    def close_files(self) -> None:
        """Let go of descriptors, and of nothing else; the next look-up opens what it needs."""
        self.offsets.close_file()
        self.times.close_file()
        self.transactions.close_file()

    def sync(self, *, are_complete: bool) -> None:
        """Return once what was aborted would survive a loss of power; of a segment that is complete, the others too.

        The next start finds out whether those are whole.
        """
        self.transactions.sync()
        if are_complete:
            self.offsets.sync()
            self.times.sync()

    def remove(self) -> None:
        """Remove what there is of the files."""
        self.offsets.remove()
        self.times.remove()
        self.transactions.remove()

    def retire(self, suffix: str) -> list[str]:
        """Add a suffix to the names of what there is. Returns the new names."""
        retired = []
        for index in (self.offsets, self.times):
            index.rename(f"{index.path}{suffix}")
            retired.append(index.path)
        if self.transactions.rename(f"{self.transactions.path}{suffix}"):
            retired.append(self.transactions.path)
        return retired

    def rename(self, paths: IndexPaths) -> None:
        """Give the files other names."""
        self.offsets.rename(paths.offsets)
        self.times.rename(paths.times)
        self.transactions.rename(paths.transactions)
