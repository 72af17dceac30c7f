"""What the audit makes of two sets of rows: every kind of difference, and what cannot be told, without a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("deltalake", reason="deltalake is not installed: pip install 'tidelog[spark-delta]'")

from tidelog.spark.audit_comparison import (
    AuditLine,
    PartitionNow,
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
from tidelog.spark.coverage import PartitionKey, Span

pytestmark = pytest.mark.timeout(300)

ID, OTHER = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
COLUMNS = (
    "topicId string, topic string, partition int, offset bigint, leaderEpoch int, name string, tags map<string,int>"
)
Row = tuple[str | None, str, int, int, int | None, str, dict[str, int]]


def row(partition: int, offset: int, epoch: int | None = 1, name: str = "a", *, topic_id: str | None = ID) -> Row:
    return topic_id, "t", partition, offset, epoch, name, {"n": 1}


def test_rows_are_told_apart_by_where_they_come_from(spark: SparkSession) -> None:
    plain, compacted, gone = (PartitionKey("t", ID, number) for number in range(3))
    nameless = PartitionKey("t", None, 3)
    coverage = {
        plain: (Span(0, 50), Span(60, 70)),
        compacted: (Span(0, 50),),
        gone: (Span(0, 50),),
        nameless: (Span(0, 50),),
    }
    known = {
        plain: PartitionNow(10, 100),
        compacted: PartitionNow(0, 45, ((0, 0), (2, 30))),
        nameless: PartitionNow(0, 50),
    }
    expected = [
        *(row(0, offset) for offset in (20, 21, 22, 23, 25)),
        row(0, 20, name="b"),
        row(1, 40, 2),
        row(3, 1, None, topic_id=None),
    ]
    found = [
        row(0, 20),
        row(0, 20, name="b"),
        row(0, 22),  # 21 is missing
        row(0, 22),
        row(0, 22),  # twice too many
        row(0, 23, name="z"),  # changed
        row(0, 25, 0),  # of a leader epoch that the log does not have there: the right one is missing
        row(0, 5),  # removed by retention
        row(0, 55),  # never read
        row(0, 80),  # never read
        row(1, 40, 2, name="z"),  # changed: compaction removes records, and changes none
        row(1, 10, 0),  # compacted away
        row(1, 35, 2),  # compacted away
        row(1, 35, 0),  # never there: epoch 0 ended at 30
        row(1, 47, 2),  # beyond the end of the log
        row(2, 10),  # its topic was deleted
        row(2, 99),  # likewise
        row(0, 20, topic_id=OTHER),  # of a topic that was never read
        row(3, 1, None, topic_id=None),
    ]
    of_log, of_table = (hashed(spark.createDataFrame(rows, COLUMNS), ["name", "tags"]) for rows in (expected, found))
    told = {
        # expected, found, missing, duplicated, phantom, changed, unverifiable, the first that differs
        AuditLine("t", ID, 0, 1, 6, 9, 2, 2, 2, 1, 1, 21),
        AuditLine("t", ID, 0, 0, 0, 1, 0, 0, 1, 0, 0, 25),
        AuditLine("t", ID, 1, 0, 0, 2, 0, 0, 1, 0, 1, 35),
        AuditLine("t", ID, 1, 2, 1, 3, 0, 0, 1, 1, 1, 40),
        AuditLine("t", ID, 2, 1, 0, 2, 0, 0, 0, 0, 2, None),
        AuditLine("t", OTHER, 0, 1, 0, 1, 0, 0, 1, 0, 0, 20),
        AuditLine("t", None, 3, None, 1, 1, 0, 0, 0, 0, 0, None),
    }
    lines = [AuditLine(*one) for one in compare_rows(spark, counted(of_log, of_table), coverage, known).collect()]
    assert set(lines) == told

    # By buckets it comes to the same, and those that are equal or surely gone are not looked into.
    buckets = compare_buckets(spark, summed(of_log, of_table, 4), coverage, known, size=4)
    sums = sums_of(buckets, 4)
    suspects = counted(within(of_log, buckets, 4), within(of_table, buckets, 4))
    looked_into = [AuditLine(*one) for one in compare_rows(spark, suspects, coverage, known).collect()]
    assert merged([*settled_lines(sums, coverage), *looked_into]) == merged(told)
    ranges = {(one.partition, one.leader_epoch): one[-2:] for one in sums if one.topic_key is not None}
    assert ranges == {
        (0, 1): (20, 84),
        (0, 0): (24, 28),
        (1, 0): (8, 36),
        (1, 2): (32, 48),
        (2, 1): (None, None),
        (3, None): (None, None),
    }
    assert sum(line.found for line in looked_into) == 15


CONTENT = {
    "debit": "bigint",
    "credit": "bigint",
    "tags": "array<struct<key:string,text:string>>",
    "times": "map<string,timestamp>",
}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("5, null, null, null", "null, 5, null, null"),
        (
            "1, 1, array(struct('a', null), struct('b', 'c')), null",
            "1, 1, array(struct('a', 'b'), struct('c', null)), null",
        ),
        ("1, 1, array(), null", "1, 1, null, null"),
        ("1, 1, null, map('a', timestamp_micros(1))", "1, 1, null, map('a', timestamp_micros(2))"),
    ],
)
def test_rows_that_differ_have_other_hashes(spark: SparkSession, one: str, other: str) -> None:
    casts = [f"cast(col{number} as {kind}) as {name}" for number, (name, kind) in enumerate(CONTENT.items(), 1)]
    rows = spark.sql(f"SELECT * FROM VALUES ({one}), ({other}), ({one})").selectExpr(
        "'t' as topic", f"'{ID}' as topicId", "0 as partition", "1L as offset", "1 as leaderEpoch", *casts
    )
    assert len({row.digest for row in hashed(rows, list(CONTENT)).collect()}) == 2
