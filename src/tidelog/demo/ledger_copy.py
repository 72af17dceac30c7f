"""A Spark query that copies the ledger into a table, which heals when the log has lost records, and is audited."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.base.errors import TidelogError
from tidelog.client.admin.cluster_descriptions import EpochSpan
from tidelog.demo.balance import LostRange, Place
from tidelog.demo.evidence import ReplicaLog
from tidelog.demo.ledger import TOPIC
from tidelog.spark.healing import healing_writer, truncations_path
from tidelog.spark.table_audit import AuditReport, audit
from tidelog.spark.table_reading import read_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MARK = "[LOG_TRUNCATION]"
RUNS_MAX = 5


class CopyFailedError(TidelogError):
    """The query that copies the ledger failed of something else than a truncation. Carries Spark's last words."""


class LedgerCopy:
    """The query, and its table: a row for each record, and where it comes from.

    Each run reads what there is, and stops (Trigger.AvailableNow). A batch that runs again writes nothing again.

    Attributes:
        told: what the query said to be gone.
    """

    def __init__(self, spark: SparkSession, bootstrap: str, checkpoint: Path, table: Path) -> None:
        self.told: list[LostRange] = []
        self._spark = spark
        self._source = {"kafka.bootstrap.servers": bootstrap}
        self._checkpoint = checkpoint
        self._table = table

    def run(self, on_truncation: str = "fail") -> list[LostRange]:
        """Copy what there is. Returns what the query says to be gone, if that is why it stopped.

        Should it fail of anything else, it runs again from its checkpoint.

        Raises:
            CopyFailedError: it failed too often.
        """
        from pyspark.errors import StreamingQueryException

        for attempt in range(1, RUNS_MAX + 1):
            try:
                self._run_once(on_truncation)
                return []
            except StreamingQueryException as error:
                found = losses_in(str(error))
                if found:
                    self.told += found
                    return found
                if attempt == RUNS_MAX:
                    raise CopyFailedError(
                        f"the query that copies the ledger failed {attempt} times: {error}"
                    ) from error
        return []

    def _run_once(self, on_truncation: str) -> None:
        records = (
            self._spark.readStream.format("tidelog")
            .options(**self._source, subscribe=TOPIC, startingOffsets="earliest")
            .options(onTruncation=on_truncation, includeLeaderEpoch="true")
            .load()
        )
        query = (
            _numbers(records)
            .writeStream.foreachBatch(healing_writer(self._table, self._checkpoint))
            .option("checkpointLocation", str(self._checkpoint))
            .queryName("ledger-copy")
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def rows(self) -> dict[Place, int]:
        """The table: what was read at which place."""
        rows = read_table(self._spark, self._table).select("partition", "offset", "number").toArrow().to_pydict()
        return dict(zip(zip(rows["partition"], rows["offset"], strict=True), rows["number"], strict=True))

    def as_log(self, partition: int) -> ReplicaLog:
        """The rows of one partition, as if they were a replica of it."""
        from pyspark.sql import functions as f

        rows = read_table(self._spark, self._table).where(f"partition = {partition}")
        spans = rows.groupBy("leaderEpoch").agg(f.min("offset"), f.max("offset") + 1).collect()
        return ReplicaLog(tuple(EpochSpan(*span) for span in sorted(spans)))

    def withdrawn_count(self) -> int:
        """How many rows the table has given up."""
        told = read_table(self._spark, truncations_path(self._table)).agg({"withdrawnRows": "sum"}).collect()
        return int(told[0][0] or 0)

    def audit(self) -> AuditReport:
        """Derive every row anew from the topic, and compare."""
        return audit(self._spark, self._table, self._checkpoint, _numbers, self._source)


def _numbers(records: DataFrame) -> DataFrame:
    """The rows of the table."""
    return records.selectExpr(
        "topic", "partition", "offset", "leaderEpoch", "cast(cast(value as string) as bigint) as number"
    )


def losses_in(text: str) -> list[LostRange]:
    """What the error of a query says to be gone: nothing, if it is of another kind."""
    _, mark, rest = text.partition(MARK)
    if not mark:
        return []
    losses = json.loads(rest.splitlines()[0])["losses"]
    return [LostRange(loss["partition"], loss["divergentOffset"], loss["offset"]) for loss in losses]
