"""What executors do for a table: write rows into new files, and files anew without the rows that are withdrawn.

The rows never meet in one place: each task streams through its own, and returns what it wrote in a line. A file of a
task that failed, or ran twice, is in the folder and not in the table; `DeltaTable.vacuum` removes it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import MissingExtraError
from tidelog.spark.delta import NewFile, TableFolder
from tidelog.spark.healing_errors import HealingError
from tidelog.spark.withdrawal import Withdrawal

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
except ImportError:  # pragma: no cover - deltalake is not there without
    raise MissingExtraError("a table that heals", "spark-delta") from None

if TYPE_CHECKING:
    from pyarrow import fs

PROVENANCE = {"topic": "string", "partition": "int", "offset": "bigint", "leaderEpoch": "int"}
"""The columns of the source that must be among the rows: name and type."""
ADDED = {"topicId": "string", "queryId": "string", "batchId": "bigint"}
"""Those that the writer adds."""

WRITTEN = "path string, size_bytes bigint, row_count bigint, stats string"
REWRITTEN = f"old_path string, withdrawn array<bigint>, {WRITTEN}"
"""What tasks return, in Spark's words."""

ROW_GROUP_ROWS_MAX = 250_000
ROW_GROUP_BYTES_MAX = 64 * 1024 * 1024
"""What a task holds in memory before it writes it down."""
STATS_TEXT_LENGTH_MAX = 64
STATS_COLUMNS_MAX = 32
COMPRESSION = "zstd"

Batches = Iterator[pa.RecordBatch]


class FileWriter:
    """One Parquet file of a table, which is made when there is a first row."""

    def __init__(self, filesystem: fs.FileSystem) -> None:
        self._filesystem = filesystem
        self._path = f"part-{uuid.uuid4()}.parquet"
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._row_count = 0
        self._stats = _Stats()

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        self._stats.add(batch)
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if self._waiting_rows >= ROW_GROUP_ROWS_MAX or self._waiting_bytes >= ROW_GROUP_BYTES_MAX:
            self._flush()

    def close(self) -> NewFile | None:
        """The file, whole; None if no row came."""
        self._flush()
        if self._writer is None:
            return None
        self._writer.close()
        size_bytes = self._filesystem.get_file_info(self._path).size
        return NewFile(self._path, size_bytes, self._row_count, self._stats.to_json(self._row_count))

    def _flush(self) -> None:
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting)
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._path, table.schema, filesystem=self._filesystem, compression=COMPRESSION
            )
        self._writer.write_table(table, row_group_size=ROW_GROUP_ROWS_MAX)
        self._row_count += table.num_rows
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0


class _Stats:
    """The least and the greatest value of each simple column."""

    def __init__(self) -> None:
        self._low: dict[str, Any] = {}
        self._high: dict[str, Any] = {}
        self._nulls: dict[str, int] = {}
        self._unfit: set[str] = set()

    def add(self, batch: pa.RecordBatch) -> None:
        simple = [one for one in batch.schema if _has_stats(one.type)]
        simple.sort(key=lambda one: one.name not in PROVENANCE and one.name not in ADDED)  # withdrawals look at these
        for one in simple[:STATS_COLUMNS_MAX]:
            column = batch.column(one.name)
            self._nulls[one.name] = self._nulls.get(one.name, 0) + column.null_count
            found = pc.min_max(column).as_py()
            for values, value, better in ((self._low, found["min"], min), (self._high, found["max"], max)):
                if value is None or one.name in self._unfit:
                    continue
                if isinstance(value, str) and len(value) > STATS_TEXT_LENGTH_MAX:
                    self._unfit.add(one.name)
                    continue
                values[one.name] = value if one.name not in values else better(values[one.name], value)

    def to_json(self, row_count: int) -> str:
        def fit(values: Mapping[str, Any]) -> dict[str, Any]:
            return {
                name: value.isoformat() if isinstance(value, date) else value
                for name, value in values.items()
                if name not in self._unfit
            }

        stats = {"numRecords": row_count, "minValues": fit(self._low), "maxValues": fit(self._high)}
        return json.dumps({**stats, "nullCount": self._nulls})


def _has_stats(kind: pa.DataType) -> bool:
    return any(is_such(kind) for is_such in (pa.types.is_integer, pa.types.is_string, pa.types.is_date32))


