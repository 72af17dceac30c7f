"""Table and checkpoint both in an object store, as s3:// and s3a://: Spark must know the latter when it starts.

python s3a_pipeline.py BOOTSTRAP TOPIC STORE JARS

It is told on stdin when records were lost and others written, and goes on then.
"""

from __future__ import annotations

import json
import sys

from tidelog.spark import audit, healed_aggregate, healing_writer, losses, read_table
from tidelog.spark.session import local_session

SQL = "SELECT topic, partition, offset, leaderEpoch, CAST(value AS STRING) AS text FROM records"
TABLE, CHECKPOINT = "s3a://lake/table", "s3a://lake/checkpoint"
BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def main(bootstrap: str, topic: str, store: str, jars: str) -> None:
    settings = {
        "spark.jars": jars,
        "spark.log.level": "OFF",
        "spark.driver.extraJavaOptions": BRIEF,
        "spark.hadoop.fs.s3a.endpoint": store,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": "someone",
        "spark.hadoop.fs.s3a.secret.key": "swordfish",
    }
    spark = local_session("s3a", settings=settings)
    options = {"kafka.bootstrap.servers": bootstrap}
    keys = {"access_key_id": "someone", "secret_access_key": "swordfish", "region": "us-east-1"}
    storage = {"endpoint": store, "allow_http": "true", **keys}

    def run() -> None:
        records = spark.readStream.format("tidelog").options(**options, subscribe=topic, startingOffsets="earliest")
        records = records.options(includeLeaderEpoch="true", onTruncation="rewind")
        records.load().createOrReplaceTempView("records")
        writer = healing_writer(TABLE, CHECKPOINT, storage_options=storage)
        stream = spark.sql(SQL).writeStream.foreachBatch(writer).option("checkpointLocation", CHECKPOINT)
        stream.trigger(availableNow=True).start().awaitTermination()

    def show() -> None:
        rows = read_table(spark, TABLE, storage_options=storage).orderBy("offset").collect()
        report = audit(spark, TABLE, CHECKPOINT, SQL, options, storage_options=storage)
        print(json.dumps([[row.text for row in rows], report.matching, report.differences]), flush=True)

    run()
    show()
    sys.stdin.readline()
    run()
    show()
    print(json.dumps([loss.divergent_offset for loss in losses(CHECKPOINT, spark=spark)]))
    totals = healed_aggregate(
        TABLE, "s3a://lake/totals", keys=["leaderEpoch"], aggregates={"n": "count(*)"}, storage_options=storage
    )
    print(totals(spark))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
