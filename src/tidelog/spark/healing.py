"""A table that stays equal to what the log holds: the sink of `foreachBatch` that takes back what the log took back.

One commit of the table withdraws the rows of truncated records, adds those of the batch, and says which batch of which
query it is. A batch that runs again finds itself there, and is done.

    checkpoint/offsets/N        what batch N reads, and what it found lost since batch N - 1
         |
    truncations, for people     overwritten where (query, N) is
         |
    the table                   one commit: - withdrawn rows, + rows of N, query's version = N
         |
    checkpoint/commits/N        Spark's
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.base.errors import ConfigError
from tidelog.spark.delta import (
    CommitFailedError,
    NewFile,
    TableFile,
    TableFolder,
    TableSnapshot,
    all_nullable,
    column_types,
)
from tidelog.spark.healing_errors import HealingError, errors_of_executors
from tidelog.spark.offsets import StreamOffset
from tidelog.spark.plan import ranges_of
from tidelog.spark.table_files import ADDED, PROVENANCE, REWRITTEN, WRITTEN, BatchProvenance, row_remover, row_writer
from tidelog.spark.withdrawal import REPLACED, STARTED, Event, Withdrawal, events_of, withdrawal_of
from tidelog.spark.write_ahead_log import BatchOffsets, WriteAheadLog

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("tidelog.spark")

QUERY_PROPERTY = "tidelog.queryId"
FORMAT_PROPERTY = "tidelog.healing"
FORMAT = "1"
COMMIT_TRIES_MAX = 10
FILES_PER_TASK = 8
KEEP, WITHDRAW = "keep", "withdraw"


def healing_writer(
    table: str | os.PathLike[str],
    checkpoint: str | os.PathLike[str],
    *,
    truncations: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    deleted_topics: str = KEEP,
    replaces: str | None = None,
) -> HealingWriter:
    """The sink for `foreachBatch` that keeps a Delta Lake table equal to what the log holds.

        writer = healing_writer("/data/orders", checkpoint)
        rows.writeStream.foreachBatch(writer).option("checkpointLocation", checkpoint).start()

    The rows must carry `topic`, `partition`, `offset` and `leaderEpoch` as the source gave them (its option
    includeLeaderEpoch=true gives the last one). The writer adds `topicId`, `queryId` and `batchId`.

    Args:
        table: where the table is, or is to be made: a path that all executors share, or a URI (s3://…, gs://…, az://…).
        checkpoint: the query's checkpointLocation.
        truncations: where the table is that tells what was lost and withdrawn; by default `<table>_truncations`.
        storage_options: of deltalake, for a URI.
        deleted_topics: `keep`, or `withdraw` the rows of topics that were deleted, or deleted and created anew.
        replaces: the id of a query whose rows the table holds, and which this query takes the place of. They are
            withdrawn with the first batch.

    Raises:
        MissingExtraError: deltalake is not installed.
        ConfigError: an argument is not what it should be.
    """
    folder = TableFolder.at(table, storage_options)
    if deleted_topics not in (KEEP, WITHDRAW):
        raise ConfigError(f"deleted_topics={deleted_topics}: {KEEP} or {WITHDRAW} is expected")
    told = TableFolder.at(truncations_path(table) if truncations is None else truncations, storage_options)
    if told == folder:
        raise ConfigError(f"truncations={told.uri}: it is the table itself; give another path")
    return HealingWriter(
        folder, told, os.fspath(checkpoint), withdraws_deleted=deleted_topics == WITHDRAW, replaces=replaces
    )


def truncations_path(table: str | os.PathLike[str]) -> str:
    """Where the table of truncations is, if nothing else was said."""
    return os.fspath(table).rstrip("/") + "_truncations"


class _Plan(NamedTuple):
    """What one batch does.

    Attributes:
        events: what its offsets say, each with what it withdraws.
    """

    query_id: str
    batch_id: int
    provenance: BatchProvenance
    events: Sequence[tuple[Event, Withdrawal | None]]

    @property
    def withdrawals(self) -> list[Withdrawal]:
        return [withdrawal for _, withdrawal in self.events if withdrawal is not None]

    @property
    def app_id(self) -> str:
        return app_id(self.query_id)


class _Rewrite(NamedTuple):
    """What taking rows out comes to: the files that go, those in their place, and the rows of each withdrawal."""

    removed: Sequence[TableFile] = ()
    added: Sequence[NewFile] = ()
    counts: Sequence[int] = ()


@dataclass(frozen=True)
class HealingWriter:
    """Give it to `foreachBatch`, or call it from your own function. `healing_writer` makes it.

    Attributes:
        table: where the rows go.
        truncations: where it is told what was lost.
        checkpoint: the query's.
        withdraws_deleted: the rows of deleted topics go as well.
        replaces: the query whose rows go with the first batch.
    """

    table: TableFolder
    truncations: TableFolder
    checkpoint: str
    withdraws_deleted: bool = False
    replaces: str | None = None

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Write one micro-batch.

        Raises:
            HealingError: the table, the rows or the checkpoint are not what they should be; nothing was changed.
        """
        spark = rows.sparkSession
        log = WriteAheadLog(self.checkpoint, spark)
        query_id = log.query_id()
        schema = self._schema_of(rows)
        if log.has_state():
            raise HealingError(
                "STATE_CANNOT_HEAL",
                f"{log.path}/state holds the state of an aggregate, a deduplication or a join, which keeps what "
                "came from lost records: write plain rows with healing_writer, and aggregate the table "
                "(tidelog.spark.healed_aggregate)",
            )
        snapshot = self._opened(schema, query_id, batch_id)
        if _is_done(snapshot, query_id, batch_id):
            self._own(snapshot, query_id)
            return
        plan = self._plan(snapshot, query_id, batch_id, log.batch(batch_id))
        columns = list(snapshot.column_types())
        with errors_of_executors():
            written = rows.mapInArrow(row_writer(self.table, plan.provenance, columns), WRITTEN).collect()
        added = [NewFile(*row) for row in written]
        for _ in range(COMMIT_TRIES_MAX):
            try:
                rewrite = self._commit(spark, snapshot, plan, added)
                break
            except CommitFailedError as error:
                logger.info("%s was changed while batch %d was written: %s", self.table.uri, batch_id, error)
                snapshot = self._opened(schema, query_id, batch_id)
                if _is_done(snapshot, query_id, batch_id):  # by another driver of the same query
                    self._own(snapshot, query_id)
                    return
        else:
            raise HealingError(
                "TABLE_CHANGED",
                f"{self.table.uri}: somebody else changed it {COMMIT_TRIES_MAX} times while batch {batch_id} was "
                "written. Restart the query when nobody deletes or rewrites its files meanwhile",
            )
        self._own(snapshot, query_id)
        _say(plan, rewrite, self.table.uri)

    def _schema_of(self, rows: DataFrame) -> pa.Schema:
        """The columns of the table, if these rows are to fit it.

        Raises:
            HealingError: PROVENANCE_MISSING, TABLE_SCHEMA.
        """
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        kinds = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
        for name, kind in PROVENANCE.items():
            if name not in kinds:
                hint = "; the source has it with option includeLeaderEpoch=true" if name == "leaderEpoch" else ""
                raise HealingError(
                    "PROVENANCE_MISSING",
                    f"column {name} is not among the rows: what they come from must be known, or they cannot be "
                    f"withdrawn. Select {', '.join(PROVENANCE)} as the source gave them{hint}",
                )
            if kinds[name] != kind:
                raise HealingError(
                    "PROVENANCE_MISSING", f"column {name} is {kinds[name]}, and not {kind} as in the source"
                )
        lowered = [name.lower() for name in rows.columns]
        if twice := sorted({name for name in lowered if lowered.count(name) > 1}):
            raise HealingError("TABLE_SCHEMA", f"column {', '.join(twice)} is there twice: give one another name")
        for name in ADDED:
            if name in kinds:
                raise HealingError(
                    "TABLE_SCHEMA", f"column {name} is the writer's own: give that of your rows another name"
                )
        arrow = to_arrow_schema(all_nullable(rows.schema), timezone="UTC")
        added = {"string": pa.string(), "bigint": pa.int64()}
        return pa.schema([*arrow, *(pa.field(name, added[kind]) for name, kind in ADDED.items())])

    def _opened(self, schema: pa.Schema, query_id: str, batch_id: int) -> TableSnapshot:
        """The table as it is now, made if need be.

        Raises:
            HealingError: it is not one that this query may write these rows to.
        """
        snapshot = self.table.open()
        if snapshot is None:
            if batch_id > 0:
                raise HealingError(
                    "TABLE_BEHIND",
                    f"{self.table.uri}: there is no table, and this is batch {batch_id} of query {query_id}: the "
                    "rows of the batches before would be missing. Correct the path, or start with a new checkpoint",
                )
            properties = {FORMAT_PROPERTY: FORMAT, QUERY_PROPERTY: query_id}
            snapshot = self.table.create(schema, properties, "Rows by tidelog.spark.healing_writer")
        check_ours(snapshot)
        owner = snapshot.properties.get(QUERY_PROPERTY)
        if owner is None or owner not in (query_id, self.replaces):
            raise HealingError(
                "TABLE_OF_ANOTHER_QUERY",
                f"{self.table.uri} holds the rows of query {owner}, and this is query {query_id}: a checkpoint that "
                "was deleted or exchanged makes a new query. Restore the checkpoint; or take another table; or pass "
                f"replaces={owner!r} to healing_writer, which withdraws those rows with the first batch",
            )
        wanted, there = column_types(self.table.uri, schema), snapshot.column_types()
        if wanted != there:
            raise HealingError("TABLE_SCHEMA", f"{self.table.uri}: {_differences(wanted, there)}")
        return snapshot

    def _plan(self, snapshot: TableSnapshot, query_id: str, batch_id: int, batch: Sequence[BatchOffsets]) -> _Plan:
        topic_ids: dict[str, str | None] = {}
        ranges: dict[tuple[str, int], tuple[int, int]] = {}
        events: list[tuple[Event, Withdrawal | None]] = []
        owner = snapshot.properties[QUERY_PROPERTY]
        if owner != query_id:
            events.append((Event(REPLACED, None, None, None), Withdrawal(query_id=owner)))
        for start, end in batch:
            if self.withdraws_deleted:
                self._check_returned(start, end)
            topic_ids |= end.topic_ids
            for (topic, partition), (first, last) in ranges_of(start, end).items():
                if (topic, int(partition)) in ranges:
                    raise HealingError(
                        "PROVENANCE_WRONG",
                        f"two sources of the query read {topic}-{partition}: which of them read a row cannot be told. "
                        "Read the topic once, and derive all rows from that",
                    )
                ranges[topic, int(partition)] = first.offset, last.offset
            events += [
                (event, withdrawal_of(event, with_deleted_topics=self.withdraws_deleted)) for event in events_of(end)
            ]
        return _Plan(query_id, batch_id, BatchProvenance(query_id, batch_id, topic_ids, ranges), events)

    def _check_returned(self, start: StreamOffset, end: StreamOffset) -> None:
        """Refuse to go on behind rows that were withdrawn with a topic which was not deleted after all.

        Raises:
            HealingError: TABLE_BEHIND.
        """
        for key, loss in start.missing.items():
            begin = end.begin.get(key)
            if begin is None or not begin.offset or not loss.position.offset:
                continue
            if loss.topic_id == end.topic_ids.get(key.topic):
                raise HealingError(
                    "TABLE_BEHIND",
                    f"{self.table.uri}: {key} was missing, its rows were withdrawn (deleted_topics={WITHDRAW}), and it "
                    f"is there again: the query reads it from offset {begin.offset} on, and the rows before that would "
                    "be missing. Start with a new table and a new checkpoint",
                )

    def _commit(self, spark: SparkSession, snapshot: TableSnapshot, plan: _Plan, added: Sequence[NewFile]) -> _Rewrite:
        rewrite = self._rewritten(spark, snapshot, plan.withdrawals)
        if plan.events:
            self._tell(plan, rewrite)
        snapshot.commit(
            [*added, *rewrite.added],
            rewrite.removed,
            transaction=(plan.app_id, plan.batch_id),
            said={"tidelog": f"query {plan.query_id}, batch {plan.batch_id}, {sum(rewrite.counts)} rows withdrawn"},
        )
        return rewrite

    def _rewritten(self, spark: SparkSession, snapshot: TableSnapshot, withdrawals: Sequence[Withdrawal]) -> _Rewrite:
        if not withdrawals:
            return _Rewrite()
        files = {
            file.path: file
            for file in snapshot.files()
            if any(one.may_be_in(file.low, file.high) for one in withdrawals)
        }
        if not files:
            return _Rewrite(counts=[0] * len(withdrawals))
        tasks = max(1, len(files) // FILES_PER_TASK)
        paths = spark.createDataFrame([(path,) for path in files], "path string").repartition(tasks)
        found = paths.mapInArrow(row_remover(self.table, withdrawals), REWRITTEN).collect()
        return _Rewrite(
            removed=[files[row.old_path] for row in found],
            added=[
                NewFile(row.path, row.size_bytes, row.row_count, row.stats) for row in found if row.path is not None
            ],
            counts=[sum(row.withdrawn[number] for row in found) for number in range(len(withdrawals))],
        )

    def _tell(self, plan: _Plan, rewrite: _Rewrite) -> None:
        """Write down what was lost, and how many rows go. A batch that runs again writes the same again."""
        import pyarrow as pa

        counts = iter(rewrite.counts)
        now = datetime.now(UTC)
        rows = [
            {
                "at": now,
                "cause": event.cause,
                "topic": event.topic,
                "topicId": event.topic_id,
                "partition": event.partition,
                "fromOffset": event.from_offset,
                "toOffset": event.to_offset,
                "readFrom": event.read_from,
                "lostLeaderEpochs": list(event.lost_leader_epochs),
                "leaderEpoch": event.leader_epoch,
                "withdrawnRows": 0 if withdrawal is None else next(counts),
                "queryId": plan.query_id,
                "batchId": plan.batch_id,
            }
            for event, withdrawal in plan.events
        ]
        schema = truncations_schema()
        snapshot = self.truncations.open()
        if snapshot is None:
            description = f"What was lost, and withdrawn from {self.table.uri}"
            snapshot = self.truncations.create(schema, {FORMAT_PROPERTY: FORMAT}, description)
        check_ours(snapshot)
        snapshot.replace_rows(
            f'"queryId" = \'{plan.query_id}\' AND "batchId" = {plan.batch_id}', pa.Table.from_pylist(rows, schema)
        )

    def _own(self, snapshot: TableSnapshot, query_id: str) -> None:
        """Say whose rows the table holds now. Should this not come about, `replaces` is asked for once more."""
        if snapshot.properties.get(QUERY_PROPERTY) != query_id:
            latest = self.table.open()
            assert latest is not None
            latest.set_property(QUERY_PROPERTY, query_id)


def app_id(query_id: str) -> str:
    """Under which the table remembers the last batch of a query."""
    return f"tidelog/{query_id}"


def check_ours(snapshot: TableSnapshot) -> None:
    """Refuse a table that was not made here.

    Raises:
        HealingError: TABLE_NOT_OURS.
    """
    said = snapshot.properties.get(FORMAT_PROPERTY)
    if said is None:
        raise HealingError(
            "TABLE_NOT_OURS",
            f"{snapshot.folder.uri} is a table that healing_writer did not make, so where its rows come from is not "
            "known. Give the path of a table that is to be made",
        )
    if said != FORMAT:
        raise HealingError(
            "TABLE_NOT_OURS", f"{snapshot.folder.uri} is of version {said}, and this is tidelog for version {FORMAT}"
        )
    snapshot.check_plain()


def truncations_schema() -> pa.Schema:
    """The columns of the table that tells what was lost and withdrawn."""
    import pyarrow as pa

    return pa.schema(
        [
            ("at", pa.timestamp("us", "UTC")),
            ("cause", pa.string()),
            ("topic", pa.string()),
            ("topicId", pa.string()),
            ("partition", pa.int32()),
            ("fromOffset", pa.int64()),
            ("toOffset", pa.int64()),
            ("readFrom", pa.int64()),
            ("lostLeaderEpochs", pa.list_(pa.int32())),
            ("leaderEpoch", pa.int32()),
            ("withdrawnRows", pa.int64()),
            ("queryId", pa.string()),
            ("batchId", pa.int64()),
        ]
    )


def _is_done(snapshot: TableSnapshot, query_id: str, batch_id: int) -> bool:
    """Whether the table has the batch already.

    Raises:
        HealingError: TABLE_BEHIND: it lacks some before it.
    """
    last = snapshot.transaction_version(app_id(query_id))
    if last is not None and batch_id <= last:
        return True
    due = 0 if last is None else last + 1
    if batch_id != due:
        raise HealingError(
            "TABLE_BEHIND",
            f"{snapshot.folder.uri}: batch {due} of query {query_id} is due, and batch {batch_id} came: the table was "
            "restored to an earlier version, or the query ran without this writer. Rows are missing from it: start "
            "with a new table and a new checkpoint",
        )
    return False


def _differences(wanted: Mapping[str, str], there: Mapping[str, str]) -> str:
    def named(columns: Iterable[str]) -> str:
        return ", ".join(columns)

    problems = []
    if lacking := [name for name in there if name not in wanted]:
        problems.append(f"the rows lack column {named(lacking)}, which the table has")
    if superfluous := [name for name in wanted if name not in there]:
        problems.append(f"the table lacks column {named(superfluous)}, which the rows have")
    problems += [
        f"column {name} is {kind} in the rows and {there[name]} in the table"
        for name, kind in wanted.items()
        if there.get(name, kind) != kind
    ]
    return (
        f"{'; '.join(sorted(problems))}. Select the columns of the table, or write to a new one with a new checkpoint"
    )


def _say(plan: _Plan, rewrite: _Rewrite, uri: str) -> None:
    counts = iter(rewrite.counts)
    for event, withdrawal in plan.events:
        count = 0 if withdrawal is None else next(counts)
        if withdrawal is not None and (count or event.cause != STARTED):
            what: Any = event.cause if event.topic is None else f"{event.topic}-{event.partition} {event.cause}"
            logger.warning(
                "%s: batch %d withdrew %d rows: %s from offset %s to %s, read again from %s",
                uri, plan.batch_id, count, what, event.from_offset, event.to_offset, event.read_from,
            )  # fmt: skip
