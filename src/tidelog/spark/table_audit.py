"""Whether a table holds what the log holds: its rows are derived anew and compared, by a Spark job of its own.

Nothing is collected but counts, for each leader epoch of a partition.

    the log, as far as the table's last batch reads ── the same SQL ──┐
                                                                      ├─ compared ─ counts by partition and epoch
    the table, at one version ────────────────────────────────────────┘
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.base.ids import TopicPartition
from tidelog.client.core.positions import Questions
from tidelog.spark.audit_comparison import (
    KEY,
    AuditLine,
    BucketSums,
    PartitionNow,
    bucket_offsets,
    compare_buckets,
    compare_rows,
    counted,
    hashed,
    merged,
    settled_lines,
    summed,
    sums_of,
    within,
)
from tidelog.spark.cluster import RealCluster
from tidelog.spark.coverage import Coverage, PartitionKey, Span, coverage_of
from tidelog.spark.delta import TableFolder, TableSnapshot, all_nullable, column_types
from tidelog.spark.healing import QUERY_PROPERTY, app_id, check_ours, truncations_path
from tidelog.spark.healing_errors import HealingError
from tidelog.spark.offsets import ReadPosition
from tidelog.spark.options import source_options
from tidelog.spark.plan import ClusterFacts
from tidelog.spark.table_files import ADDED, PROVENANCE
from tidelog.spark.table_reading import frame_of
from tidelog.spark.truncation import PartitionFacts, place
from tidelog.spark.withdrawal import Event
from tidelog.spark.write_ahead_log import WriteAheadLog

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Derive = str | Callable[["DataFrame"], "DataFrame"]
VIEW = "records"
_TASK_RECORDS = 500_000


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What came of an audit.

    Attributes:
        lines: by topic, partition and leader epoch.
        query_id: whose rows they are.
        batch_id: the last batch that the table holds; None before the first.
        table_version: the version of the table that was compared.
    """

    lines: Sequence[AuditLine]
    query_id: str
    batch_id: int | None
    table_version: int

    @property
    def differences(self) -> int:
        """How many rows are missing, duplicated, phantom or changed."""
        return sum(line.differences for line in self.lines)

    @property
    def unverifiable(self) -> int:
        return sum(line.unverifiable for line in self.lines)

    @property
    def matching(self) -> int:
        """How many rows are in the table as the log gives them."""
        return sum(line.expected - line.missing - line.changed for line in self.lines)

    @property
    def is_clean(self) -> bool:
        """Whether nothing differs. What is unverifiable does not count."""
        return not self.differences