@dataclass(frozen=True)
class BatchProvenance:
    """What the rows of one micro-batch may say of where they come from.

    Attributes:
        ranges: by topic and partition, the offsets that the batch reads: [start, end).
        topic_ids: of the topics.
    """

    query_id: str
    batch_id: int
    topic_ids: Mapping[str, str | None]
    ranges: Mapping[tuple[str, int], tuple[int, int]] = field(default_factory=dict)

    def completed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with the columns of ADDED.

        Raises:
            HealingError: PROVENANCE_MISSING, PROVENANCE_WRONG: a row cannot come from what the batch reads.
        """
        for name in ("topic", "partition", "offset"):
            if batch.column(name).null_count:
                raise HealingError(
                    "PROVENANCE_MISSING",
                    f"column {name} is null in {batch.column(name).null_count} rows of batch {self.batch_id}: which "
                    "record a row comes from must be known of each; leave such rows out, or write them elsewhere",
                )
        self._check(batch)
        topics = pa.array(list(self.topic_ids), pa.string())
        ids = pa.array(list(self.topic_ids.values()), pa.string())
        count = batch.num_rows
        added = {
            "topicId": ids.take(pc.index_in(batch.column("topic"), value_set=topics)),
            "queryId": pa.repeat(pa.scalar(self.query_id), count),
            "batchId": pa.repeat(pa.scalar(self.batch_id, pa.int64()), count),
        }
        for name, column in added.items():
            batch = batch.append_column(pa.field(name, column.type), column)
        return batch

    def _check(self, batch: pa.RecordBatch) -> None:
        found = pa.Table.from_batches([batch.select(["topic", "partition", "offset"])])
        grouped = found.group_by(["topic", "partition"]).aggregate([("offset", "min"), ("offset", "max")])
        for row in grouped.to_pylist():
            start, end = self.ranges.get((row["topic"], row["partition"]), (0, 0))
            for offset in (row["offset_min"], row["offset_max"]):
                if not start <= offset < end:
                    raise HealingError(
                        "PROVENANCE_WRONG",
                        f"a row says that it comes from offset {offset} of {row['topic']}-{row['partition']}, of which "
                        f"batch {self.batch_id} reads [{start}, {end}): pass topic, partition, offset and leaderEpoch "
                        "through as the source gave them",
                    )


def row_writer(
    folder: TableFolder, provenance: BatchProvenance | None, columns: Sequence[str]
) -> Callable[[Batches], Batches]:
    """For `mapInArrow`: writes the rows of a task into one file, and yields what it is (WRITTEN).

    Args:
        folder: of the table.
        provenance: completes the rows; None leaves them as they are.
        columns: of the table, in their order.
    """

    def write(batches: Batches) -> Batches:
        if provenance is not None:
            _check_query(provenance.query_id)
        writer = FileWriter(folder.filesystem())
        for batch in batches:
            rows = batch if provenance is None or not batch.num_rows else provenance.completed(batch)
            if rows.num_rows:
                writer.write(rows.select(columns))
        written = writer.close()
        if written is not None:
            yield _as_batch([written._asdict()])

    return write


def row_remover(folder: TableFolder, withdrawals: Sequence[Withdrawal]) -> Callable[[Batches], Batches]:
    """For `mapInArrow` over paths of files: writes each anew without the rows that are withdrawn (REWRITTEN).

    A file that holds none of them is left out. `path` is null where nothing is left of a file.
    """

    def rewrite(batches: Batches) -> Batches:
        filesystem = folder.filesystem()
        for batch in batches:
            for path in batch.column(0).to_pylist():
                found = remove_rows(filesystem, path, withdrawals)
                if found is not None:
                    yield _as_batch([found])

    return rewrite


def remove_rows(filesystem: fs.FileSystem, path: str, withdrawals: Sequence[Withdrawal]) -> dict[str, Any] | None:
    """One file of REWRITTEN; None if it holds nothing that is withdrawn."""
    wanted = ["topic", "topicId", "partition", "offset", "queryId"]
    counts = [0] * len(withdrawals)
    with filesystem.open_input_file(path) as source:
        file = pq.ParquetFile(source)
        for batch in map(plain, file.iter_batches(columns=wanted)):
            left = pa.repeat(pa.scalar(True), batch.num_rows)
            for number, withdrawal in enumerate(withdrawals):
                hit = pc.and_(left, _mask(batch, withdrawal))
                counts[number] += pc.sum(hit).as_py() or 0
                left = pc.and_(left, pc.invert(hit))
        if not sum(counts):
            return None
        result: dict[str, Any] = {"old_path": path, "withdrawn": counts}
        written = None
        if sum(counts) < file.metadata.num_rows:
            writer = FileWriter(filesystem)
            for batch in map(plain, file.iter_batches()):
                gone = pa.repeat(pa.scalar(False), batch.num_rows)
                for withdrawal in withdrawals:
                    gone = pc.or_(gone, _mask(batch, withdrawal))
                writer.write(batch.filter(pc.invert(gone)))
            written = writer.close()
        return {**result, **(written._asdict() if written is not None else dict.fromkeys(NewFile._fields))}


def plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same with the types that Spark gives: a file says in which of Arrow's layouts its writer held its columns."""
    schema = pa.schema([field.with_type(_plain_type(field.type)) for field in batch.schema])
    return batch if schema.equals(batch.schema) else batch.cast(schema)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_string_view(kind) or types.is_large_string(kind):
        return pa.string()
    if types.is_binary_view(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if types.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    if types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_list_view(kind) or types.is_large_list_view(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type)))
    return kind


def _mask(batch: pa.RecordBatch, withdrawal: Withdrawal) -> pa.Array:
    """Which rows a withdrawal takes. Never null."""
    mask = pa.repeat(pa.scalar(True), batch.num_rows)
    wanted = {
        "topic": withdrawal.topic,
        "topicId": withdrawal.topic_id,
        "partition": withdrawal.partition,
        "queryId": withdrawal.query_id,
    }
    for name, value in wanted.items():
        if value is not None:
            mask = pc.and_(mask, pc.fill_null(pc.equal(batch.column(name), value), False))
    if withdrawal.from_offset is not None:
        mask = pc.and_(mask, pc.fill_null(pc.greater_equal(batch.column("offset"), withdrawal.from_offset), False))
    return mask


def _as_batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    kinds = {
        "old_path": pa.string(),
        "withdrawn": pa.list_(pa.int64()),
        "path": pa.string(),
        "size_bytes": pa.int64(),
        "row_count": pa.int64(),
        "stats": pa.string(),
    }
    return pa.RecordBatch.from_pylist(rows, schema=pa.schema([(name, kinds[name]) for name in rows[0]]))


def _check_query(query_id: str) -> None:
    """Refuse a checkpoint that is not that of the query that runs.

    Raises:
        HealingError: CHECKPOINT_UNREADABLE.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    running = None if context is None else context.getLocalProperty("sql.streaming.queryId")
    if running is not None and running != query_id:
        raise HealingError(
            "CHECKPOINT_UNREADABLE",
            f"the checkpoint given to healing_writer is that of query {query_id}, and query {running} runs: "
            "give the path that is the query's checkpointLocation",
        )
