"""The exactly-once sink: tasks write in transactions that they leave open, and the driver commits them in two steps.

1. It writes down which transactions count: the batch is decided (`sink_decisions`).
2. It commits each of them, by its producer id and epoch, and aborts what other attempts left open.

A driver that dies before the first step has written nothing. After it, the next run finds the decision, writes nothing,
and does the second step. Kafka's own answer is a Java client that is told of prepared transactions (KIP-939).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import WriterCommitMessage

from tidelog.base.errors import TidelogError
from tidelog.client.kafka_settings import client_arguments
from tidelog.spark.decision_log import DecisionLog, decision_log
from tidelog.spark.options import ExactlyOnce, SinkOptions
from tidelog.spark.sink_decisions import (
    Committable,
    SinkCommitExpiredError,
    SinkNotPreparedError,
    SinkState,
    Writing,
    decided,
    joined,
    transactional_id,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import TaskContext

    from tidelog import Producer

logger = logging.getLogger("tidelog.spark")

LISTED_MAX = 20
"""Transactions that an error lists."""
Send = Callable[["Producer", "pa.RecordBatch"], int]
"""Send the rows of a batch; returns how many there were."""


class SparkVersionError(TidelogError):
    """This Spark does not say what the sink must know of a task. Names the property."""


class Task(NamedTuple):
    """An attempt at a part of a batch.

    Attributes:
        attempt: counted from 0.
    """

    writing: Writing
    partition: int
    attempt: int


@dataclass
class Prepared(WriterCommitMessage):
    """What a task attempt has written, and not committed.

    Attributes:
        writing: by whom, and for which batch.
        records: in the transaction.
        committable: the transaction; None if there is none, because no row was sent.
        was_decided: nothing was written, since the batch is decided.
        bad_rows: how many were left out, by reason.
    """

    writing: Writing
    records: int
    committable: Committable | None
    was_decided: bool = False
    bad_rows: Mapping[str, int] = field(default_factory=dict)


def writing_of_stream(context: TaskContext) -> Writing:
    """Who writes what, in a task of a streaming query.

    Raises:
        SparkVersionError: Spark does not say.
    """
    values = []
    for name in ("sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId"):
        value = context.getLocalProperty(name)
        if not value:
            raise SparkVersionError(
                f"this version of Spark does not tell tasks the property {name}, without which delivery=exactly-once"
                " cannot tell batches apart: use delivery=at-least-once, and report this"
            )
        values.append(value)
    query_id, run_id, batch_id = values
    return Writing(query_id, run_id, int(batch_id))


def write(batches: Iterator[pa.RecordBatch], options: SinkOptions, task: Task, send: Send) -> Prepared:
    """Write all rows in a transaction, and leave it open.

    Args:
        batches: the rows.
        options: of the sink; `exactly_once` is set.
        task: that writes them.
        send: sends the rows of a batch.

    Raises:
        SinkFencedError: a newer run writes to the sink.
        SinkOtherQueryError: it is another query's.
        TidelogError: the brokers did not take a record; says why. Nothing of the task will be visible.
    """
    from tidelog import Producer

    exactly_once = _of(options)
    writing = task.writing
    log = decision_log(options.client)
    if _join(log, exactly_once, writing).is_decided(writing.batch_id):
        for _ in batches:
            pass  # Spark is computing them already
        return Prepared(writing, 0, None, was_decided=True)
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return Prepared(writing, 0, None)
    name = transactional_id(exactly_once.scope, writing.run_id, task.partition, task.attempt)
    with Producer(**client_arguments(options.client), transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        count = send(producer, first)
        for batch in filled:
            count += send(producer, batch)
        prepared = producer.prepare_transaction()
    if prepared is None:  # `onBadRow` has dropped each row
        return Prepared(writing, 0, None)
    committable = Committable(task.partition, task.attempt, prepared.producer_id, prepared.producer_epoch)
    return Prepared(writing, count, committable)


def _join(log: DecisionLog, exactly_once: ExactlyOnce, writing: Writing) -> SinkState:
    """The sink's state, in which the run has joined."""
    known = log.state(exactly_once.scope)
    if known is not None and joined(known, writing, reset=exactly_once.reset) == known:
        return known

    def join(state: SinkState | None) -> SinkState:
        after = joined(state, writing, reset=exactly_once.reset)
        if state is not None and state.query_id != writing.query_id:
            log.commit(exactly_once.scope, state)  # it was decided, and nobody else will
        return after

    state = log.change(exactly_once.scope, join)
    assert state is not None
    log.abort_leftovers(exactly_once.scope, state, writing.batch_id)
    return state


