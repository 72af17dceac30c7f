"""What reads for Spark: it plans in one process, and reads in others, which get the reader by pickle.

One planner process lives as long as a streaming query. `read` sees nothing of its state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tidelog.base.errors import TidelogError
from tidelog.spark.cluster import RealCluster
from tidelog.spark.offsets import Json, StreamOffset
from tidelog.spark.options import SourceOptions, source_options
from tidelog.spark.plan import Range
from tidelog.spark.planner import StreamPlanner, batch_ranges
from tidelog.spark.pushdown import Wanted, wanted_by
from tidelog.spark.rows import arrow_schema
from tidelog.spark.workers import log_to_stderr, spare_modules_from_collection, worded_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


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
        return _read(partition, self.options, self.schema, skips_removed=self.options.clamp)


class FilteringBatchReader(BatchReader):
    """Leaves out what the query filters away. Spark takes such a reader only where it pushes filters down."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self.wanted, for_spark = wanted_by(filters)
        return for_spark


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
        # What is removed now is in no offset of the checkpoint: the task fails, and the batch that runs again says it.
        return _read(partition, self.options, self.schema, skips_removed=False)

    def commit(self, end: Json) -> None:
        """Spark's checkpoint is where offsets are kept."""

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.cluster.close()
            self._planner = None


def _read(
    partition: RangePartition, options: SourceOptions, schema: pa.Schema, *, skips_removed: bool
) -> Iterator[pa.RecordBatch]:
    from tidelog.spark.reading import read_range  # which tasks alone need

    with worded_errors():
        yield from read_range(partition.piece, options, schema, skips_removed=skips_removed)
    spare_modules_from_collection()  # all that reading needs is loaded by now
