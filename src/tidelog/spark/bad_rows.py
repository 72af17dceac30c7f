"""Rows that no topic can take: dropped, or written to a topic of their own with the reason (dead letters).

A row is bad if it has no topic or one that cannot exist, a partition that its topic has not got, or more bytes than
`kafka.max.request.size`. Anything else that the brokers refuse concerns all rows, and fails the task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.metadata.topic_names import check_topic_name
from tidelog.records.batch import BATCH_OVERHEAD, HEADER_OVERHEAD_MAX, RECORD_OVERHEAD_MAX
from tidelog.spark.options import SinkOptions

if TYPE_CHECKING:
    from tidelog import Producer

COLUMNS = ("key", "value", "headers", "topic", "partition", "timestamp")
REASON, ROW_TOPIC, ROW_PARTITION, ROW_SIZE = (
    f"tidelog.bad-row.{name}" for name in ("reason", "topic", "partition", "size-bytes")
)
"""Headers of a dead letter, after those of the row: why, and what the row said. The size only of one that was cut."""
KEPT_BYTES_MAX = 64 * 1024
"""Of key and value each, in the dead letter of a row that is too large; its own headers are left out."""
KEPT_TEXT_MAX = 256
DEAD_LETTER_ROOM = 1_024
"""For what a dead letter has beside the row."""
REQUEST_SIZE_BYTES_MAX = 1024 * 1024
NO_TOPIC = "it has no topic"
ILLEGAL_TOPIC = "its topic's name is illegal"
NEGATIVE = "its partition is below 0"
BEYOND = "its topic has no such partition"
TOO_LARGE = "it is larger than kafka.max.request.size"


class BadRows:
    """Takes bad rows out of batches, and does with them what `onBadRow` says.

    Args:
        options: of the sink; `on_bad_row` is not "fail".
        producer: writes dead letters, and knows how many partitions a topic has.

    Attributes:
        counts: of the bad rows by reason.
    """

    def __init__(self, options: SinkOptions, producer: Producer) -> None:
        self.counts: Counter[str] = Counter()
        self._topic = options.topic
        self._dead_letters = options.on_bad_row.partition(":")[2] or None
        size = options.client.get("max_request_size", REQUEST_SIZE_BYTES_MAX)
        self._size_max = int(str(size)) - BATCH_OVERHEAD
        self._includes_headers = options.include_headers
        self._uses_timestamp = options.use_timestamp
        self._producer = producer

    def sift(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The good rows of a batch."""
        bad: dict[int, str] = {}
        for row, reason in self._found(batch):
            bad.setdefault(row, reason)
        if not bad:
            return batch
        self.counts.update(bad.values())
        if self._dead_letters is not None:
            columns = {name: batch.column(name) for name in COLUMNS if name in batch.schema.names}
            for row, reason in sorted(bad.items()):
                self._bury({name: columns[name][row] for name in columns}, reason)
        rows = pa.array(sorted(set(range(batch.num_rows)) - bad.keys()), pa.int64())
        return batch.take(rows)

    def _found(self, batch: pa.RecordBatch) -> Iterator[tuple[int, str]]:
        names = batch.schema.names
        topics = batch.column("topic") if self._topic is None else None
        distinct = [self._topic] if topics is None else pc.unique(topics).to_pylist()
        for topic in distinct:
            if topics is None:
                of_topic = pa.scalar(True)
            else:
                of_topic = pc.is_null(topics) if topic is None else pc.fill_null(pc.equal(topics, topic), False)
            if not topic or check_topic_name(topic) is not None:
                yield from _rows(batch, of_topic, NO_TOPIC if not topic else ILLEGAL_TOPIC)
            elif "partition" in names:
                partitions = batch.column("partition")
                yield from _rows(batch, pc.and_(of_topic, pc.less(partitions, 0)), NEGATIVE)
                largest = pc.max(pc.if_else(of_topic, partitions, None)).as_py()
                if largest is not None and largest >= 0:
                    count = self._producer.partitions_for(topic, at_least=largest + 1)
                    yield from _rows(batch, pc.and_(of_topic, pc.greater_equal(partitions, count)), BEYOND)
        yield from _rows(batch, pc.greater(_sizes(batch, headers=self._includes_headers), self._size_max), TOO_LARGE)

    def _bury(self, columns: Mapping[str, pa.Scalar], reason: str) -> None:
        assert self._dead_letters is not None
        row = {name: scalar.as_py() for name, scalar in columns.items() if name != "timestamp"}
        key, value = _bytes(row.get("key")), _bytes(row.get("value"))
        headers = [(pair["key"], pair["value"]) for pair in row.get("headers") or () if self._includes_headers]
        told: list[tuple[str, str]] = [(REASON, reason)]
        for name, said in ((ROW_TOPIC, self._topic or row.get("topic")), (ROW_PARTITION, row.get("partition"))):
            if said is not None:
                told.append((name, str(said)[:KEPT_TEXT_MAX]))
        size = len(key or b"") + len(value or b"") + sum(len(name) + len(said or b"") for name, said in headers)
        if reason == TOO_LARGE or size > self._size_max - DEAD_LETTER_ROOM:
            told.append((ROW_SIZE, str(size)))
            headers = []
            kept = max(0, min(KEPT_BYTES_MAX, (self._size_max - DEAD_LETTER_ROOM) // 2))
            key, value = (None if part is None else part[:kept] for part in (key, value))
        at = columns["timestamp"].cast(pa.int64()).as_py() if self._uses_timestamp and "timestamp" in columns else None
        timestamp_ms = None if at is None or at < 0 else at // 1000
        self._producer.send(self._dead_letters, value, key, headers=[*headers, *told], timestamp_ms=timestamp_ms)


def told_of(counts: Iterable[Mapping[str, int]], on_bad_row: str) -> str:
    """One line for the driver's log, of what all tasks found."""
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    reasons = "; ".join(f"{reason}: {count}" for reason, count in sorted(total.items()))
    where = f"written to topic {on_bad_row.partition(':')[2]}" if on_bad_row.startswith("topic:") else "dropped"
    return f"onBadRow: bad rows {where}: {total.total()} ({reasons})"


def _rows(batch: pa.RecordBatch, mask: Any, reason: str) -> Iterator[tuple[int, str]]:
    if isinstance(mask, pa.Scalar):
        yield from ((row, reason) for row in range(batch.num_rows) if mask.as_py())
        return
    for row in pc.indices_nonzero(pc.fill_null(mask, False)).to_pylist():
        yield row, reason


def _sizes(batch: pa.RecordBatch, *, headers: bool) -> Any:
    """An upper limit of each row's record, as Kafka's client estimates it."""
    sizes: Any = pa.repeat(pa.scalar(RECORD_OVERHEAD_MAX, pa.int64()), batch.num_rows)
    for name in ("key", "value"):
        if name in batch.schema.names:
            sizes = pc.add(sizes, pc.fill_null(pc.binary_length(batch.column(name)).cast(pa.int64()), 0))
    if headers and "headers" in batch.schema.names:
        column = batch.column("headers")
        pairs = pc.list_flatten(column)
        each = pc.add(
            pc.fill_null(pc.binary_length(pc.struct_field(pairs, 0)).cast(pa.int64()), 0),
            pc.fill_null(pc.binary_length(pc.struct_field(pairs, 1)).cast(pa.int64()), 0),
        )
        each = pc.add(each, HEADER_OVERHEAD_MAX)
        parents = pc.list_parent_indices(column)
        if len(pairs):
            summed = pa.table({"row": parents, "size": each}).group_by("row").aggregate([("size", "sum")])
            more = dict(zip(summed["row"].to_pylist(), summed["size_sum"].to_pylist(), strict=True))
            sizes = pc.add(sizes, pa.array([more.get(row, 0) for row in range(batch.num_rows)], pa.int64()))
    return sizes


def _bytes(content: Any) -> bytes | None:
    return content.encode() if isinstance(content, str) else content
