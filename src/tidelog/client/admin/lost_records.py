"""Records that were lost, as the broker that kept them hands them back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tidelog.base.losses import Loss
from tidelog.base.ports import Buffer
from tidelog.client.core.values import Headers
from tidelog.records.batch import check_crc, read_records, split_batches


class LostRecord(NamedTuple):
    """One record that a replica cut off.

    Another record may be at its offset by now. Whether its transaction was committed is not known.
    """

    broker_id: int
    """Whose replica it was cut off."""
    topic: str
    partition: int
    offset: int
    leader_epoch: int | None
    timestamp: int
    """ms since 1970; -1 for none."""
    timestamp_type: str
    """`CreateTime` or `LogAppendTime`."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    producer_id: int | None
    """Of the idempotent producer that wrote it; None for others."""


def lost_records(loss: Loss, broker_id: int, page: Buffer, next_offset: int) -> Iterator[LostRecord]:
    """The records of whole batches, one batch at a time. Control batches are left out.

    Args:
        next_offset: what is below it was there before: a crash between two cuts keeps some of it twice.

    Raises:
        MalformedBatchError: a batch is damaged.
    """
    for position, header in split_batches(page):
        check_crc(page, position, header)
        if header.is_control or header.next_offset <= next_offset:
            continue
        timestamp_type = header.timestamp_type
        producer_id = header.producer_id if header.producer_id >= 0 else None
        for record in read_records(page, position, header):
            if record.offset >= next_offset:
                yield LostRecord(
                    broker_id,
                    loss.topic,
                    loss.partition,
                    record.offset,
                    record.leader_epoch if record.leader_epoch >= 0 else None,
                    record.timestamp,
                    timestamp_type,
                    record.key,
                    record.value,
                    record.headers,
                    producer_id,
                )


def end_of(page: Buffer) -> int:
    """Exclusive, of the last batch of a page."""
    return max((header.next_offset for _, header in split_batches(page)), default=0)
