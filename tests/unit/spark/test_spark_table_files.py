"""What executors do for a table, without Spark: files written, and written anew without rows, here and in a store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'tidelog[spark]'")
pytest.importorskip("deltalake", reason="deltalake is not installed: pip install 'tidelog[spark-delta]'")

import pyarrow.parquet as pq  # noqa: E402

from tidelog.base.errors import ConfigError  # noqa: E402
from tidelog.spark.delta import CommitFailedError, NewFile, TableFolder  # noqa: E402
from tidelog.spark.healing import healing_writer  # noqa: E402
from tidelog.spark.healing_errors import HealingError  # noqa: E402
from tidelog.spark.table_files import BatchProvenance, FileWriter, remove_rows, row_writer  # noqa: E402
from tidelog.spark.withdrawal import Withdrawal  # noqa: E402

ID = "AAAAAAAAAAAAAAAAAAAAAQ"
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("leaderEpoch", pa.int32()),
        ("tags", pa.list_(pa.string())),
    ]
)
WHOLE = pa.schema([*SCHEMA, ("topicId", pa.string()), ("queryId", pa.string()), ("batchId", pa.int64())])


def rows(first: int, count: int, topic: str = "t", partition: int = 0) -> Any:
    return pa.RecordBatch.from_pydict(
        {
            "topic": [topic] * count,
            "partition": [partition] * count,
            "offset": range(first, first + count),
            "leaderEpoch": [None] * count,
            "tags": [["a"]] * count,
        },
        SCHEMA,
    )


def provenance(**ranges: tuple[int, int]) -> BatchProvenance:
    return BatchProvenance("query", 7, {"t": ID, "u": None}, {(topic, 0): span for topic, span in ranges.items()})


@pytest.fixture(params=["", "file://"], ids=["on this machine", "through deltalake"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> TableFolder:
    """The second is how a table in an object store is reached."""
    return TableFolder(f"{request.param}{tmp_path}")


def written(folder: TableFolder, *batches: Any, **ranges: tuple[int, int]) -> NewFile:
    (result,) = row_writer(folder, provenance(**ranges), WHOLE.names)(iter(batches))
    (found,) = result.to_pylist()
    return NewFile(**found)


def test_rows_are_completed_written_and_counted(folder: TableFolder) -> None:
    file = written(folder, rows(10, 3), rows(0, 0), rows(5, 2, "u"), t=(10, 13), u=(5, 9))
    with folder.filesystem().open_input_file(file.path) as source:
        table = pq.read_table(source)
    assert table.schema.equals(WHOLE)
    assert table.column("topicId").to_pylist() == [ID] * 3 + [None] * 2
    added = zip(table.column("queryId").to_pylist(), table.column("batchId").to_pylist(), strict=True)
    assert set(added) == {("query", 7)}
    stats = json.loads(file.stats)
    assert (file.row_count, stats["numRecords"]) == (5, 5)
    assert stats["minValues"] == {
        "topic": "t", "partition": 0, "offset": 5, "topicId": ID, "queryId": "query", "batchId": 7,
    }  # fmt: skip
    assert (stats["maxValues"]["topic"], stats["maxValues"]["offset"]) == ("u", 12)
    assert (stats["nullCount"]["leaderEpoch"], stats["nullCount"]["topicId"]) == (5, 2)
    assert list(row_writer(folder, provenance(), WHOLE.names)(iter([rows(0, 0)]))) == []


@pytest.mark.parametrize(
    ("batch", "tag", "says"),
    [
        (rows(9, 1), "PROVENANCE_WRONG", "offset 9 of t-0, of which batch 7 reads [10, 20)"),
        (rows(20, 1), "PROVENANCE_WRONG", "offset 20 of t-0"),
        (rows(10, 1, partition=1), "PROVENANCE_WRONG", "offset 10 of t-1"),
        (rows(10, 1, "v"), "PROVENANCE_WRONG", "offset 10 of v-0"),
        (
            rows(10, 1).set_column(2, SCHEMA.field("offset"), pa.array([None], pa.int64())),
            "PROVENANCE_MISSING",
            "column offset is null in 1 rows",
        ),
    ],
)
def test_rows_that_the_batch_does_not_read_are_refused(tmp_path: Path, batch: Any, tag: str, says: str) -> None:
    with pytest.raises(HealingError) as error:
        written(TableFolder(str(tmp_path)), batch, t=(10, 20))
    assert error.value.tag == tag
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_rows_are_taken_out_of_files(folder: TableFolder) -> None:
    file = written(folder, rows(10, 10), rows(100, 5, "u"), t=(10, 20), u=(100, 105))
    filesystem = folder.filesystem()

    def without(*withdrawals: Withdrawal) -> tuple[list[int] | None, list[int]]:
        found = remove_rows(filesystem, file.path, withdrawals)
        if found is None:
            return None, []
        if found["path"] is None:
            return found["withdrawn"], []
        with filesystem.open_input_file(found["path"]) as source:
            left = pq.read_table(source)
        assert left.schema.equals(WHOLE)
        assert left.num_rows == found["row_count"]
        return found["withdrawn"], left.column("offset").to_pylist()

    every, others = list(range(10, 20)), list(range(100, 105))
    assert without(Withdrawal(topic_id=ID, partition=0, from_offset=15)) == ([5], every[:5] + others)
    assert without(Withdrawal(topic_id=ID, partition=0, from_offset=20)) == (None, [])
    assert without(Withdrawal(topic_id=ID, partition=1, from_offset=0)) == (None, [])
    assert without(Withdrawal(topic="u", partition=0, from_offset=0)) == ([5], every)
    assert without(Withdrawal(query_id="query")) == ([15], [])
    assert without(Withdrawal(query_id="other")) == (None, [])
    # A row that two take is counted once.
    both = Withdrawal(topic_id=ID, partition=0, from_offset=18), Withdrawal(topic_id=ID)
    assert without(*both) == ([2, 8], others)


def test_files_of_other_writers_are_read_as_well(tmp_path: Path) -> None:
    table = pa.Table.from_batches([rows(0, 4)])
    layout = pa.schema(
        [
            ("topic", pa.string_view()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("leaderEpoch", pa.int32()),
            ("tags", pa.large_list(pa.large_string())),
        ]
    )
    table = table.cast(layout).append_column("topicId", pa.array([ID] * 4, pa.dictionary(pa.int32(), pa.string())))
    pq.write_table(table.append_column("queryId", pa.array(["q"] * 4)), tmp_path / "file.parquet")
    filesystem = TableFolder(str(tmp_path)).filesystem()
    found = remove_rows(filesystem, "file.parquet", [Withdrawal(topic_id=ID, from_offset=1)])
    assert found is not None
    assert found["withdrawn"] == [3]
    left = pq.read_table(tmp_path / found["path"])
    assert left.schema.equals(pa.schema([*SCHEMA, ("topicId", pa.string()), ("queryId", pa.string())]))


def test_a_version_is_checked_in_the_snapshot_that_is_committed_to(tmp_path: Path) -> None:
    folder = TableFolder.at(tmp_path / "table", None)
    folder.create(WHOLE, {"tidelog.healing": "1"}, "")
    one, other = folder.open(), folder.open()
    assert one is not None
    assert other is not None
    one.commit([], transaction=("app", 0))
    with pytest.raises(CommitFailedError):
        other.commit([], transaction=("app", 0))
    for number in range(1, 130):  # beyond the first checkpoint of the table's log
        one = folder.open()
        assert one is not None
        assert one.transaction_version("app") == number - 1
        one.commit([], transaction=("app", number))
    with pytest.raises(HealingError, match=r"\[TABLE_NOT_SHARED\]"):
        one.commit([NewFile("absent.parquet", 1, 1, "{}")], transaction=("app", 200))


def test_a_file_writer_without_rows_makes_no_file(tmp_path: Path) -> None:
    assert FileWriter(TableFolder(str(tmp_path)).filesystem()).close() is None
    assert list(tmp_path.iterdir()) == []


def test_arguments_that_cannot_be_meant() -> None:
    with pytest.raises(ConfigError, match="deleted_topics=drop: keep or withdraw"):
        healing_writer("/t", "/c", deleted_topics="drop")
    with pytest.raises(ConfigError, match="it is the table itself"):
        healing_writer("/t", "/c", truncations="/t/")