def audit(
    spark: SparkSession,
    table: str | os.PathLike[str],
    checkpoint: str | os.PathLike[str],
    derive: Derive,
    options: Mapping[str, str],
    *,
    truncations: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> AuditReport:
    """Derive the rows of a table anew, and compare.

    The log is read as far as the table's last batch did, and no farther. The query may run meanwhile.

    Args:
        spark: any session.
        table: the table that healing_writer writes.
        checkpoint: the query's.
        derive: what the query does with records: a function from DataFrame to DataFrame, or a SELECT from `records`.
            It must give the same rows each time: no current time, no random numbers.
        options: of the query's source; topics and offsets are not needed, and not looked at.
        truncations: the table beside it, if it is not at its usual place.
        storage_options: of deltalake.

    Raises:
        HealingError: the table or the checkpoint are not what they should be.
        LogTruncatedError: records were lost while they were read: run it again.
        TimedOutError: the brokers cannot be reached.
    """
    folder = TableFolder.at(table, storage_options)
    snapshot = folder.open()
    if snapshot is None:
        raise HealingError("TABLE_NOT_OURS", f"{folder.uri}: there is no table")
    check_ours(snapshot)
    log = WriteAheadLog(os.fspath(checkpoint), spark)
    query_id = log.query_id()
    owner = snapshot.properties.get(QUERY_PROPERTY)
    if owner != query_id:
        raise HealingError(
            "TABLE_OF_ANOTHER_QUERY",
            f"{folder.uri} holds the rows of query {owner}, and {log.path} is the checkpoint of query {query_id}",
        )
    batch_id = snapshot.transaction_version(app_id(query_id))
    if batch_id is None:
        return AuditReport([], query_id, None, snapshot.version)
    told = TableFolder.at(truncations_path(table) if truncations is None else truncations, storage_options)
    coverage = coverage_of(_events(told, query_id, batch_id), log.ends(batch_id))
    client = {name: value for name, value in options.items() if name.lower() not in _PLACES}
    known = _facts(client, coverage)
    wanted = _wanted(coverage, known)
    table_rows = frame_of(spark, snapshot, snapshot.files())
    content = [name for name in snapshot.column_types() if name not in KEY and name not in ADDED]

    with ExitStack() as closing:

        def of_log(part: Mapping[PartitionKey, Span]) -> DataFrame:
            records = _records(spark, client, part, coverage)
            rows = _selected(records, derive, closing) if isinstance(derive, str) else derive(records)
            return hashed(_expected(rows, part, snapshot), content)

        def read_whole(frame: DataFrame) -> DataFrame:
            closing.callback(frame.persist().unpersist)
            frame.count()
            return frame

        of_table, size = hashed(table_rows, content), bucket_offsets(coverage)
        in_buckets = read_whole(summed(of_log(wanted), of_table, size))
        buckets = compare_buckets(spark, in_buckets, coverage, _with_log_starts(known, client, coverage), size=size)
        sums = sums_of(buckets, size)
        lines = settled_lines(sums, coverage)
        if any(one.doubtful_from is not None for one in sums):
            again = of_log(_doubtful(wanted, sums))
            records = read_whole(counted(within(again, buckets, size), within(of_table, buckets, size)))
            compared = compare_rows(spark, records, coverage, _with_log_starts(known, client, coverage))
            lines += (AuditLine(*row) for row in compared.collect())
    lines = merged(lines)
    return AuditReport(lines, query_id, batch_id, snapshot.version)


_PLACES = frozenset(
    {
        "assign", "subscribe", "subscribepattern", "startingtimestamp", "startingoffsetsbytimestamp", "startingoffsets",
        "startingoffsetsbytimestampstrategy", "endingtimestamp", "endingoffsetsbytimestamp", "endingoffsets",
        "failondataloss", "ontruncation", "maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay",
        "includeleaderepoch", "maxrecordsperpartition", "checkpoint",
    }
)  # fmt: skip
"""Options of the query's source that say where and when it reads: the audit knows better."""


def _events(told: TableFolder, query_id: str, batch_id: int) -> Iterable[tuple[int, Event]]:
    snapshot = told.open()
    if snapshot is None:
        raise HealingError(
            "TABLE_NOT_OURS", f"{told.uri}: the table of truncations is not there, which tells where the query began"
        )
    for row in snapshot.read():
        if row["queryId"] == query_id and row["batchId"] <= batch_id:
            event = Event(
                row["cause"], row["topic"], row["topicId"], row["partition"], row["fromOffset"], row["toOffset"],
                row["readFrom"],
            )  # fmt: skip
            yield row["batchId"], event


def _facts(client: Mapping[str, str], coverage: Coverage) -> dict[PartitionKey, PartitionNow]:
    """Of those partitions of which the topic is still the one that was read."""
    if not coverage:
        return {}
    topics = ",".join(sorted({key.topic for key in coverage}))
    options = source_options({**client, "subscribe": topics}, streaming=True)
    cluster = RealCluster(options)
    try:
        facts: ClusterFacts = cluster.patiently("look at the topics", cluster.facts)
        there = {
            key: TopicPartition(key.topic, key.partition)
            for key in coverage
            if TopicPartition(key.topic, key.partition) in facts.partitions
            and (key.topic_id is None or facts.topic_ids.get(key.topic) in (None, key.topic_id))
        }
        compacted = {at for at in there.values() if at.topic in facts.with_gaps}
        ends = cluster.patiently(
            "look up the leader epochs",
            lambda: cluster.ask({at: _whole_lineage(facts.partitions[at]) for at in compacted}, facts),
        )
    finally:
        cluster.close()
    known = {}
    for key, at in there.items():
        now, end = facts.partitions[at], ends.get(at)
        lineage = [] if end is None else end.lineage or [(end.leader_epoch or 0, 0)]
        known[key] = PartitionNow(now.log_start_offset, now.end_offset, [(int(e), int(o)) for e, o in lineage])
    return known


def _with_log_starts(
    known: Mapping[PartitionKey, PartitionNow], client: Mapping[str, str], coverage: Coverage
) -> dict[PartitionKey, PartitionNow]:
    """The same with the log starts of now: retention goes on while the log is read, and what it removes is no loss."""
    now = _facts(client, coverage)
    return {key: at._replace(log_start_offset=now[key].log_start_offset) for key, at in known.items() if key in now}


def _whole_lineage(now: PartitionFacts) -> Questions[ReadPosition]:
    """The end of a partition, with all leader epochs of its log: a row may come from a record of any of them."""
    return place(now.end_offset, now, epochs_max=None)


def _wanted(coverage: Coverage, known: Mapping[PartitionKey, PartitionNow]) -> dict[PartitionKey, Span]:
    """What is read of each partition: from the first offset that is covered and there to the last."""
    wanted = {}
    for key, now in known.items():
        first = max(coverage[key][0].start, now.log_start_offset)
        last = min(coverage[key][-1].end, now.end_offset)
        if first < last:
            wanted[key] = Span(first, last)
    return wanted


def _doubtful(wanted: Mapping[PartitionKey, Span], sums: Iterable[BucketSums]) -> dict[PartitionKey, Span]:
    """What of the log is read again: of each partition, from the first bucket that differs to the last."""
    ranges: dict[tuple[str | None, int | None], Span] = {}
    for one in sums:
        if one.doubtful_from is not None and one.doubtful_to is not None:
            at = one.topic_key, one.partition
            known = ranges.get(at, Span(one.doubtful_from, one.doubtful_to))
            ranges[at] = Span(min(known.start, one.doubtful_from), max(known.end, one.doubtful_to))
    again = {}
    for key, span in wanted.items():
        doubtful = ranges.get((key.topic_id or key.topic, key.partition))
        if doubtful is not None and max(span.start, doubtful.start) < min(span.end, doubtful.end):
            again[key] = Span(max(span.start, doubtful.start), min(span.end, doubtful.end))
    return again


def _records(
    spark: SparkSession, client: Mapping[str, str], wanted: Mapping[PartitionKey, Span], coverage: Coverage
) -> DataFrame:
    from pyspark.sql import functions as f

    reader = spark.read.format("tidelog").options(**client).option("includeLeaderEpoch", "true")
    if not wanted:
        from tidelog.spark.source import TidelogSource

        schema = TidelogSource({**client, "includeLeaderEpoch": "true"}).schema()
        return spark.createDataFrame([], schema)

    def by_partition(value: Callable[[Span], int]) -> str:
        found: dict[str, dict[str, int]] = {}
        for key, span in wanted.items():
            found.setdefault(key.topic, {})[str(key.partition)] = value(span)
        return json.dumps(found)

    assigned: dict[str, list[int]] = {}
    for key in wanted:
        assigned.setdefault(key.topic, []).append(key.partition)
    frame = (
        reader.option("failOnDataLoss", "false")  # what retention removes meanwhile is known afterwards
        .option("assign", json.dumps(assigned))
        .option("startingOffsets", by_partition(lambda span: span.start))
        .option("endingOffsets", by_partition(lambda span: span.end))
        .option("maxRecordsPerPartition", str(_TASK_RECORDS))
        .load()
    )
    for key in wanted:
        for before, after in zip(coverage[key], coverage[key][1:], strict=False):
            in_gap = (f.col("offset") >= before.end) & (f.col("offset") < after.start)
            here = (f.col("topic") == key.topic) & (f.col("partition") == key.partition)
            frame = frame.where(~(here & in_gap))
    return frame


def _expected(rows: DataFrame, wanted: Mapping[PartitionKey, Span], snapshot: TableSnapshot) -> DataFrame:
    """The rows that the log gives, with the columns of the table but for query and batch."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import to_arrow_schema

    for name in PROVENANCE:
        if name not in rows.columns:
            raise HealingError("PROVENANCE_MISSING", f"column {name} is not among the rows that are derived anew")
    there = {name: kind for name, kind in snapshot.column_types().items() if name not in ADDED}
    derived = column_types("the rows derived anew", to_arrow_schema(all_nullable(rows.schema), timezone="UTC"))
    if derived != there:
        unequal = sorted(name for name in derived.keys() | there.keys() if derived.get(name) != there.get(name))
        raise HealingError(
            "TABLE_SCHEMA",
            f"{snapshot.folder.uri}: the rows derived anew differ in column {', '.join(unequal)}: is this what the "
            "query does with records?",
        )
    topic_id: Column = f.lit(None).cast("string")
    for key in {PartitionKey(key.topic, key.topic_id, 0) for key in wanted}:
        topic_id = f.when(f.col("topic") == key.topic, f.lit(key.topic_id)).otherwise(topic_id)
    return rows.withColumn("topicId", topic_id)


def _selected(records: DataFrame, sql: str, closing: ExitStack) -> DataFrame:
    """What a SELECT from the view gives. A view of the session that has the same name stays as it is.

    Spark Connect looks the names of a plan up whenever it runs it. So the records are a view of a name of its own until
    `closing` ends, and the SELECT knows it as VIEW.
    """
    spark, name = records.sparkSession, f"tidelog_audit_{uuid.uuid4().hex}"
    records.createOrReplaceTempView(name)
    closing.callback(spark.catalog.dropTempView, name)
    selected = sql.strip().rstrip(";")
    return spark.sql(f"WITH {VIEW} AS (TABLE {name}) SELECT * FROM (\n{selected}\n)")  # noqa: S608 - it is the user's
