"""The batches of what was read from a log, by their headers: the records stay where they are.

Kafka: `ShareFetchUtils`, `SharePartition` where it filters aborted transactions.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.log import AbortedTransaction, LogSlice
from tidelog.records.header import BATCH_OVERHEAD, read_header
from tidelog.share import AcquiredRecords, LogBatch

BATCHES_MAX = 256
"""That are looked at before others have their turn: some microseconds each."""
SMALL_BATCH_BYTES = 1_024
READ_AHEAD_BYTES = 8_192
"""Where batches are small, several headers are read together."""


class LogBatches:
    """See the module.

    Attributes:
        batches: by offset.
        ends: where each of them ends in the slice.
    """

    __slots__ = ("_records", "batches", "ends")

    def __init__(
        self, records: LogSlice, from_offset: int, records_max: int, aborted: Sequence[AbortedTransaction] = ()
    ) -> None:
        """Look at batches until they hold so many records, or are too many for one turn.

        Args:
            from_offset: where the reading began. Records below it count as none.
            aborted: the transactions whose records are not delivered; none where all are.

        Raises:
            NotCachedError: looked up without waiting, and a header is not in memory.
            MalformedBatchError: the log is damaged there.
            CorruptLogError: likewise: a batch does not continue the one before.
        """
        self._records = records
        self.batches: list[LogBatch] = []
        self.ends: list[int] = []
        begun = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
        skipped: set[int] = set()
        position, count, base, data = 0, 0, 0, records.look_up(0, BATCH_OVERHEAD)
        while True:
            if position + BATCH_OVERHEAD > base + len(data):
                is_small = bool(self.ends) and self.ends[-1] <= len(self.ends) * SMALL_BATCH_BYTES
                base, data = position, records.look_up(position, READ_AHEAD_BYTES if is_small else BATCH_OVERHEAD)
            header = read_header(data, position - base)
            position += header.size_bytes
            first, last = header.base_offset, header.last_offset
            while begun and begun[-1].first_offset <= last:
                skipped.add(begun.pop().producer_id)
            if header.is_control:
                skipped.discard(header.producer_id)  # whatever it says, a transaction of the producer ends with it
                is_delivered = False
            else:
                is_delivered = not (header.is_transactional and header.producer_id in skipped)
                count += last - max(first, from_offset) + 1
            self.batches.append(LogBatch(first, last, is_delivered))
            self.ends.append(position)
            if count >= records_max or len(self.ends) >= BATCHES_MAX or position >= len(records):
                return

    def part(self, first: int, last: int) -> LogSlice:
        """The batches that hold these offsets, the last of them inclusive."""
        batches, ends = self.batches, self.ends
        begin = next(index for index, one in enumerate(batches) if one.last >= first)
        end = next(index for index in range(len(batches) - 1, -1, -1) if batches[index].first <= last)
        start = ends[begin - 1] if begin else 0
        return self._records.part(start, ends[end] - start)

    def grouped(self, acquired: Sequence[AcquiredRecords], size: int) -> list[AcquiredRecords]:
        """The same records, divided where a batch of the log ends, once `size` are together; 0: not divided."""
        if size <= 0:
            return list(acquired)
        groups: list[AcquiredRecords] = []
        lasts = iter([one.last for one in self.batches])
        last = next(lasts, None)
        for one in acquired:
            first = one.first
            while last is not None and last < one.last:
                if last >= first and last - first + 1 >= size:
                    groups.append(one._replace(first=first, last=last))
                    first = last + 1
                last = next(lasts, None)
            groups.append(one._replace(first=first))
        return groups
