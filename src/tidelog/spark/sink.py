"""The sink: rows to records. At least once: a task that runs again writes its records again. Or exactly once."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from tidelog.base.errors import ConfigError, TidelogError
from tidelog.spark import exactly_once
from tidelog.spark.clients import borrowed_producer
from tidelog.spark.large_records import largest_row_bytes, told_sizes
from tidelog.spark.options import SinkOptions
from tidelog.spark.sink_decisions import Writing
from tidelog.spark.workers import worded_errors

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from tidelog import Producer
    from tidelog.spark.bad_rows import BadRows

logger = logging.getLogger("tidelog.spark")

TEXT = ("string", "binary")
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "key": TEXT,
    "value": TEXT,
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
"""What a row may have: `value` it must, and `topic` unless the option says it. The types that each may be of.

`timestamp` becomes the record's under `useTimestamp`; else it is left out, as by Spark's connector.
"""


class SinkError(TidelogError):
    """A row that cannot be written. Says which column, and what is wrong with it."""


@dataclass
class Written(WriterCommitMessage):
    """What a task wrote, and how many rows it could not, by reason."""

    records: int
    bad_rows: Mapping[str, int] = field(default_factory=dict)


class BatchWriter(DataSourceArrowWriter):
    """`df.write`: every task writes and waits until the brokers have it."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError("a topic cannot be overwritten: use mode append, or delete the topic first")
        self.options = options
        check_schema(schema, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(iterator, self.options)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Each task has made sure of its records already."""
        _tell_of_bad_rows(messages, self.options)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was written stays: at least once."""


class ExactlyOnceBatchWriter(BatchWriter):
    """`df.write` with `delivery=exactly-once`. Spark pickles it when the write is planned, and keeps it to its end."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite=overwrite)
        assert options.exactly_once is not None
        assert options.exactly_once.txn_id is not None
        self.writing = Writing(options.exactly_once.txn_id, str(uuid.uuid4()), 0)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write_exactly_once(iterator, self.options, self.writing)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with worded_errors():
            exactly_once.commit(messages, self.options)
        if any(isinstance(message, exactly_once.Prepared) and message.was_decided for message in messages):
            logger.warning(
                "txnId=%s was written before, so nothing is written now: other rows need another txnId",
                self.writing.query_id,
            )
        _tell_of_bad_rows(messages, self.options)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        exactly_once.abort(messages, self.options)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`: the same for each micro-batch."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.options = options
        check_schema(schema, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(iterator, self.options)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Each task has made sure of its records already."""
        _tell_of_bad_rows(messages, self.options)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What was written stays: at least once."""


class ExactlyOnceStreamWriter(StreamWriter):
    """`df.writeStream` with `delivery=exactly-once`."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write_exactly_once(iterator, self.options, None)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        with worded_errors():
            exactly_once.commit(messages, self.options)
        _tell_of_bad_rows(messages, self.options)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        exactly_once.abort(messages, self.options)


def check_schema(schema: StructType, options: SinkOptions) -> None:
    """Refuse rows that cannot be written, before any is.

    Raises:
        ConfigError: names the column, and what it may be.
    """
    kinds = {column.name: column.dataType.simpleString() for column in schema.fields}
    written = {name for name in kinds if name in COLUMNS and (options.use_timestamp or name != "timestamp")}
    if options.strict and (extra := sorted(kinds.keys() - written)):
        hint = "; useTimestamp=true writes timestamp" if "timestamp" in extra else ""
        raise ConfigError(
            f"under strictOptions, columns that are not written are refused: {', '.join(extra)}{hint}. Those that are "
            f"written are {', '.join(COLUMNS)}"
        )
    for name in sorted(written):
        if kinds[name] not in COLUMNS[name]:
            raise ConfigError(f"column {name} is {kinds[name]}: cast it to {' or '.join(COLUMNS[name])}")
    if "value" not in kinds:
        lowered = {name.lower(): name for name in kinds}
        close = get_close_matches("value", lowered, n=1)
        hint = f"; is {lowered[close[0]]} meant? Rename it" if close else ""
        raise ConfigError(f"column value is missing: it is what is written{hint}")
    if "topic" not in kinds and options.topic is None:
        raise ConfigError("say where to write: option topic for all rows, or a column topic")


@worded_errors()
def write_rows(batches: Iterator[pa.RecordBatch], options: SinkOptions) -> Written:
    """Write all rows, and return when the brokers have them (as `kafka.acks` says).

    Raises:
        SinkError: a row has no topic, or an illegal partition.
        RecordTooLargeError: its topic takes no batches of this size.
        TidelogError: the brokers did not take a record; says why.
    """
    rows = _Rows(options)
    with told_sizes(options, rows.largest), borrowed_producer(options.client) as producer:
        count = sum(rows.send(producer, batch) for batch in batches)
        producer.flush()
    return Written(count, rows.bad)


def _tell_of_bad_rows(messages: Iterable[WriterCommitMessage | None], options: SinkOptions) -> None:
    counts = [
        message.bad_rows
        for message in messages
        if isinstance(message, Written | exactly_once.Prepared) and message.bad_rows
    ]
    if counts:
        from tidelog.spark.bad_rows import told_of

        logger.warning("%s", told_of(counts, options.on_bad_row))


@worded_errors()
def _write_exactly_once(
    batches: Iterator[pa.RecordBatch], options: SinkOptions, writing: Writing | None
) -> exactly_once.Prepared:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "a writer writes in a task"
    writing = exactly_once.writing_of_stream(context) if writing is None else writing
    task = exactly_once.Task(writing, context.partitionId(), context.attemptNumber())
    rows = _Rows(options)
    with told_sizes(options, rows.largest):
        prepared = exactly_once.write(batches, options, task, rows.send)
    prepared.bad_rows = rows.bad
    return prepared


class _Rows:
    """Sends the rows of one task, but for the bad ones.

    Attributes:
        largest: of each topic, the bytes of the key and the value of the largest row so far.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._bad: BadRows | None = None
        self.largest: dict[str, int] = {}

    @property
    def bad(self) -> dict[str, int]:
        """How many rows were bad, by reason."""
        return {} if self._bad is None else dict(self._bad.counts)

    def send(self, producer: Producer, batch: pa.RecordBatch) -> int:
        """Send a batch. Returns how many rows were good.

        Raises:
            SinkError: a row is bad, under onBadRow=fail.
        """
        if self._bad is None and self._options.on_bad_row != "fail":
            from tidelog.spark.bad_rows import BadRows

            self._bad = BadRows(self._options, producer)
        good = batch if self._bad is None else self._bad.sift(batch)
        for topic, rows in _by_topic(good, self._options):
            self.largest[topic] = max(self.largest.get(topic, 0), largest_row_bytes(rows))
            producer.send_arrow(topic, rows)
        return int(good.num_rows)


def _by_topic(batch: pa.RecordBatch, options: SinkOptions) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Each topic with its rows, as the producer takes them."""
    for topic, rows in [(options.topic, batch)] if options.topic is not None else _groups(batch):
        if not topic:
            raise SinkError(
                "a row has no topic (null or empty): set the option topic for all rows, or onBadRow for such rows"
            )
        columns = {name: rows.column(name) for name in COLUMNS if name in rows.schema.names and name != "topic"}
        if not options.include_headers:
            columns.pop("headers", None)
        if not options.use_timestamp:
            columns.pop("timestamp", None)
        if "timestamp" in columns and columns["timestamp"].null_count:
            now = pa.scalar(time.time_ns() // 1000, pa.int64()).cast(columns["timestamp"].type)
            columns["timestamp"] = columns["timestamp"].fill_null(now)
        if "partition" in columns and (pc.min(columns["partition"]).as_py() or 0) < 0:
            raise SinkError(
                f"a row for topic {topic} has a partition below 0: from 0 on, or null, is expected; onBadRow says what "
                "is done with such rows"
            )
        yield topic, pa.RecordBatch.from_pydict(columns)


def _groups(batch: pa.RecordBatch) -> Iterator[tuple[str | None, pa.RecordBatch]]:
    topics = batch.column("topic")
    distinct = pc.unique(topics)
    if len(distinct) == 1:
        yield distinct[0].as_py(), batch
        return
    for topic in distinct:
        mask = pc.equal(topics, topic) if topic.is_valid else pc.is_null(topics)
        yield topic.as_py(), batch.filter(mask)
