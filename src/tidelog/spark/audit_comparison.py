"""Two sets of rows compared by where they come from: coarsely and fast, then row by row where they differ.

First the rows of 65,536 offsets of a leader epoch are one bucket, with sums of their hashes: a set has the same sums
whatever its order, and tasks add up most of it before anything is shuffled. As a rule all buckets are equal, and that
is all. The rows of buckets that are not are compared one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.spark.coverage import Coverage, PartitionKey

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

KINDS = ("missing", "duplicated", "phantom", "changed")
KEY = ("topic", "topicId", "partition", "offset", "leaderEpoch")
BUCKET_OFFSETS_MIN = 65_536
BUCKETS_AIM = 100_000
"""However much there is, the buckets stay about so many, as each partition and leader epoch begins one of its own."""


@dataclass(frozen=True, slots=True)
class AuditLine:
    """What there is of one leader epoch of a partition.

    Attributes:
        expected: rows that the log gives.
        found: rows in the table.
        missing: expected, and not in the table.
        duplicated: in the table more often than expected.
        phantom: in the table, of a record that the log does not hold, or that gives no such row.
        changed: in the table for the right record, and with another content.
        unverifiable: in the table, of a record that retention, compaction or the deletion of its topic removed.
        first_offset: the least offset of those that differ; None if none does.
    """

    topic: str | None
    topic_id: str | None
    partition: int | None
    leader_epoch: int | None
    expected: int
    found: int
    missing: int
    duplicated: int
    phantom: int
    changed: int
    unverifiable: int
    first_offset: int | None

    @property
    def differences(self) -> int:
        return self.missing + self.duplicated + self.phantom + self.changed

    def plus(self, other: AuditLine) -> AuditLine:
        """This and another of the same leader epoch."""
        counted = ("expected", "found", *KINDS, "unverifiable")
        counts = {name: getattr(self, name) + getattr(other, name) for name in counted}
        firsts = [first for first in (self.first_offset, other.first_offset) if first is not None]
        return replace(self, **counts, first_offset=min(firsts, default=None))


class PartitionNow(NamedTuple):
    """What the cluster says of a partition that the table covers.

    Attributes:
        log_start_offset: the first offset that there is.
        end_offset: exclusive; the last that may be read.
        lineage: of a compacted topic, the leader epochs with their first offsets; else empty.
    """

    log_start_offset: int
    end_offset: int
    lineage: Sequence[tuple[int, int]] = ()


class BucketSums(NamedTuple):
    """What the buckets of one leader epoch of a partition come to.

    Attributes:
        topic_key: the topic's id, or its name if it has none; None for what is not covered.
        expected: rows that the log gives, in buckets that are settled.
        found: rows in the table, in buckets that are settled.
        unverifiable: those of them of which the log holds nothing any more.
        doubtful_from: the first offset of the first bucket that differs; None if none does.
        doubtful_to: exclusive; where the last of them ends.
    """

    topic_key: str | None
    partition: int | None
    leader_epoch: int | None
    expected: int
    found: int
    unverifiable: int
    doubtful_from: int | None
    doubtful_to: int | None


def bucket_offsets(coverage: Coverage) -> int:
    """How many offsets a bucket has: a power of two."""
    total = sum(span.end - span.start for spans in coverage.values() for span in spans)
    size = BUCKET_OFFSETS_MIN
    while size * BUCKETS_AIM < total:
        size *= 2
    return size


def hashed(rows: DataFrame, content: Sequence[str]) -> DataFrame:
    """Where each row comes from, and a hash of its `content`: all other columns that are compared.

    Spark's hash passes over nulls, at any depth: (5, null) has that of (null, 5). So it is told where they are.
    """
    from pyspark.sql import functions as f

    columns: list[Column] = []
    for name in sorted(content):
        if any(nested in rows.schema[name].dataType.simpleString() for nested in ("array<", "map<", "struct<")):
            columns.append(f.to_json(f.struct(name), _EXACT))
        else:
            columns += [f.col(name), f.isnull(name)]
    return rows.select(*KEY, (f.xxhash64(*columns) if columns else f.lit(0).cast("bigint")).alias("digest"))


_EXACT = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options of JSON under which values that differ have texts that differ: as it is, times have milliseconds."""


