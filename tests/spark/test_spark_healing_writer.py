"""The healing writer without a stream around it: batches made by hand, with the checkpoint that Spark would have."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.base.errors import ConfigError
from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("deltalake", reason="deltalake is not installed: pip install 'tidelog[spark-delta]'")

from tidelog.spark import healed_aggregate, healing_writer, read_table
from tidelog.spark.aggregates import HealedAggregate
from tidelog.spark.delta import TableFolder
from tidelog.spark.healing import HealingWriter
from tidelog.spark.healing_errors import HealingError
from tidelog.spark.offsets import Loss, ReadPosition, StreamOffset
from tidelog.spark.table_reading import frame_of

pytestmark = pytest.mark.timeout(300)

ID = "AAAAAAAAAAAAAAAAAAAAAQ"
COLUMNS = "topic string, partition int, offset bigint, leaderEpoch int, name string"
T0 = TopicPartition("t", PartitionIndex(0))


def at(offset: int, epoch: int = 0) -> ReadPosition:
    return ReadPosition(Offset(offset), LeaderEpoch(epoch))


class Checkpoint:
    """What Spark writes before a batch runs."""

    def __init__(self, path: Path, query_id: str) -> None:
        self.path = path
        (path / "offsets").mkdir(parents=True)
        (path / "metadata").write_text(json.dumps({"id": query_id}))

    def plan(self, batch_id: int, begin: int | None, end: ReadPosition, **more: Any) -> None:
        begins: Mapping[TopicPartition, ReadPosition] = {} if begin is None else {T0: at(begin)}
        self._write(batch_id, StreamOffset({"t": ID}, {T0: end}, begins, **more))

    def plan_without(self, batch_id: int, **more: Any) -> None:
        """A batch that finds no partition."""
        self._write(batch_id, StreamOffset(**more))

    def _write(self, batch_id: int, offset: StreamOffset) -> None:
        (self.path / "offsets" / str(batch_id)).write_text(f"v1\n{{}}\n{json.dumps(offset.to_json())}")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    found = Checkpoint(tmp_path / "checkpoint", "one")
    found.plan(0, 0, at(10))
    return found


@pytest.fixture
def frame(spark: SparkSession) -> Callable[..., DataFrame]:
    def make(offsets: range, epoch: int = 0) -> DataFrame:
        rows = [("t", 0, offset, epoch, f"{offset}@{epoch}") for offset in offsets]
        return spark.createDataFrame(rows, COLUMNS)

    return make


def names(spark: SparkSession, table: Path) -> list[str]:
    return [row.name for row in read_table(spark, table).orderBy("offset").collect()]


def refused(tag: str, call: Callable[[], None]) -> str:
    """The text, which is one line and says the tag first, though an executor may have raised it."""
    with pytest.raises(Exception, match=rf"\[{tag}\]") as error:
        call()
    text = str(error.value)
    assert text.startswith(f"[{tag}] ")
    assert len(text.splitlines()) == 1
    return text


def test_what_does_not_fit_is_refused_and_changes_nothing(
    spark: SparkSession, tmp_path: Path, checkpoint: Checkpoint, frame: Callable[..., DataFrame]
) -> None:
    table = tmp_path / "table"
    writer = healing_writer(table, checkpoint.path)
    rows = frame(range(10))
    assert "column leaderEpoch is not among the rows" in refused(
        "PROVENANCE_MISSING", lambda: writer(rows.drop("leaderEpoch"), 0)
    )
    assert "includeLeaderEpoch=true" in refused("PROVENANCE_MISSING", lambda: writer(rows.drop("leaderEpoch"), 0))
    assert "column offset is string" in refused(
        "PROVENANCE_MISSING",
        lambda: writer(rows.selectExpr("* except (offset)", "cast(offset as string) as offset"), 0),
    )
    assert "column batchId is the writer's own" in refused(
        "TABLE_SCHEMA", lambda: writer(rows.selectExpr("*", "1 as batchId"), 0)
    )
    assert "column name is" in refused(
        "TABLE_SCHEMA", lambda: writer(rows.selectExpr("* except (name)", "interval 1 day as name"), 0)
    )
    (checkpoint.path / "state" / "0" / "_metadata").mkdir(parents=True)
    assert "/state holds the state of an aggregate" in refused("STATE_CANNOT_HEAL", lambda: writer(rows, 0))
    (checkpoint.path / "state" / "0" / "_metadata").rmdir()
    assert "there is no table, and this is batch 7" in refused("TABLE_BEHIND", lambda: writer(rows, 7))
    assert not table.exists()
    elsewhere = healing_writer(table, tmp_path / "nothing")
    assert "holds no readable metadata" in refused("CHECKPOINT_UNREADABLE", lambda: elsewhere(rows, 0))

    # From here on there is a table, which stays as it is.
    assert "offset 10 of t-0, of which batch 0 reads [0, 10)" in refused(
        "PROVENANCE_WRONG", lambda: writer(rows.selectExpr("* except (offset)", "offset + 1 as offset"), 0)
    )
    assert "column topic is null" in refused(
        "PROVENANCE_MISSING", lambda: writer(rows.selectExpr("* except (topic)", "cast(null as string) as topic"), 0)
    )
    assert names(spark, table) == []
    writer(rows, 0)
    writer(rows, 0)  # once more, as after a crash
    assert names(spark, table) == [f"{offset}@0" for offset in range(10)]
    checkpoint.plan(1, None, at(12))
    assert "the rows lack column name, which the table has" in refused(
        "TABLE_SCHEMA", lambda: writer(frame(range(10, 12)).drop("name"), 1)
    )
    assert "the table lacks column more, which the rows have" in refused(
        "TABLE_SCHEMA", lambda: writer(rows.selectExpr("*", "1 as more"), 1)
    )
    assert "batch 1 of query one is due, and batch 2 came" in refused("TABLE_BEHIND", lambda: writer(rows, 2))
    assert len(names(spark, table)) == 10


def test_withdrawals_and_what_somebody_else_does_meanwhile(
    spark: SparkSession, tmp_path: Path, checkpoint: Checkpoint, frame: Callable[..., DataFrame]
) -> None:
    from deltalake import DeltaTable

    table = tmp_path / "table"
    writer = healing_writer(table, checkpoint.path)
    writer(frame(range(10)), 0)
    counts = healed_aggregate(table, tmp_path / "counts", keys=["leaderEpoch"], aggregates={"n": "count(*)"})
    assert counts(spark) == 1
    assert "holds other groups" in refused(
        "TABLE_NOT_OURS",
        lambda: healed_aggregate(table, tmp_path / "counts", keys=["name"], aggregates={"n": "count(*)"})(spark),  # type: ignore[arg-type]
    )

    # Truncated at 6, while somebody compacts the files just before the commit.
    checkpoint.plan(1, 6, at(9, 3), losses={T0: Loss("truncated", at(10), Offset(6), ID)})
    compacted: list[int] = []

    class Meddler(type(writer)):  # type: ignore[misc]
        def _tell(self, *arguments: Any) -> None:
            super()._tell(*arguments)
            if not compacted:
                compacted.append(1)
                DeltaTable(table).delete("offset = 0")

    Meddler(writer.table, writer.truncations, writer.checkpoint)(frame(range(6, 9), 3), 1)
    assert compacted
    assert names(spark, table) == [f"{offset}@0" for offset in range(1, 6)] + [f"{offset}@3" for offset in range(6, 9)]
    told = read_table(spark, f"{table}_truncations").where("batchId = 1").collect()
    assert [(row.cause, row.fromOffset, row.toOffset, row.withdrawnRows) for row in told] == [("truncated", 6, 10, 4)]
    assert counts(spark) == 2
    assert {tuple(row) for row in read_table(spark, tmp_path / "counts").collect()} == {(0, 5), (3, 3)}

    # A source with nothing new repeats its offset: what it says of losses was dealt with.
    (checkpoint.path / "offsets" / "2").write_text((checkpoint.path / "offsets" / "1").read_text())
    writer(frame(range(0)), 2)
    assert len(names(spark, table)) == 8

    # Another query: its batch 0 must not touch what is there, unless it takes its place.
    other = Checkpoint(tmp_path / "other", "two")
    other.plan(0, 0, at(3))
    rows = frame(range(3), 7)
    assert "replaces='one'" in refused("TABLE_OF_ANOTHER_QUERY", lambda: healing_writer(table, other.path)(rows, 0))
    assert len(names(spark, table)) == 8
    replacing = healing_writer(table, other.path, replaces="one")
    replacing(rows, 0)
    replacing(rows, 0)
    healing_writer(table, other.path)(rows, 0)
    assert names(spark, table) == ["0@7", "1@7", "2@7"]
    assert "holds the rows of query two" in refused("TABLE_OF_ANOTHER_QUERY", lambda: writer(rows, 3))

    # A deleted topic keeps its rows, unless that is wanted.
    other.plan(1, None, at(3), losses={T0: Loss("missing", at(3), None, ID)})
    healing_writer(table, other.path)(frame(range(0)), 1)
    assert len(names(spark, table)) == 3
    other.plan(2, None, at(4), losses={T0: Loss("missing", at(3), None, ID)})
    healing_writer(table, other.path, deleted_topics="withdraw")(frame(range(0)), 2)
    assert names(spark, table) == []


@pytest.mark.parametrize("name", ["a[b", "a]b", "a|b", "a^b", "a\\b", "a%20b", "a{b}"])
def test_a_path_that_deltalake_cannot_take_is_refused_at_once(tmp_path: Path, name: str) -> None:
    told = r"cannot open a table at a path with .* in it: give one without any of \[ \] \{ \} \| \^ \\ and"
    for place in (tmp_path / name, tmp_path / name / "table", f"file://{tmp_path}/{name}"):
        with pytest.raises(ConfigError, match=told):
            healing_writer(place, tmp_path / "checkpoint")
    with pytest.raises(ConfigError, match=told):
        healing_writer(tmp_path / "table", tmp_path / "checkpoint", truncations=tmp_path / name)


@pytest.mark.parametrize("name", ["a b", "a%b", "a#b?c", "é*'+~<"])
def test_other_paths_are_taken(
    spark: SparkSession, tmp_path: Path, checkpoint: Checkpoint, frame: Callable[..., DataFrame], name: str
) -> None:
    writer = healing_writer(tmp_path / name, checkpoint.path)
    writer(frame(range(10)), 0)
    checkpoint.plan(1, 8, at(9, 2), losses={T0: Loss("truncated", at(10), Offset(8), ID)})
    writer(frame(range(8, 9), 2), 1)
    assert names(spark, tmp_path / name) == [*(f"{offset}@0" for offset in range(8)), "8@2"]


def test_tables_of_others_are_left_alone(
    spark: SparkSession, tmp_path: Path, checkpoint: Checkpoint, frame: Callable[..., DataFrame]
) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    foreign = tmp_path / "foreign"
    write_deltalake(foreign, pa.table({"name": ["a"]}))
    assert "healing_writer did not make" in refused(
        "TABLE_NOT_OURS", lambda: healing_writer(foreign, checkpoint.path)(frame(range(1)), 0)
    )
    with pytest.raises(HealingError, match="there is no table"):
        read_table(spark, tmp_path / "none")


def test_a_topic_that_was_missing_and_is_read_again_has_its_rows_once(
    spark: SparkSession, tmp_path: Path, checkpoint: Checkpoint, frame: Callable[..., DataFrame]
) -> None:
    table = tmp_path / "table"
    writer = healing_writer(table, checkpoint.path)
    writer(frame(range(10)), 0)
    checkpoint.plan(1, None, at(10), losses={T0: Loss("missing", at(10), None, ID)})
    writer(frame(range(0)), 1)
    checkpoint.plan(2, 2, at(12))  # retention has removed two records meanwhile
    writer(frame(range(2, 12)), 2)
    assert names(spark, table) == [f"{offset}@0" for offset in range(12)]
    told = read_table(spark, f"{table}_truncations").orderBy("batchId").collect()
    assert [(row.cause, row.withdrawnRows) for row in told] == [("started", 0), ("missing", 0), ("started", 8)]


def test_a_topic_that_comes_back_after_its_rows_were_withdrawn_is_refused(
    spark: SparkSession, tmp_path: Path, checkpoint: Checkpoint, frame: Callable[..., DataFrame]
) -> None:
    for deleted_topics in ("keep", "withdraw"):
        table = tmp_path / deleted_topics
        writer = healing_writer(table, checkpoint.path, deleted_topics=deleted_topics)
        writer(frame(range(10)), 0)
        missing = {T0: Loss("missing", at(10), None, ID)}
        checkpoint.plan_without(1, losses=missing, missing=missing)
        writer(frame(range(0)), 1)
        checkpoint.plan(2, 10, at(12))
        if deleted_topics == "keep":
            writer(frame(range(10, 12)), 2)
            assert names(spark, table) == [f"{offset}@0" for offset in range(12)]
        else:
            with pytest.raises(HealingError, match=r"^\[TABLE_BEHIND\] .*: t-0 was missing, its rows were withdrawn"):
                writer(frame(range(10, 12)), 2)
            assert names(spark, table) == []


def test_a_path_is_one_of_this_machine_whatever_spark_s_default_file_system_is(
    spark: SparkSession, tmp_path: Path, checkpoint: Checkpoint, frame: Callable[..., DataFrame]
) -> None:
    spark.conf.set("fs.defaultFS", "hdfs://127.0.0.1:1")
    try:
        table = tmp_path / "table"
        healing_writer(table, checkpoint.path)(frame(range(3)), 0)
        assert names(spark, table) == ["0@0", "1@0", "2@0"]
    finally:
        spark.conf.unset("fs.defaultFS")


def test_a_table_in_a_store_is_written_and_read_through_deltalake(
    spark: SparkSession, tmp_path: Path, checkpoint: Checkpoint, frame: Callable[..., DataFrame]
) -> None:
    # As s3:// is: no path on this machine, for all that the writer knows.
    table, told = TableFolder(f"file://{tmp_path}/table", {}), TableFolder(f"file://{tmp_path}/told", {})
    assert table.is_remote
    writer = HealingWriter(table, told, str(checkpoint.path))
    writer(frame(range(10)), 0)
    checkpoint.plan(1, 8, at(9, 2), losses={T0: Loss("truncated", at(10), Offset(8), ID)})
    writer(frame(range(8, 9), 2), 1)

    def rows_of(folder: TableFolder, column: str) -> list[Any]:
        snapshot = folder.open()
        assert snapshot is not None
        return sorted(row[0] for row in frame_of(spark, snapshot, snapshot.files()).select(column).collect())

    assert rows_of(table, "name") == [*(f"{offset}@0" for offset in range(8)), "8@2"]
    assert rows_of(told, "withdrawnRows") == [0, 2]
    counts = HealedAggregate(table, TableFolder(f"file://{tmp_path}/counts", {}), ("leaderEpoch",), {"n": "count(*)"})
    assert counts(spark) == 2
    assert rows_of(counts.table, "n") == [1, 8]
