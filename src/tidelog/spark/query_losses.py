"""The losses after which a query went on: from its checkpoint, or from what Spark reports of its progress."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.spark.checkpoints import KAFKA, TIDELOG, Checkpoint, SourceOffset
from tidelog.spark.offsets import CheckpointError, Loss, ReadPosition, StreamOffset
from tidelog.spark.truncation import consequences_of

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class QueryLoss:
    """A partition lost records that a query had read, or was yet to read.

    The three counts are of offsets, and upper bounds: compaction and transactions leave fewer records than offsets.

    Attributes:
        topic: the topic's name.
        partition: the partition.
        topic_id: of the topic that the query had read.
        cause: `truncated` (a leader took records back, as after an unclean election), `retention` (removed before
            they were read), `recreated` (the topic of this name is another one now) or `missing` (it is no more).
        from_offset: where the query stood; all below it was read.
        leader_epoch: of the record before `from_offset`; None if that is not known.
        divergent_offset: of `truncated`: from here on, what the query had read is gone. None if that cannot be told.
        resumed_offset: where the query went on; None if it did not, or if there is no such partition any more.
        resumed_leader_epoch: of the record before `resumed_offset`.
        gone_count: of the offsets that the query had read, those that are gone.
        read_again_count: of the offsets that the query had read, those that are still there, and that it reads again.
        skipped_count: offsets that the query never reads.
        batch_id: the micro-batch that begins at `resumed_offset`. None if the query stopped (`onTruncation=fail`).
        source: the place of the source among those of the query, from 0 on.
        query_id: which the query keeps over its restarts.
        query_name: what `queryName` said; a checkpoint does not hold it.
    """

    topic: str
    partition: int
    topic_id: str | None
    cause: str
    from_offset: int
    leader_epoch: int | None
    divergent_offset: int | None
    resumed_offset: int | None
    resumed_leader_epoch: int | None
    gone_count: int
    read_again_count: int
    skipped_count: int
    batch_id: int | None
    source: int
    query_id: str | None = None
    query_name: str | None = None


def losses(
    checkpoint: str,
    batch_id: int | None = None,
    *,
    spark: SparkSession | None = None,
    filesystem: FileSystem | None = None,
) -> list[QueryLoss]:
    """The losses after which the query of a checkpoint went on, the oldest first.

    Spark writes a batch down before it runs: `foreachBatch` can ask about the batch that it is given. It keeps the
    newest hundred batches (`spark.sql.streaming.minBatchesToRetain`); of older losses only the driver's log tells.

    Args:
        checkpoint: what `checkpointLocation` is: a path, or a URI (file:, s3:, s3a:, hdfs:, gs:, abfss:).
        batch_id: only those that this batch made up for; None for all that the checkpoint holds.
        spark: a session that reads the checkpoint with its own credentials, from any file system that it knows; small
            jobs, which take longer than a file. Within `foreachBatch`: that of the batch, `batch.sparkSession`.
        filesystem: one of `pyarrow.fs`, where the URI alone does not say how to connect; `checkpoint` is a path in it.

    Raises:
        CheckpointError: there is no checkpoint, or none of a query that reads with Tidelog's source, or no such batch.
    """
    opened = Checkpoint(checkpoint, filesystem, spark)
    if batch_id is not None:
        try:
            sources = opened.sources(batch_id)
        except FileNotFoundError:
            known = opened.planned()
            held = f"{known[0]} to {known[-1]}" if known else "none yet"
            raise CheckpointError(
                f"checkpoint {opened.location} holds no batch {batch_id} (it holds {held}): it is of another query, or "
                "Spark has removed the batch"
            ) from None
        _check_connectors(opened, sources)
        if not any(one.stream is not None and one.stream.losses for one in sources):
            return []  # mostly: the batch before need not be read
        return _with_query_id(list(_of_batch(sources, batch_id, _sources_of(opened, batch_id - 1))), opened)
    found: list[QueryLoss] = []
    newest: Sequence[SourceOffset] = ()
    for number in opened.planned():
        before, newest = newest, _sources_of(opened, number)
        found += _of_batch(newest, number, before)
    if newest:
        _check_connectors(opened, newest)
    return _with_query_id(found, opened)


def _check_connectors(opened: Checkpoint, sources: Sequence[SourceOffset]) -> None:
    if any(one.connector == TIDELOG for one in sources):
        return
    of_kafka = any(one.connector == KAFKA for one in sources)
    raise CheckpointError(
        f"checkpoint {opened.location} is of a query without a source of format tidelog"
        + (
            ": it reads with Spark's Kafka connector, whose offsets hold no leader epochs and no topic ids, so that it "
            "cannot know what it lost"
            if of_kafka
            else ""
        )
    )


def _sources_of(opened: Checkpoint, batch_id: int) -> Sequence[SourceOffset]:
    """Where the sources end in a batch; none if Spark has removed it, or if there was none."""
    try:
        return opened.sources(batch_id)
    except FileNotFoundError:
        return ()


def _of_batch(sources: Sequence[SourceOffset], batch_id: int, before: Sequence[SourceOffset]) -> Iterator[QueryLoss]:
    ends_before = {one.source: one.stream for one in before}
    for one in sources:
        # A source with nothing new repeats its offset, with what it said of losses.
        if one.stream is not None and one.stream != ends_before.get(one.source):
            yield from losses_of_offset(one.stream, batch_id, one.source)


def _with_query_id(found: list[QueryLoss], opened: Checkpoint) -> list[QueryLoss]:
    """Look it up only where there is something to say: it is a request more, and this is asked in each batch."""
    from dataclasses import replace

    query_id = opened.query_id() if found else None
    return [replace(loss, query_id=query_id) for loss in found]


def losses_of_offset(
    offset: StreamOffset, batch_id: int, source: int, *, query_id: str | None = None, query_name: str | None = None
) -> Iterator[QueryLoss]:
    """What the end of a batch says of the losses that the batch made up for."""
    for key, loss in sorted(offset.losses.items()):
        begin, resumed = offset.begin.get(key), offset.resumed(key)
        effects = consequences_of(loss, resumed)
        yield QueryLoss(
            topic=key.topic,
            partition=key.partition,
            topic_id=loss.topic_id,
            cause=loss.cause,
            from_offset=loss.position.offset,
            leader_epoch=loss.position.leader_epoch,
            divergent_offset=loss.resume_offset if loss.cause == "truncated" else None,
            resumed_offset=resumed,
            resumed_leader_epoch=None if begin is None or begin.offset != resumed else begin.leader_epoch,
            gone_count=effects.gone_count,
            read_again_count=effects.read_again_count,
            skipped_count=effects.skipped_count,
            batch_id=batch_id,
            source=source,
            query_id=query_id,
            query_name=query_name,
        )


def losses_of_error(
    details: Mapping[str, object], *, query_id: str | None = None, query_name: str | None = None
) -> Iterator[QueryLoss]:
    """What `[LOG_TRUNCATION]` says in the error of a query that stopped."""
    entries = details.get("losses")
    for entry in entries if isinstance(entries, list) else []:
        divergent = entry.get("divergentOffset")
        loss = Loss(entry["cause"], ReadPosition(entry["offset"], entry.get("leaderEpoch")), divergent)
        yield QueryLoss(
            topic=entry["topic"],
            partition=entry["partition"],
            topic_id=entry.get("topicId"),
            cause=loss.cause,
            from_offset=loss.position.offset,
            leader_epoch=loss.position.leader_epoch,
            divergent_offset=divergent,
            resumed_offset=None,
            resumed_leader_epoch=None,
            gone_count=consequences_of(loss, None).gone_count,
            read_again_count=0,
            skipped_count=0,
            batch_id=None,
            source=0,
            query_id=query_id,
            query_name=query_name,
        )