def summed(expected: DataFrame, found: DataFrame, size: int) -> DataFrame:
    """The buckets, with their sums.

    Args:
        expected: the rows that the log gives, as `hashed` made them.
        found: those of the table, likewise.
        size: what `bucket_offsets` says.
    """
    from pyspark.sql import functions as f

    def summands(frame: DataFrame, sign: int) -> DataFrame:
        hashes = _in_buckets(frame, size).withColumn("h", f.xxhash64("offset", "digest"))
        return hashes.select(
            *_BUCKET,
            f.lit(int(sign > 0)).alias("e"),
            f.lit(int(sign < 0)).alias("a"),
            (f.expr("h & 4294967295L") * sign).alias("low"),
            (f.shiftright("h", 32) * sign).alias("high"),
        )

    return (
        summands(expected, 1)
        .unionByName(summands(found, -1))
        .groupBy(*_BUCKET)
        .agg(*(f.sum(name).alias(name) for name in ("e", "a", "low", "high")))
    )


def compare_buckets(
    spark: SparkSession,
    sums: DataFrame,
    coverage: Coverage,
    known: Mapping[PartitionKey, PartitionNow],
    *,
    size: int,
) -> DataFrame:
    """The buckets, with what `sums_of` and `within` need of them.

    Args:
        spark: the session.
        sums: what `summed` made.
        coverage: as in `compare_rows`.
        known: likewise, after the log was read for the sums.
        size: of the buckets.
    """
    from pyspark.sql import functions as f

    partitions = f.broadcast(
        _partitions(spark, coverage, known).select(
            f.coalesce("of_topic_id", "of_topic").alias("topic_key"), "of_partition", "log_start"
        )
    )
    is_of = f.xxhash64(partitions["topic_key"])
    on = (sums["topic_hash"] == is_of) & (sums["partition"] == partitions["of_partition"])
    differs = (f.col("e") != f.col("a")) | (f.col("low") != 0) | (f.col("high") != 0)
    removed = f.col("log_start").isNull() | ((f.col("bucket") + 1) * size <= f.col("log_start"))
    is_gone = f.coalesce(differs & (f.col("e") == 0) & f.col("topic_key").isNotNull() & removed, f.lit(False))
    return sums.join(partitions, on, "left").select(
        *_BUCKET, "topic_key", "e", "a", is_gone.alias("is_gone"), (differs & ~is_gone).alias("is_doubtful")
    )


def sums_of(buckets: DataFrame, size: int) -> list[BucketSums]:
    """By partition and leader epoch."""
    from pyspark.sql import functions as f

    def where(condition: Column, value: str) -> Column:
        return f.coalesce(f.sum(f.when(condition, f.col(value))), f.lit(0))

    settled, doubtful = ~f.col("is_doubtful"), f.col("is_doubtful")
    found = buckets.groupBy("topic_key", "partition", "leaderEpoch").agg(
        where(settled, "e"),
        where(settled, "a"),
        where(f.col("is_gone"), "a"),
        f.min(f.when(doubtful, f.col("bucket") * size)),
        f.max(f.when(doubtful, (f.col("bucket") + 1) * size)),
    )
    return [BucketSums(*row) for row in found.collect()]


def settled_lines(sums: Iterable[BucketSums], coverage: Coverage) -> list[AuditLine]:
    """What is known without a look at the rows."""
    keys = {(key.topic_id or key.topic, key.partition): key for key in coverage}
    lines = []
    for one in sums:
        if one.found or one.expected:
            key = keys[one.topic_key or "", one.partition or 0]  # buckets of other topics are never settled
            counts = (one.expected, one.found, 0, 0, 0, 0, one.unverifiable, None)
            lines.append(AuditLine(key.topic, key.topic_id, key.partition, one.leader_epoch, *counts))
    return lines


def within(rows: DataFrame, buckets: DataFrame, size: int) -> DataFrame:
    """Those rows that lie in buckets that differ."""
    from pyspark.sql import functions as f

    doubtful = buckets.where("is_doubtful").select(*(f.col(name).alias(f"of_{name}") for name in _BUCKET))
    placed = _in_buckets(rows, size)
    on = placed["bucket"] == doubtful["of_bucket"]
    for name in _BUCKET[:-1]:
        on &= placed[name].eqNullSafe(doubtful[f"of_{name}"])
    return placed.join(f.broadcast(doubtful), on, "left_semi").select(*KEY, "digest")


_BUCKET = ("topic_hash", "partition", "leaderEpoch", "bucket")
"""What tells buckets apart. Grouping by numbers costs a good deal less than by the text of the topic."""


def _in_buckets(rows: DataFrame, size: int) -> DataFrame:
    from pyspark.sql import functions as f

    bits = size.bit_length() - 1
    topic_hash = f.xxhash64(f.coalesce("topicId", "topic"))
    return rows.withColumns({"topic_hash": topic_hash, "bucket": f.shiftright("offset", bits)})


