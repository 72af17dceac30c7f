"""The format `tidelog` of Spark, read and written, as a batch and as a stream: what Spark calls, and nothing else.

One planner process lives as long as a streaming query; `read` runs in other processes, which get the reader by
pickle and see nothing of the planner's state.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tidelog.base.errors import TidelogError
from tidelog.spark.cluster import RealCluster
from tidelog.spark.offsets import Json, StreamOffset
from tidelog.spark.options import optional_columns, sink_options, source_options
from tidelog.spark.plan import Range
from tidelog.spark.planner import StreamPlanner, batch_ranges
from tidelog.spark.pushdown import Wanted, wanted_by
from tidelog.spark.reading import read_range
from tidelog.spark.rows import arrow_schema, spark_schema
from tidelog.spark.sink import BatchWriter, ExactlyOnceBatchWriter, ExactlyOnceStreamWriter, StreamWriter
from tidelog.spark.workers import log_to_stderr, worded_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class TidelogSource(DataSource):
    """`spark.read.format("tidelog")`, and its three siblings. `tidelog.spark.options` has the options."""

    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def schema(self) -> StructType:
        with worded_errors():
            return spark_schema(**optional_columns(self.options))

    def reader(self, schema: StructType) -> BatchReader:
        kind = FilteringBatchReader if _pushes_filters() else BatchReader
        with worded_errors():
            return kind(dict(self.options), schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        return StreamReader(dict(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        with worded_errors():
            options = sink_options(self.options, streaming=False)
            kind = BatchWriter if options.exactly_once is None else ExactlyOnceBatchWriter
            return kind(options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        with worded_errors():
            options = sink_options(self.options, streaming=True)
            return (StreamWriter if options.exactly_once is None else ExactlyOnceStreamWriter)(options, schema)


class RangePartition(InputPartition):
    """What one task reads."""

    def __init__(self, piece: Range) -> None:
        super().__init__(piece)
        self.piece = piece


class BatchReader(DataSourceReader):
    """Plans once, when the query is planned, and reads."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.options = source_options(options, streaming=False)
        self.schema = arrow_schema(schema)
        self.wanted = Wanted()

    def partitions(self) -> list[InputPartition]:
        log_to_stderr()
        cluster = RealCluster(self.options)
        try:
            with worded_errors():
                return [RangePartition(piece) for piece in batch_ranges(self.options, cluster, self.wanted)]
        finally:
            cluster.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):
            return iter(())  # Spark's stand-in where there are no partitions
        return _worded(read_range(partition.piece, self.options, self.schema))


class FilteringBatchReader(BatchReader):
    """Leaves out what the query filters away. Spark takes such a reader only where it pushes filters down."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self.wanted, for_spark = wanted_by(filters)
        return for_spark


def _pushes_filters() -> bool:
    """Whether this process plans with filters: `spark.sql.python.filterPushdown.enabled` is set. Spark tells no reader,
    and refuses one with `pushFilters` where it is not; but such plans are made by a module of their own."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHDOWN in sys.modules or (main is not None and main.name == _PUSHDOWN)


_PUSHDOWN = "pyspark.sql.worker.data_source_pushdown_filters"


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batch after micro-batch, and reads."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._planner: StreamPlanner | None = None
        self._refusal: TidelogError | None = None
        try:
            self.options = source_options(options, streaming=True)
            self.schema = arrow_schema(schema)
        except TidelogError as error:
            # Spark's runner trips over an error that comes from here (`UnboundLocalError: … 'reader'`), and words that.
            self._refusal = error

    def _check(self) -> None:
        with worded_errors():
            if self._refusal is not None:
                raise self._refusal

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}

    @property
    def planner(self) -> StreamPlanner:
        if self._planner is None:
            self._check()
            log_to_stderr()
            self._planner = StreamPlanner(self.options, RealCluster(self.options))
        return self._planner

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        self._check()
        limit = self.options.limits.batch_records_max
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with worded_errors():
            self.planner.prepare_available_now()

    def initialOffset(self) -> Json:  # noqa: N802
        self._check()
        # A constant: where to start is decided, and written down, together with where the first batch ends.
        return StreamOffset().to_json()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        with worded_errors():
            return self.planner.next_offset(start, limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        return self.planner.lag()

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        with worded_errors():
            return [RangePartition(piece) for piece in self.planner.ranges(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        return _worded(read_range(partition.piece, self.options, self.schema))

    def commit(self, end: Json) -> None:
        """Spark's checkpoint is where offsets are kept."""

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.cluster.close()
            self._planner = None


def _worded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with worded_errors():
        yield from batches
