"""The rows of a Delta table as a DataFrame, without Spark's own Delta connector: its files are Parquet."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tidelog.spark.delta import TableFile, TableFolder, TableSnapshot
from tidelog.spark.healing_errors import HealingError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def read_table(
    spark: SparkSession, table: str | os.PathLike[str], *, storage_options: Mapping[str, str] | None = None
) -> DataFrame:
    """The rows that a table of `healing_writer` or `healed_aggregate` holds now.

    A table elsewhere (s3://…) is read by the executors through deltalake, with `storage_options`.

    Raises:
        HealingError: TABLE_NOT_OURS: there is no such table.
    """
    folder = TableFolder.at(table, storage_options)
    snapshot = folder.open()
    if snapshot is None:
        raise HealingError("TABLE_NOT_OURS", f"{folder.uri}: there is no table")
    snapshot.check_plain()
    return frame_of(spark, snapshot, snapshot.files())


def frame_of(spark: SparkSession, snapshot: TableSnapshot, files: Sequence[TableFile]) -> DataFrame:
    """The rows of some files of a table."""
    schema = snapshot.spark_schema()
    if not files:
        return spark.createDataFrame([], schema)
    folder = snapshot.folder
    if not folder.is_remote:
        # With its scheme: the default file system of Spark may be another, such as HDFS.
        return spark.read.schema(schema).parquet(*(f"file://{folder.uri}/{file.path}" for file in files))
    paths = spark.createDataFrame([(file.path,) for file in files], "path string").repartition(len(files))
    return paths.mapInArrow(_reader(folder, schema.fieldNames()), schema)


def _reader(
    folder: TableFolder, columns: Sequence[str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        from tidelog.spark.table_files import plain

        filesystem = folder.filesystem()
        for batch in batches:
            for path in batch.column(0).to_pylist():
                with filesystem.open_input_file(path) as source:
                    for rows in pq.ParquetFile(source).iter_batches(columns=columns):
                        yield plain(rows.select(columns))

    return read
