"""What compaction has to know of transactions: whose records were aborted, and which markers decide about nothing.

```
 offset   0     1     2      3      4     5
        [ a1 ][ b1 ][ a2 ][ A(a) ][ c1 ][ C(b) ]       a was aborted, b committed
 1st    [    ][ b1 ][    ][ A(a) ][ c1 ][ C(b) ]       records of a go; its marker stays, for they were there
 2nd    [    ][ b1 ][    ][ A(a) ][ c1 ][ C(b) ]       it decides about nothing: its time begins (delete horizon)
 later  [    ][ b1 ][    ][      ][ c1 ][ C(b) ]       delete.retention.ms after that
```

A marker stays for as long as any batch of its transaction does, be it without records: a follower that got the batch
and not the marker would wait for the marker for ever. The time that follows is for those who read the records before
they went, and are yet to come by the marker.

Kafka: `CleanedTransactionMetadata`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tidelog.base.errors import CorruptLogError
from tidelog.base.ports import Disk
from tidelog.log.files.transaction_index import AbortedEntry, AbortedFile
from tidelog.records.batch import BatchHeader, read_records
from tidelog.records.control import ControlType, read_control_type


class CleanedTransactions:
    """Follows the batches of a log, in order, from the first of a transaction on or from anywhere within it.

    Args:
        disk: where the log lies.
        files: the transaction indexes of the segments from the first batch on, up to the log end; each is read once it
            is needed, and what it says let go of once it is passed.
    """

    __slots__ = ("_by_producer", "_disk", "_files", "_kept", "_known_end_offset", "_seen")

    def __init__(self, disk: Disk, files: Iterable[AbortedFile]) -> None:
        self._disk = disk
        self._files = deque(files)
        self._known_end_offset = 0  # all transactions that begin below and were aborted are in `_by_producer`
        self._by_producer: dict[int, deque[AbortedEntry]] = {}
        self._seen: set[int] = set()  # whose transaction has had a batch here, and no marker yet
        self._kept: list[AbortedEntry] = []

    def is_void(self, buffer: bytes, at: int, header: BatchHeader) -> bool:
        """Take in the next batch.

        Args:
            buffer: holds it.
            at: where it starts.
            header: its header.

        Returns:
            Whether it is of an aborted transaction, or a marker that decides about nothing that is here.

        Raises:
            CorruptLogError: an index does not say what the segments do; then no record is safe.
            DiskError: an index cannot be read.
        """
        if header.is_control:
            return header.producer_id >= 0 and self._is_void_marker(buffer, at, header)
        if not header.is_transactional:
            return False
        self._seen.add(header.producer_id)
        entry = self._entry_at(header)
        return entry is not None and entry.first_offset <= header.last_offset

    def _is_void_marker(self, buffer: bytes, at: int, header: BatchHeader) -> bool:
        control_type = next((read_control_type(record.key) for record in read_records(buffer, at, header)), None)
        if header.record_count and control_type not in (ControlType.ABORT, ControlType.COMMIT):
            return False
        was_seen = header.producer_id in self._seen
        self._seen.discard(header.producer_id)
        entry = self._entry_at(header)  # in any case: its file is replaced once the segment is
        if control_type is ControlType.ABORT and was_seen:
            if entry is None or entry.last_offset != header.last_offset:
                raise CorruptLogError(
                    f"the records that the abort marker at offset {header.last_offset} ends, of producer "
                    f"{header.producer_id}, are in no transaction index"
                )
            self._kept.append(entry)
        return not was_seen

    def _entry_at(self, header: BatchHeader) -> AbortedEntry | None:
        """The first aborted transaction of the batch's producer that does not end below the batch."""
        while self._files and self._known_end_offset < header.next_offset:
            for entry in self._files.popleft().read(self._disk):
                self._by_producer.setdefault(entry.producer_id, deque()).append(entry)
                self._known_end_offset = max(self._known_end_offset, entry.last_stable_offset)
        entries = self._by_producer.get(header.producer_id)
        while entries and entries[0].last_offset < header.last_offset:
            entries.popleft()
        if entries is not None and not entries:
            del self._by_producer[header.producer_id]
        return entries[0] if entries else None

    def take_kept(self) -> list[AbortedEntry]:
        """What the transaction index of what is left has to hold, of the markers that came since the last call."""
        kept, self._kept = self._kept, []
        return kept
