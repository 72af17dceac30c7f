"""Spark's declarative pipelines (`spark-pipelines`) read a topic, and write one, as any other source and sink."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from support.nodes.spark_query import NewTestTopic, Topic
from tidelog import Consumer, TopicPartition

pytest.importorskip("pyspark.pipelines", reason="pyspark has no pipelines: 4.1 or later is needed")
pytest.importorskip("grpc", reason="Spark Connect is not installed: pip install 'tidelog[spark-connect]'")

SECONDS_MAX = 400
SPEC = """
name: shouts
storage: {storage}
libraries:
  - glob:
      include: transformations/**
"""
DEFINITIONS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()


@dp.table
def words():
    records = spark.readStream.format("tidelog").option("kafka.bootstrap.servers", "{bootstrap}")
    records = records.option("subscribe", "{source}").option("startingOffsets", "earliest").load()
    return records.selectExpr("partition", "offset", "cast(value as string) as word")


@dp.materialized_view
def counts():
    return spark.read.table("words").groupBy("word").count()


dp.create_sink(
    "shouts", "tidelog", {{"kafka.bootstrap.servers": "{bootstrap}", "topic": "{target}"}}
)


@dp.append_flow(target="shouts")
def shout():
    return spark.readStream.table("words").selectExpr("upper(word) as value")
"""


def run_pipeline(folder: Path) -> None:
    import pyspark

    from tidelog.spark.session import java_environment, local_settings, worker_python

    settings = {**local_settings(), "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    settings["spark.log.level"] = "ERROR"
    del settings["spark.master"]  # a server of Spark Connect is started in its place
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-pipelines"), "run", "--remote", "local[1]"]
    command += [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    python = str(worker_python())
    path = os.pathsep.join(one for one in sys.path if one)
    given = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    given |= {"SPARK_HOME": str(Path(pyspark.__file__).parent), "PYTHONPATH": path}
    log = folder / "pipeline.log"
    with log.open("wb") as file:
        environment = os.environ | given | java_environment()
        pipeline = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=file, stderr=file, start_new_session=True
        )
        try:
            status = pipeline.wait(SECONDS_MAX)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(pipeline.pid, signal.SIGKILL)
    assert status == 0, log.read_text()[-4_000:]


def values_of(topic: Topic) -> list[str]:
    with Consumer(topic.node.bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([TopicPartition(topic.name, 0)], start="earliest")
        return sorted((record.value or b"").decode() for record in consumer.until_end())


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS_MAX)
def test_a_pipeline_reads_and_writes_topics(new_topic: NewTestTopic, tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="spark-pipelines needs PyYAML: pip install 'pyspark[pipelines]'")
    import pyarrow.parquet as pq

    source, target = new_topic(), new_topic()
    (tmp_path / "spark-pipeline.yaml").write_text(SPEC.format(storage=(tmp_path / "storage").as_uri()))
    (tmp_path / "transformations").mkdir()
    names = {"bootstrap": source.node.bootstrap, "source": source.name, "target": target.name}
    (tmp_path / "transformations" / "words.py").write_text(DEFINITIONS.format(**names))
    source.send("a", "b", "a")
    run_pipeline(tmp_path)  # a second run would need a metastore that outlives the first
    words = pq.read_table(tmp_path / "spark-warehouse" / "words").to_pylist()
    assert sorted((row["offset"], row["word"]) for row in words) == [(0, "a"), (1, "b"), (2, "a")]
    counts = pq.read_table(tmp_path / "spark-warehouse" / "counts").to_pylist()
    assert {row["word"]: row["count"] for row in counts} == {"a": 2, "b": 1}
    assert values_of(target) == ["A", "A", "B"]
