"""The format `tidelog` of Spark, read and written, as a batch and as a stream.

Spark starts process after process that makes this class, asks it one thing, and ends: which formats there are, which
columns. Each waits for what is imported here, so this module imports little but Spark's own class.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from tidelog.spark.workers import worded_errors

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from tidelog.spark.readers import BatchReader, StreamReader
    from tidelog.spark.sink import BatchWriter, StreamWriter


class TidelogSource(DataSource):
    """`spark.read.format("tidelog")`, and its three siblings. `tidelog.spark.options` has the options."""

    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def schema(self) -> StructType:
        from tidelog.spark.columns import spark_schema
        from tidelog.spark.options import optional_columns

        with worded_errors():
            return spark_schema(**optional_columns(self.options))

    def reader(self, schema: StructType) -> BatchReader:
        from tidelog.spark.readers import BatchReader, FilteringBatchReader

        kind = FilteringBatchReader if _pushes_filters() else BatchReader
        with worded_errors():
            return kind(dict(self.options), schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        from tidelog.spark.readers import StreamReader

        return StreamReader(dict(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        from tidelog.spark.options import sink_options
        from tidelog.spark.sink import BatchWriter, ExactlyOnceBatchWriter

        with worded_errors():
            options = sink_options(self.options, streaming=False)
            kind = BatchWriter if options.exactly_once is None else ExactlyOnceBatchWriter
            return kind(options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        from tidelog.spark.options import sink_options
        from tidelog.spark.sink import ExactlyOnceStreamWriter, StreamWriter

        with worded_errors():
            options = sink_options(self.options, streaming=True)
            return (StreamWriter if options.exactly_once is None else ExactlyOnceStreamWriter)(options, schema)


def _pushes_filters() -> bool:
    """Whether this process plans with filters: `spark.sql.python.filterPushdown.enabled` is set. Spark tells no reader,
    and refuses one with `pushFilters` where it is not; but such plans are made by a module of their own."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHDOWN in sys.modules or (main is not None and main.name == _PUSHDOWN)


_PUSHDOWN = "pyspark.sql.worker.data_source_pushdown_filters"
