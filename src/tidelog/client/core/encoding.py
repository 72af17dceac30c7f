"""Batches of a producer as bytes: its lists as columns, which the kernel writes."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate

from tidelog.base.ports import Buffer
from tidelog.client.core.accumulator import PendingBatch
from tidelog.records.batch import seal_batch
from tidelog.records.columns import ColumnBuffers, EncodedRecords, encode_columns


def encode_batch(batch: PendingBatch, compression: str, transactional: bool = False) -> bytes:
    """The batch as it is sent, with the sequence that it has now; kept in `batch.encoded` for retries.

    Raises:
        ValueError: a timestamp below -1, or columns that contradict each other.
    """
    if batch.encoded is None:
        rows = batch.rows or encode_columns(_columns(batch))
        batch.encoded = seal_batch(
            rows.records,
            rows.record_count,
            rows.base_timestamp,
            rows.max_timestamp,
            compression=compression,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=-1 if batch.sequence is None else batch.sequence,
            transactional=transactional,
        )
    return batch.encoded


def split_rows(columns: ColumnBuffers, batch_size_bytes: int, rows: Buffer | None = None) -> list[EncodedRecords]:
    """All rows, or those of the numbers `rows` (int32), encoded, in pieces of up to `batch_size_bytes`.

    A larger row is a piece by itself.

    Raises:
        ValueError: a timestamp below -1, or columns that contradict each other.
    """
    pieces = []
    row = 0
    row_count = columns.row_count if rows is None else memoryview(rows).nbytes // 4
    while row < row_count:
        piece = encode_columns(columns, row, size_bytes_max=batch_size_bytes, rows=rows)
        pieces.append(piece)
        row += piece.record_count
    return pieces


def _columns(batch: PendingBatch) -> ColumnBuffers:
    key_offsets, key_validity, key_data = _binary(batch.keys)
    value_offsets, value_validity, value_data = _binary(batch.values)
    columns = ColumnBuffers(
        len(batch.timestamps),
        timestamp=memoryview(array("q", batch.timestamps)),
        key_offsets=key_offsets,
        key_validity=key_validity,
        key_data=key_data,
        value_offsets=value_offsets,
        value_validity=value_validity,
        value_data=value_data,
    )
    if not batch.header_count:
        return columns
    pairs = [pair for headers in batch.headers for pair in headers]
    name_offsets, _, name_data = _binary([name.encode() for name, _ in pairs])
    content_offsets, content_validity, content_data = _binary([content for _, content in pairs], keep=True)
    return columns._replace(
        header_offsets=_ends(map(len, batch.headers)),
        header_key_offsets=name_offsets,
        header_key_data=name_data,
        header_value_offsets=content_offsets,
        header_value_validity=content_validity,
        header_value_data=content_data,
    )


def _binary(
    values: Sequence[bytes | None], *, keep: bool = False
) -> tuple[memoryview | None, bytearray | None, bytes | None]:
    """Offsets, validity and data of a binary column; three times None if all is null (unless `keep`)."""
    nulls = values.count(None)
    if nulls == len(values) and not keep:
        return None, None, None
    if not nulls:
        return _ends(map(len, values)), None, b"".join(values)  # type: ignore[arg-type]  # none is None
    validity = bytearray(b"\xff") * ((len(values) + 7) // 8)
    for row, value in enumerate(values):
        if value is None:
            validity[row >> 3] &= ~(1 << (row & 7))
    present = [value or b"" for value in values]
    return _ends(map(len, present)), validity, b"".join(present)


def _ends(lengths: Iterable[int]) -> memoryview:
    return memoryview(array("i", accumulate(lengths, initial=0)))
