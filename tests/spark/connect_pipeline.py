"""The healing writer and the audit through Spark Connect, in a process of its own: one process has one kind of session.

python connect_pipeline.py SERVER BOOTSTRAP TOPIC FOLDER
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from tidelog.cli.app import run
from tidelog.spark import audit, healed_aggregate, healing_writer

SQL = "SELECT topic, partition, offset, leaderEpoch, CAST(value AS STRING) AS text FROM records"


def main(remote: str, bootstrap: str, topic: str, folder: str) -> None:
    spark = SparkSession.builder.remote(remote).getOrCreate()
    table, checkpoint = f"{folder}/table", f"{folder}/checkpoint"
    options = {"kafka.bootstrap.servers": bootstrap}
    records = spark.readStream.format("tidelog").options(**options, subscribe=topic, startingOffsets="earliest")
    records.option("includeLeaderEpoch", "true").load().createOrReplaceTempView("records")
    writer = healing_writer(table, checkpoint)
    stream = spark.sql(SQL).writeStream.foreachBatch(writer).option("checkpointLocation", checkpoint)
    stream.trigger(availableNow=True).start().awaitTermination()
    healed_aggregate(table, f"{folder}/totals", keys=["text"], aggregates={"n": "count(*)"})(spark)

    from deltalake import DeltaTable

    DeltaTable(table).delete("offset = 1")
    report = audit(spark, table, checkpoint, SQL, options)
    views = sorted(view.name for view in spark.catalog.listTables() if view.isTemporary)
    print(
        json.dumps(
            [report.matching, [line.missing for line in report.lines], spark.table("records").isStreaming, views]
        )
    )
    arguments = ["--checkpoint", checkpoint, "--sql", SQL, "--bootstrap", bootstrap, "--output", "json"]
    print(run(["spark", "audit", table, *arguments, "--remote", remote]))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
