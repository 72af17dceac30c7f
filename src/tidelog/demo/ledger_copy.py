"""A Spark query that copies the ledger, run after run from one checkpoint, and what it says when records are gone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.base.errors import TidelogError
from tidelog.demo.balance import LostRange, Place, without
from tidelog.demo.ledger import TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MARK = "[LOG_TRUNCATION]"
RUNS_MAX = 5


class CopyFailedError(TidelogError):
    """The query that copies the ledger failed of something else than a truncation. Carries Spark's last words."""


class LedgerCopy:
    """The query, and its table: what was read at which place.

    Each run reads what there is, and stops (Trigger.AvailableNow). A batch that runs again writes the same rows again.

    Attributes:
        rows: the table.
        told: what the query said to be gone.
    """

    def __init__(self, spark: SparkSession, bootstrap: str, checkpoint: Path) -> None:
        self.rows: dict[Place, int] = {}
        self.told: list[LostRange] = []
        self._spark = spark
        self._bootstrap = bootstrap
        self._checkpoint = checkpoint

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
        frame = (
            self._spark.readStream.format("tidelog")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("subscribe", TOPIC)
            .option("startingOffsets", "earliest")
            .option("onTruncation", on_truncation)
            .load()
        )
        rows = frame.selectExpr("partition", "offset", "cast(cast(value as string) as bigint) as number")
        query = (
            rows.writeStream.foreachBatch(self._write_batch)
            .option("checkpointLocation", str(self._checkpoint))
            .queryName("ledger-copy")
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def undo(self, gone: LostRange) -> int:
        """Take out of the table what came from records that are gone. Returns how many rows."""
        return without(self.rows, gone)

    def _write_batch(self, frame: DataFrame, _: int) -> None:
        batch = frame.toArrow().to_pydict()
        places = zip(batch["partition"], batch["offset"], strict=True)
        self.rows |= dict(zip(places, batch["number"], strict=True))


def losses_in(text: str) -> list[LostRange]:
    """What the error of a query says to be gone: nothing, if it is of another kind."""
    _, mark, rest = text.partition(MARK)
    if not mark:
        return []
    losses = json.loads(rest.splitlines()[0])["losses"]
    return [LostRange(loss["partition"], loss["divergentOffset"], loss["offset"]) for loss in losses]
