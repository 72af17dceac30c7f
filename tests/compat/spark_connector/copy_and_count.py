"""Write, stream and read by Spark's connector, in a process of its own: jars must be there when Spark starts.

python copy_and_count.py BOOTSTRAP JARS CHECKPOINT
"""

from __future__ import annotations

import json
import sys

from tidelog.spark.session import local_session

BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that ends soon after it began."""


def main(bootstrap: str, jars: str, checkpoint: str) -> None:
    settings = {"spark.jars": jars, "spark.log.level": "ERROR", "spark.driver.extraJavaOptions": BRIEF}
    spark = local_session("connector", settings=settings)
    at = {"kafka.bootstrap.servers": bootstrap}
    rows = spark.range(1_000).selectExpr("cast(id as string) as key", "concat('value ', id) as value")
    rows.write.format("kafka").options(**at).option("topic", "written").save()

    def copy(since: str) -> None:
        source = spark.readStream.format("kafka").options(**at).option("subscribe", "written")
        stream = source.option("startingOffsets", since).load().selectExpr("key", "value")
        sink = stream.writeStream.format("kafka").options(**at).option("topic", "copied")
        sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()

    copy("earliest")
    rows.limit(10).write.format("kafka").options(**at).option("topic", "written").save()
    copy("earliest")  # from where its checkpoint ends
    read = spark.read.format("kafka").options(**at).option("subscribe", "copied").load()
    found = read.selectExpr("cast(key as string)", "cast(value as string)", "offset", "partition").collect()
    print(json.dumps([list(row) for row in found]))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
