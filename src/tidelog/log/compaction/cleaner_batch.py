"""What compaction leaves of one batch.

    before   base offset 40 | a b a c d b | last offset 45
    after    base offset 40 | . . a c . b | last offset 45      the same header: offsets, producer, sequence, epoch

Offsets and the sequence numbers of the producer are what they were, so whoever follows the log finds the same
numbers. A batch that lost nothing keeps its bytes; one that lost some is compressed as it was before.

Kafka: `MemoryRecords.filterTo`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.base.ids import Offset
from tidelog.base.ports import Buffer
from tidelog.records._choose import kernel_clean
from tidelog.records.batch import BatchHeader, find_records
from tidelog.records.compression import compress
from tidelog.records.header import COMPRESSION_MASK, DELETE_HORIZON_FLAG, write_batch

INT64_MIN = -(1 << 63)


class BatchCleaner:
    """Decides about one batch after the other.

    Args:
        latest: the offset of the last record of each key; of the keys of the dirty part.
        end_offset: batches from here on are none of its business. Exclusive.
        last_offsets: of each idempotent producer, its last batch's last offset: that batch is kept, be it without
            records, since its sequence number is what a restart, and a follower, know of the producer. None keeps all
            batches of idempotent producers, and all markers.
        marker_epochs: of each producer that has appended nothing since its last marker, the epoch of that: the marker
            is kept, since it fences those of older epochs.
        delete_retention_ms: how long marks of deleted keys stay, counted from the first compaction they come by.
        now_ms: since 1970.
        decompressed_size_bytes_max: what compressed records may grow to.
    """

    __slots__ = (
        "_decompressed_size_bytes_max",
        "_delete_retention_ms",
        "_end_offset",
        "_last_offsets",
        "_latest",
        "_marker_epochs",
        "_no_keys",
        "_now_ms",
        "removed_count",
    )

    def __init__(
        self,
        latest: kernel_clean.KeyOffsets,
        *,
        end_offset: Offset,
        last_offsets: Mapping[int, Offset] | None,
        marker_epochs: Mapping[int, int],
        delete_retention_ms: int,
        now_ms: int,
        decompressed_size_bytes_max: int,
    ) -> None:
        self._latest = latest
        self._end_offset = end_offset
        self._last_offsets = last_offsets
        self._marker_epochs = marker_epochs
        self._delete_retention_ms = delete_retention_ms
        self._now_ms = now_ms
        self._decompressed_size_bytes_max = decompressed_size_bytes_max
        self._no_keys = kernel_clean.KeyOffsets()
        self.removed_count = 0
        """Records that are gone."""

    def clean(self, buffer: bytes, at: int, header: BatchHeader, *, is_void: bool, is_last: bool) -> Buffer | None:
        """What is left of a batch.

        Args:
            buffer: holds it; its checksum was compared.
            at: where it starts.
            header: its header.
            is_void: its transaction was aborted; or it is a marker, and decides about nothing that is here.
            is_last: it ends the range: then it is kept, be it without records, so that whoever stands at the end of
                what compaction left is led on, and does not wait for records that went.

        Returns:
            The batch, the same bytes if nothing changed; None if it goes.

        Raises:
            MalformedBatchError: its records are none.
        """
        original = memoryview(buffer)[at : at + header.size_bytes]
        if header.base_offset >= self._end_offset:
            return original
        if header.is_control:
            return self._clean_marker(buffer, at, header) if is_void and not is_last else original
        count = header.record_count
        if not count:
            return original if is_last or self._is_last_of_producer(header) else None
        if is_void:
            self.removed_count += count
            return _without_records(header) if is_last or self._is_last_of_producer(header) else None
        horizon_ms = header.delete_horizon_ms
        region = _region(buffer, at, header, self._decompressed_size_bytes_max)
        kept = bytearray(count)
        kept_count, tombstone_count, smallest_delta, largest_delta = kernel_clean.judge(
            *region,
            count,
            header.base_offset,
            self._latest,
            horizon_ms is not None and self._now_ms >= horizon_ms,
            kept,
        )
        self.removed_count += count - kept_count
        if not kept_count:
            return _without_records(header) if is_last or self._is_last_of_producer(header) else None
        sets_horizon = tombstone_count > 0 and horizon_ms is None and self._can_move(header, smallest_delta)
        if kept_count == count and not sets_horizon:
            return original
        if not header.is_log_append_time:
            header = header._replace(max_timestamp=header.base_timestamp + largest_delta)
        return self._with_kept(header, region, kept, kept_count, sets_horizon=sets_horizon)

    def _clean_marker(self, buffer: bytes, at: int, header: BatchHeader) -> Buffer | None:
        """A marker goes once its time has come, which begins now; the last of a producer stays."""
        original = memoryview(buffer)[at : at + header.size_bytes]
        if self._last_offsets is None or self._marker_epochs.get(header.producer_id) == header.producer_epoch:
            return original
        count, horizon_ms = header.record_count, header.delete_horizon_ms
        if not count:
            return None  # another cleaner has removed what it said
        if horizon_ms is not None:
            return original if self._now_ms < horizon_ms else None
        region = _region(buffer, at, header, self._decompressed_size_bytes_max)
        kept = bytearray(count)
        *_, smallest_delta, _ = kernel_clean.judge(*region, count, header.base_offset, self._no_keys, False, kept)
        if not self._can_move(header, smallest_delta):
            return original
        return self._with_kept(header, region, kept, count, sets_horizon=True)

    def _with_kept(
        self,
        header: BatchHeader,
        region: tuple[bytes, int, int],
        kept: bytearray,
        kept_count: int,
        *,
        sets_horizon: bool,
    ) -> bytes:
        """The batch with the records that are kept alone."""
        data, start, end = region
        base_timestamp, attributes = header.base_timestamp, header.attributes
        if sets_horizon:
            base_timestamp = self._now_ms + self._delete_retention_ms
            attributes |= DELETE_HORIZON_FLAG
        count = header.record_count
        shift = header.base_timestamp - base_timestamp
        out = bytearray(end - start + (kernel_clean.RECORD_GROWTH_MAX * count if shift else 0))
        size = kernel_clean.copy_kept(out, data, start, end, count, kept, shift)
        return write_batch(
            header._replace(attributes=attributes, base_timestamp=base_timestamp, record_count=kept_count),
            compress(attributes & COMPRESSION_MASK, memoryview(out)[:size]),
        )

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        if header.producer_id < 0:
            return False
        return self._last_offsets is None or self._last_offsets.get(header.producer_id) == header.last_offset

    def _can_move(self, header: BatchHeader, smallest_delta: int) -> bool:
        """Whether the records' timestamps can be told from the horizon: not if one lies 292 million years before it."""
        horizon_ms = self._now_ms + self._delete_retention_ms
        smallest = header.base_timestamp + smallest_delta
        return smallest - horizon_ms >= INT64_MIN and abs(header.base_timestamp - horizon_ms) < 1 << 62


def _without_records(header: BatchHeader) -> bytes:
    attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_FLAG)
    return write_batch(header._replace(attributes=attributes, record_count=0), b"")


def note_keys(
    latest: kernel_clean.KeyOffsets, buffer: bytes, at: int, header: BatchHeader, decompressed_size_bytes_max: int
) -> int:
    """Take the keys of a batch into `latest`. Returns by how many bytes that grew, about.

    Raises:
        MalformedBatchError: its records are none.
    """
    if header.is_control or not header.record_count:
        return 0
    region = _region(buffer, at, header, decompressed_size_bytes_max)
    return kernel_clean.note_keys(*region, header.record_count, header.base_offset, latest)


def _region(buffer: bytes, at: int, header: BatchHeader, decompressed_size_bytes_max: int) -> tuple[bytes, int, int]:
    """The records of a batch, decompressed: the buffer that holds them, and where they start and end in it."""
    data, start, end, *_ = find_records(buffer, at, header, decompressed_size_bytes_max)
    return bytes(data), start, end
