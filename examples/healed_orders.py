"""Keep a Delta Lake table of orders equal to what the topic holds, also after an unclean election.

    python examples/healed_orders.py 127.0.0.1:9092 orders DIRECTORY --audit

Reads what there is, and ends. The rows of records that the log took back since the last run are withdrawn, together
with their share in the totals. With --audit all rows are derived anew, and compared. Exit status 1: something differs.

An order is a record such as `{"customer": "anna", "cents": 100}`. What is none is left out.
Needs `pip install 'tidelog[spark-local,spark-delta]'`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.spark import audit, healed_aggregate, healing_writer, read_table
from tidelog.spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def orders_of(records: DataFrame) -> DataFrame:
    """The rows of the table. The first four columns say which record a row comes from; they must not be missing."""
    from pyspark.sql import functions as f

    order = f.from_json(f.col("value").cast("string"), "customer string, cents bigint").alias("order")
    rows = records.select("topic", "partition", "offset", "leaderEpoch", order)
    return rows.where("order.customer IS NOT NULL").select("topic", "partition", "offset", "leaderEpoch", "order.*")


def run(spark: SparkSession, source: dict[str, str], topic: str, directory: Path) -> None:
    """One query from the topic to the table, then the totals."""
    table, checkpoint = directory / "orders", directory / "checkpoint"
    records = (
        spark.readStream.format("tidelog")
        .options(**source, subscribe=topic, startingOffsets="earliest")
        .options(includeLeaderEpoch="true", onTruncation="rewind")
        .load()
    )
    query = (
        orders_of(records)
        .writeStream.foreachBatch(healing_writer(table, checkpoint))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    totals = healed_aggregate(
        table,
        directory / "totals",
        keys=["customer"],
        aggregates={"orders": "count(*)", "cents": "sum(cents)"},
    )
    totals(spark)
    for row in read_table(spark, directory / "totals").orderBy("customer").collect():
        print(f"{row.customer}: {row.orders} orders, {row.cents} cents")
    told = read_table(spark, f"{table}_truncations").where("cause = 'truncated'").orderBy("at").collect()
    for row in told:
        print(
            f"{row.topic}-{row.partition} lost offsets {row.fromOffset} to {row.toOffset - 1}: "
            f"{row.withdrawnRows} rows were withdrawn"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--audit", action="store_true", help="compare the table with the topic")
    arguments = parser.parse_args()
    spark = local_session("healed orders", settings={"spark.log.level": "OFF"})
    source = {"kafka.bootstrap.servers": arguments.bootstrap}
    try:
        run(spark, source, arguments.topic, arguments.directory)
        if arguments.audit:
            table, checkpoint = arguments.directory / "orders", arguments.directory / "checkpoint"
            report = audit(spark, table, checkpoint, orders_of, source)
            print(f"{report.matching} rows match, {report.differences} differ, {report.unverifiable} unverifiable")
            sys.exit(0 if report.is_clean else 1)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