def commit(messages: Sequence[WriterCommitMessage | None], options: SinkOptions) -> None:
    """Decide a batch, and commit it; or go on with that, if it is decided.

    Raises:
        SparkVersionError: Spark does not hand over what each task wrote.
        SinkFencedError: a newer run writes to the sink. Nothing of this batch will be visible.
        SinkNotPreparedError: the brokers have aborted a part of the batch already. Nothing of it is decided.
        SinkCommitExpiredError: the brokers have aborted a part of what was decided.
        TidelogError: the rest of the commit is left to the next run.
    """
    prepared = [message for message in messages if isinstance(message, Prepared)]
    if len(prepared) != len(messages):
        raise SparkVersionError(
            f"Spark commits {len(messages)} tasks, and hands over what {len(prepared)} of them wrote: without each"
            " message delivery=exactly-once loses rows; use delivery=at-least-once, and report this"
        )
    was_decided = any(message.was_decided for message in prepared)
    committables = [message.committable for message in prepared if message.committable is not None]
    if not committables and not was_decided:
        return
    writing = _common(prepared)
    scope = _of(options).scope
    log = decision_log(options.client)

    def decide(state: SinkState | None) -> SinkState:
        after = decided(state, writing, committables)
        if after is not state and (over := log.ended(scope, writing.run_id, committables)):
            raise _not_prepared(writing, committables, over)
        return after

    state = log.change(scope, decide)
    assert state is not None
    if state.decided_batch_id == writing.batch_id:
        expired = log.commit(scope, state)
        if expired:
            raise _expired(writing, state, expired)
    log.abort_leftovers(scope, state, writing.batch_id, {writing.run_id})


def abort(messages: Sequence[WriterCommitMessage | None], options: SinkOptions) -> None:
    """Abort what tasks have prepared, unless their run decided it: a commit that failed may have come so far."""
    prepared = [message for message in messages if isinstance(message, Prepared)]
    committables = [message.committable for message in prepared if message.committable is not None]
    if not committables:
        return
    writing = _common(prepared)
    scope = _of(options).scope
    log = decision_log(options.client)
    try:
        state = log.change(scope, lambda state: state)
        if state is None or not (state.decided_run_id == writing.run_id and state.is_decided(writing.batch_id)):
            log.abort(scope, writing.run_id, committables)
    except TidelogError as error:
        logger.warning("the transactions of batch %d are left to the brokers to abort: %s", writing.batch_id, error)


def _of(options: SinkOptions) -> ExactlyOnce:
    assert options.exactly_once is not None
    return options.exactly_once


def _common(prepared: Sequence[Prepared]) -> Writing:
    writing = {message.writing for message in prepared}
    if len(writing) != 1:
        raise SparkVersionError(
            f"Spark commits tasks of several batches at once ({sorted(writing)}): use delivery=at-least-once, and"
            " report this"
        )
    return writing.pop()


def _told(writing: Writing, run_id: str | None, transactions: Sequence[Committable]) -> str:
    entries = [one._asdict() for one in transactions[:LISTED_MAX]]
    told = {"batch": writing.batch_id, "query": writing.query_id, "run": run_id, "transactions": entries}
    return json.dumps(told, sort_keys=True)


def _not_prepared(
    writing: Writing, committables: Sequence[Committable], over: Sequence[Committable]
) -> SinkNotPreparedError:
    return SinkNotPreparedError(
        f"[SINK_NOT_PREPARED]{_told(writing, writing.run_id, over)} batch {writing.batch_id} cannot be committed: the"
        f" brokers have aborted {len(over)} of its {len(committables)} transactions. It took longer than"
        " kafka.transaction.timeout.ms from its first row on, or an attempt that Spark had given up went on. Nothing"
        " of the batch is visible. Restart the query: it writes the batch again. If that takes too long each time,"
        " raise kafka.transaction.timeout.ms (and transaction.max.timeout.ms of the brokers), or make batches smaller"
    )


def _expired(writing: Writing, state: SinkState, expired: Sequence[Committable]) -> SinkCommitExpiredError:
    return SinkCommitExpiredError(
        f"[SINK_COMMIT_EXPIRED]{_told(writing, state.decided_run_id, expired)} batch {writing.batch_id} was decided,"
        f" and the brokers have aborted {len(expired)} of its {len(state.committables)} transactions before they were"
        " committed, or have forgotten them: nobody was there for as long as kafka.transaction.timeout.ms, or"
        " transactional.id.expiration.ms. Rows of an aborted one are not in the topic, the others are. To write the"
        f" whole batch again, what was committed a second time, restart the query with sinkReset={state.decided_run_id}"
    )
