"""Rows that a topic refuses for their size (`max.message.bytes`): the error that says where, how large, and what to do.

What is larger than `kafka.max.request.size` is a bad row (`bad_rows`), and never sent. The limit of a topic is known
to its brokers alone, and holds for a batch of records as it is sent: compressed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import pyarrow as pa
import pyarrow.compute as pc

from tidelog import Admin, ConfigResource
from tidelog.base.errors import Code, KafkaError, TidelogError
from tidelog.base.ids import TopicPartition
from tidelog.client.kafka_settings import admin_settings
from tidelog.spark.options import SinkOptions
from tidelog.spark.tags import tagged_text

TAG = "SINK_RECORD_TOO_LARGE"
LIMIT = "max.message.bytes"


class RecordTooLargeError(TidelogError):
    """A topic takes no batches of records of this size. The text starts with `[SINK_RECORD_TOO_LARGE]{json}`."""


def largest_row_bytes(batch: pa.RecordBatch) -> int:
    """Of the key and the value of the row that has the most of both."""
    sizes = [
        pc.fill_null(pc.binary_length(batch.column(name)), 0)
        for name in ("key", "value")
        if name in batch.schema.names and batch.num_rows
    ]
    if not sizes:
        return 0
    return int(pc.max(sizes[0] if len(sizes) == 1 else pc.add(*sizes)).as_py())


@contextmanager
def told_sizes(options: SinkOptions, largest: Mapping[str, int]) -> Iterator[None]:
    """Let a refusal for the size of a batch say all that is known.

    Args:
        options: of the sink.
        largest: of each topic, the bytes of the largest row that was sent, so far.

    Raises:
        RecordTooLargeError: in its place.
    """
    try:
        yield
    except KafkaError as error:
        refused = _size_refusal(error)
        if refused is None:
            raise
        partition, said = refused
        raise _told(partition, said, largest.get(partition.topic), _limit_of(partition.topic, options)) from error


def _size_refusal(error: BaseException | None) -> tuple[TopicPartition, str] | None:
    """The partition whose leader refused, and its words. Under a transaction they are the cause of the error."""
    while error is not None:
        if isinstance(error, KafkaError) and error.code in (Code.MESSAGE_TOO_LARGE, Code.RECORD_LIST_TOO_LARGE):
            partition = getattr(error, "partition", None)
            if isinstance(partition, TopicPartition):
                return partition, str(error).removeprefix(f"{partition}: ").removeprefix(f"{partition}: ")
        error = error.__cause__
    return None


def _limit_of(topic: str, options: SinkOptions) -> int | None:
    with suppress(TidelogError, ValueError), Admin(**admin_settings(options.client)) as admin:
        resource = ConfigResource("topic", topic)
        said = admin.describe_configs([resource])[resource].get(LIMIT)
        return None if said is None or said.value is None else int(said.value)
    return None


def _told(partition: TopicPartition, said: str, row_bytes: int | None, limit_bytes: int | None) -> RecordTooLargeError:
    details = {
        "largestRowBytes": row_bytes,
        "limitBytes": limit_bytes,
        "partition": partition.partition,
        "topic": partition.topic,
        "v": 1,
    }
    limit = LIMIT if limit_bytes is None else f"{LIMIT}={limit_bytes}"
    largest = "" if row_bytes is None else f" The largest row that the task sent there has {row_bytes} bytes."
    if row_bytes is not None and limit_bytes is not None and row_bytes < limit_bytes:
        remedy = f"Lower kafka.batch.size below {limit_bytes}, since it is many rows together that are too large"
    else:
        remedy = (
            f"Raise the limit (tidelog topics alter {partition.topic} --config {LIMIT}=...); or set "
            f"kafka.max.request.size to it, and onBadRow=drop or onBadRow=topic:NAME for the rows that are larger"
        )
    return RecordTooLargeError(
        f"{tagged_text(TAG, details)} {partition} takes no batch of records larger than its {limit} allows ({said})."
        f"{largest} {remedy}"
    )