def counted(expected: DataFrame, found: DataFrame) -> DataFrame:
    """By record, how many rows the log gives and the table has, and how far they differ.

    Args:
        expected: the rows that the log gives, as `hashed` made them.
        found: those of the table, likewise.
    """
    from pyspark.sql import functions as f

    rows = (
        expected.withColumns({"e": f.lit(1), "a": f.lit(0)})
        .unionByName(found.withColumns({"e": f.lit(0), "a": f.lit(1)}))
        .groupBy(*KEY, "digest")
        .agg(f.sum("e").alias("e"), f.sum("a").alias("a"))
    )
    return rows.groupBy(*KEY).agg(
        f.sum("e").alias("expected"),
        f.sum("a").alias("found"),
        f.sum(f.greatest(f.col("e") - f.col("a"), f.lit(0))).alias("lacking"),
        f.sum(f.when(f.col("e") > 0, f.greatest(f.col("a") - f.col("e"), f.lit(0))).otherwise(0)).alias("duplicated"),
        f.sum(f.when(f.col("e") > 0, 0).otherwise(f.col("a"))).alias("extra"),
    )


def compare_rows(
    spark: SparkSession, records: DataFrame, coverage: Coverage, known: Mapping[PartitionKey, PartitionNow]
) -> DataFrame:
    """The columns of `AuditLine`, a row for each leader epoch of a partition.

    Args:
        spark: the session.
        records: what `counted` made.
        coverage: what the table should hold.
        known: what the log holds of it, after it was read for the records: what retention removed before is known then.
            A partition that is missing here is no more.
    """
    from pyspark.sql import functions as f

    judged = (
        records.withColumn("changed", f.least("lacking", "extra"))
        .withColumn("missing", f.col("lacking") - f.col("changed"))
        .withColumn("phantom", f.col("extra") - f.col("changed"))
    )
    unsure = f.coalesce(_is_unverifiable(), f.lit(False)) & (f.col("expected") == 0)
    partitions = f.broadcast(_partitions(spark, coverage, known))
    on = (
        (judged["topic"] == partitions["of_topic"])
        & judged["topicId"].eqNullSafe(partitions["of_topic_id"])
        & (judged["partition"] == partitions["of_partition"])
    )
    verdict = (
        judged.join(partitions, on, "left")
        .withColumn("unverifiable", f.when(unsure, f.col("phantom")).otherwise(0))
        .withColumn("phantom", f.when(unsure, 0).otherwise(f.col("phantom")))
    )
    differs = sum((f.col(kind) for kind in KINDS[1:]), f.col(KINDS[0])) > 0
    return verdict.groupBy("topic", "topicId", "partition", "leaderEpoch").agg(
        *(f.sum(name).alias(name) for name in ("expected", "found", *KINDS, "unverifiable")),
        f.min(f.when(differs, f.col("offset"))).alias("first_offset"),
    )


def _is_unverifiable() -> Column:
    """Whether a record that the log does not hold was removed by a rule, and not by an election."""
    from pyspark.sql import functions as f

    covered = f.expr("exists(spans, span -> offset >= span.low and offset < span.high)")
    is_known = f.col("of_topic").isNotNull()
    removed = is_known & (f.col("log_start").isNull() | (f.col("offset") < f.col("log_start")))
    # Compaction leaves no trace of what it removed; but a record of another leader epoch was never at this offset.
    in_line = f.expr(
        "size(lineage) > 0 and offset < log_end and "
        "element_at(filter(lineage, one -> one.low <= offset), -1).epoch = leaderEpoch"
    )
    return removed | (covered & in_line)


def _partitions(spark: SparkSession, coverage: Coverage, known: Mapping[PartitionKey, PartitionNow]) -> DataFrame:
    rows: list[tuple[Any, ...]] = []
    for key, spans in coverage.items():
        now = known.get(key)
        rows.append(
            (
                key.topic,
                key.topic_id,
                key.partition,
                list(spans),
                None if now is None else now.log_start_offset,
                None if now is None else now.end_offset,
                [] if now is None else list(now.lineage),
            )
        )
    return spark.createDataFrame(
        rows,
        "of_topic string, of_topic_id string, of_partition int, spans array<struct<low:bigint,high:bigint>>, "
        "log_start bigint, log_end bigint, lineage array<struct<epoch:int,low:bigint>>",
    )


def merged(lines: Iterable[AuditLine]) -> list[AuditLine]:
    """One line for each leader epoch of a partition, in order."""
    found: dict[tuple[Any, ...], AuditLine] = {}
    for line in lines:
        at = line.topic, line.topic_id, line.partition, line.leader_epoch
        found[at] = line.plus(found[at]) if at in found else line
    return sorted(found.values(), key=_place)


def _place(line: AuditLine) -> tuple[str, str, int, int]:
    partition, leader_epoch = (-1 if number is None else number for number in (line.partition, line.leader_epoch))
    return line.topic or "", line.topic_id or "", partition, leader_epoch
