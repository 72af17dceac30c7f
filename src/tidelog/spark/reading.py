"""What a task does: fetch its range, check it, and hand it to Spark as Arrow, while the next part is being fetched."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import LogTruncatedError, OffsetOutOfRangeError, TopicRecreatedError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.records.batch import split_batches
from tidelog.spark.clients import borrowed_consumer
from tidelog.spark.options import SourceOptions
from tidelog.spark.plan import Range
from tidelog.spark.range_check import RangeCheck, RangeNotReadError
from tidelog.spark.rows import RowsBuilder
from tidelog.spark.tags import LOG_TRUNCATION, tagged_text

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog import Consumer

logger = logging.getLogger("tidelog.spark")

ROWS_MAX = 10_000
"""Rows of an Arrow batch, but for one fetched batch: fewer cost Spark more, many more do not cost it less."""
SIZE_BYTES_MAX = 1024 * 1024
"""Bytes of it, likewise. Beyond, memory that is new each time costs more than decoding does (measured)."""
AHEAD_MAX = 3
"""Arrow batches made before Spark asks for them."""
POLL_MS = 500


class TaskTruncatedError(LogTruncatedError):
    """What a task was to read is not there any more. Restarting the query plans it anew, by `onTruncation`."""

    def __init__(self, piece: Range, cause: OffsetOutOfRangeError) -> None:
        loss: dict[str, Any] = {
            "cause": _word_of(cause),
            "divergentOffset": getattr(cause, "divergent_offset", None),
            "leaderEpoch": piece.leader_epoch_before,
            "logStartOffset": getattr(cause, "log_start_offset", None),
            "offset": piece.start_offset,
            "partition": piece.partition.partition,
            "topic": piece.partition.topic,
            "topicId": piece.topic_id,
        }
        self._set(
            f"{tagged_text(LOG_TRUNCATION, {'losses': [loss], 'v': 1})}\n"
            f"while {piece.partition} was read from {piece.start_offset} to {piece.end_offset}: "
            f"{str(cause).partition('. Undo')[0].removesuffix('.')}. "
            "Restart the query: its checkpoint is as it was before this batch, and onTruncation says what is done.",
            piece.partition,
            position=piece.start_offset,
            divergent_offset=loss["divergentOffset"],
            leader_epoch=piece.leader_epoch_before,
            log_start_offset=loss["logStartOffset"],
        )


def _word_of(cause: OffsetOutOfRangeError) -> str:
    if isinstance(cause, TopicRecreatedError):
        return "recreated"
    if isinstance(cause, LogTruncatedError) or cause.offset >= (cause.log_start_offset or 0):
        return "truncated"
    return "retention"


def read_range(
    piece: Range, options: SourceOptions, schema: pa.Schema, *, skips_removed: bool = False
) -> Iterator[pa.RecordBatch]:
    """The records of a range as Arrow batches; all of them, or an error.

    Args:
        piece: what to read.
        options: of the source.
        schema: what `rows.arrow_schema` returned.
        skips_removed: what retention removes meanwhile is left out, and that is logged.

    Raises:
        TaskTruncatedError: it cannot be read any more, as records are gone.
        RangeNotReadError: it was not read whole: nothing came for `kafkaConsumer.pollTimeoutMs`, or not what should.
    """
    check = RangeCheck(piece)
    batches = _fetch(check, options, schema, skips_removed=skips_removed)
    with closing(batches):
        some = list(islice(batches, 1))
        if check.is_complete:  # few records come with one answer, and are not worth a thread
            yield from some
            yield from batches
        else:
            with closing(_Prefetch(batches)) as ahead:
                yield from some
                yield from ahead


def _fetch(
    check: RangeCheck, options: SourceOptions, schema: pa.Schema, *, skips_removed: bool
) -> Generator[pa.RecordBatch, None, None]:
    piece = check.piece
    rows = RowsBuilder(schema, piece.partition)
    try:
        with borrowed_consumer(options.client) as consumer:

            def seek(offset: Offset, leader_epoch: LeaderEpoch | None) -> None:
                # A fetch behind the range would wait at the broker, and the next tasks' fetches for a connection.
                consumer.seek(piece.partition, offset, leader_epoch, fetch_end_offset=piece.end_offset)

            consumer.assign([piece.partition])
            seek(piece.start_offset, piece.leader_epoch_before)
            may_learn_id = True
            while not check.is_complete:
                try:
                    yield from _one_answer(consumer, check, rows, options.retries.poll_timeout_ms)
                except TopicRecreatedError as error:
                    # A consumer that was lent before may know the topic of this name that was there before the plan.
                    is_planned = error.new_topic_id == piece.topic_id and check.expected_offset == piece.start_offset
                    if not may_learn_id or not is_planned:
                        raise
                    may_learn_id = False
                    seek(piece.start_offset, piece.leader_epoch_before)
                except OffsetOutOfRangeError as error:
                    if not skips_removed or _word_of(error) != "retention":
                        raise
                    begins = Offset(min(error.log_start_offset or 0, piece.end_offset))
                    logger.warning("%s", _skipped_text(piece, check.expected_offset, begins))
                    check.expected_offset = begins
                    seek(begins, None)
    except (LogTruncatedError, OffsetOutOfRangeError) as error:
        raise TaskTruncatedError(piece, error) from error
    if rows.row_count:
        yield rows.take()


def _skipped_text(piece: Range, offset: Offset, begins: Offset) -> str:
    topic, partition = piece.partition
    loss = {"cause": "retention", "offset": offset, "partition": partition, "resumedOffset": begins, "topic": topic}
    loss |= {"skippedCount": begins - offset, "topicId": piece.topic_id}
    told = tagged_text(LOG_TRUNCATION, {"losses": [loss], "v": 1})
    return (
        f"{piece.partition} lost records to retention while a batch read them: it goes on at offset {begins} "
        f"(failOnDataLoss=false), and {begins - offset} are skipped. {told}"
    )


def _one_answer(consumer: Consumer, check: RangeCheck, rows: RowsBuilder, timeout_ms: int) -> Iterator[pa.RecordBatch]:
    piece = check.piece
    deadline = time.monotonic() + timeout_ms / 1000
    while not (answers := consumer.poll_batches(timeout_ms=POLL_MS)):
        if time.monotonic() > deadline:
            raise RangeNotReadError(
                f"{piece.partition}: nothing came from offset {check.expected_offset} on for {timeout_ms} ms "
                f"(kafkaConsumer.pollTimeoutMs); the range ends at {piece.end_offset}. Are the brokers up?"
            )
    for answer in answers:
        if check.is_complete:
            break
        check.on_fetch(answer.fetch_offset, answer.topic_id, answer.gaps)
        for position, header in split_batches(answer.buffer):
            check.on_batch(header)
            is_full = (
                rows.row_count + header.record_count > ROWS_MAX or rows.size_bytes + header.size_bytes > SIZE_BYTES_MAX
            )
            if is_full and rows.row_count:
                yield rows.take()
            rows.append(answer.buffer, position, header, piece.start_offset, piece.end_offset)
        check.on_answer_read(answer.next_offset)


class _Prefetch:
    """Runs an iterator in a thread, a few items ahead of whoever iterates over this. Close this first, in any case."""

    _END = object()

    def __init__(self, items: Iterator[pa.RecordBatch]) -> None:
        self._queue: queue.Queue[object] = queue.Queue(AHEAD_MAX)
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, args=(items,), name="tidelog-read", daemon=True)
        self._thread.start()

    def _run(self, items: Iterator[pa.RecordBatch]) -> None:
        try:
            for item in items:
                if not self._put(item):
                    return
            self._put(self._END)
        except BaseException as error:
            self._put(error)

    def _put(self, item: object) -> bool:
        while not self._is_closed:
            try:
                self._queue.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while (item := self._queue.get()) is not self._END:
            if isinstance(item, BaseException):
                raise item
            yield item

    def close(self) -> None:
        self._is_closed = True
        self._thread.join()
