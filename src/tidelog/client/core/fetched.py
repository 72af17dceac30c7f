"""What one Fetch brought of one partition, ready to be delivered: whole batches, checked, without what is hidden."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tidelog.base.errors import Code, MalformedBatchError
from tidelog.base.ids import LeaderEpoch
from tidelog.base.ports import Buffer
from tidelog.client.core.values import ConsumerRecord
from tidelog.records.batch import BatchHeader, check_crc, split_whole_batches


class Aborted(NamedTuple):
    """A transaction whose records a committed reader must not see."""

    producer_id: int
    first_offset: int


@dataclass(slots=True)
class FetchedRange:
    """Batches of one partition. They cover offsets [`fetch_offset`, `next_offset`), whatever there is in that range."""

    buffer: memoryview
    batches: list[tuple[int, BatchHeader]]
    """Where each batch to deliver starts. Control batches and aborted ones are not among them."""
    epochs: list[tuple[LeaderEpoch, int]]
    """Each leader epoch found, of all batches, hidden ones too, with the offset where the one before it ends: what
    compaction left out between the two is taken for the newer one's, of which nothing is known."""
    gaps: list[tuple[int, int]]
    """Offsets, the ends exclusive, of which there is no batch, not even one that is hidden."""
    fetch_offset: int
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    is_cut_short: bool
    """Not even the first batch was whole."""
    next_batch: int = 0
    """The first of `batches` that was not delivered yet."""
    decoded: list[ConsumerRecord[Any, Any]] | None = None
    """The records of that batch, if some of them were delivered."""
    decoded_at: int = 0

    def runs(self, position: int) -> list[tuple[memoryview, list[BatchHeader]]]:
        """The batches that reach to `position` or above it, where they lie side by side in one view."""
        found: list[tuple[memoryview, list[BatchHeader]]] = []
        start = end = -1
        headers: list[BatchHeader] = []
        for at, header in self.batches:
            if header.next_offset <= position:
                continue
            if at != end:
                if headers:
                    found.append((self.buffer[start:end], headers))
                start, headers = at, []
            headers.append(header)
            end = at + header.size_bytes
        if headers:
            found.append((self.buffer[start:end], headers))
        return found


def read_fetched(
    records: Buffer | None,
    fetch_offset: int,
    *,
    aborted: Sequence[Aborted] | None,
    check_crcs: bool,
    high_watermark: int,
    last_stable_offset: int,
    log_start_offset: int,
) -> FetchedRange:
    """Make ready what a Fetch answered. A last batch that is cut short is left out, as are batches below the offset.

    Args:
        records: as they came; kept, not copied.
        fetch_offset: what was asked for.
        aborted: for committed readers, the transactions that the broker names; None shows all records.
        check_crcs: whether to compare checksums.
        high_watermark, last_stable_offset, log_start_offset: as they came.

    Raises:
        MalformedBatchError: a batch's checksum or header is wrong, or it goes back behind the one before it: offsets
            are not under the checksum, and one that rotted would hide its records.
    """
    buffer = memoryview(records) if records is not None else memoryview(b"")
    shown: list[tuple[int, BatchHeader]] = []
    epochs: list[tuple[LeaderEpoch, int]] = []
    gaps: list[tuple[int, int]] = []
    starting = sorted(aborted, key=_first_offset, reverse=True) if aborted else []
    open_aborted: set[int] = set()
    next_offset, lowest_offset = fetch_offset, 0
    batches = split_whole_batches(buffer)
    for at, header in batches:
        if check_crcs:
            check_crc(buffer, at, header)
        if header.base_offset < lowest_offset:
            raise MalformedBatchError(
                f"the batch at offset {header.base_offset} comes behind one that ends at {lowest_offset}",
                position=at,
                code=Code.CORRUPT_MESSAGE,
            )
        lowest_offset = header.next_offset
        while starting and starting[-1].first_offset <= header.last_offset:
            open_aborted.add(starting.pop().producer_id)
        if header.is_control:
            open_aborted.discard(header.producer_id)  # the marker that ends the transaction
        if header.next_offset <= fetch_offset:
            continue
        if header.leader_epoch >= 0 and (not epochs or epochs[-1][0] != header.leader_epoch):
            epochs.append((LeaderEpoch(header.leader_epoch), next_offset))
        if header.base_offset > next_offset:
            gaps.append((next_offset, header.base_offset))
        next_offset = header.next_offset
        hidden = header.is_control or (header.is_transactional and header.producer_id in open_aborted)
        if not hidden and header.record_count:
            shown.append((at, header))
    return FetchedRange(
        buffer,
        shown,
        epochs,
        gaps,
        fetch_offset,
        next_offset,
        high_watermark,
        last_stable_offset,
        log_start_offset,
        is_cut_short=not batches and len(buffer) > 0,
    )


def _first_offset(transaction: Aborted) -> int:
    return transaction.first_offset
