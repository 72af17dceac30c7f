"""Tables and checkpoints in an object store, and Spark Connect: what healing_writer, the audit and the reader need."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.clients.kafka_peer import PEERS, missing_peers
from support.clients.object_store import ObjectStore, new_object_store
from support.fixtures.waiting import wait_until
from support.nodes.node import NodeProcess
from support.nodes.spark_query import NewTestTopic, Topic, lose_records
from tidelog import Admin, TopicPartition
from tidelog.base.ids import PartitionIndex

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("deltalake", reason="deltalake is not installed: pip install 'tidelog[spark-delta]'")

from tidelog.cli.ports import free_ports
from tidelog.spark import audit, healing_writer, read_table
from tidelog.spark.delta import TableFolder
from tidelog.spark.healing_errors import HealingError
from tidelog.spark.write_ahead_log import WriteAheadLog

HADOOP_JARS = PEERS / "hadoop"
SQL = "SELECT topic, partition, offset, leaderEpoch, CAST(value AS STRING) AS text FROM records"
SECONDS_MAX = 300
BRIEF = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
pytestmark = pytest.mark.timeout(SECONDS_MAX)


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with new_object_store() as started:
        yield started


def run_query(spark: SparkSession, topic: Topic, table: str, checkpoint: str, storage: dict[str, str]) -> None:
    records = spark.readStream.format("tidelog").options(**topic.options, startingOffsets="earliest")
    records.option("includeLeaderEpoch", "true").load().createOrReplaceTempView("records")
    writer = healing_writer(table, checkpoint, storage_options=storage)
    query = spark.sql(SQL).writeStream.foreachBatch(writer).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()


def upload(store: ObjectStore, folder: Path, prefix: str) -> None:
    for file in folder.rglob("*"):
        if file.is_file():
            store.put(f"{prefix}/{file.relative_to(folder)}", file.read_bytes())


def test_a_table_in_an_object_store_is_written_and_audited(
    spark: SparkSession, topic: Topic, store: ObjectStore, tmp_path: Path
) -> None:
    """Spark by pip alone knows no s3: then this process reads the checkpoint by itself."""
    topic.send(*"abcde")
    table, storage = "s3://lake/table", store.storage_options
    run_query(spark, topic, table, str(tmp_path / "checkpoint"), storage)
    assert any(key.endswith(".parquet") for key in store.keys("lake/table/"))
    upload(store, tmp_path / "checkpoint", "lake/checkpoint")
    checkpoint = store.arrow_uri("lake/checkpoint")
    report = audit(spark, table, checkpoint, f"{SQL};", topic.options, storage_options=storage)
    assert (report.matching, report.differences) == (5, 0)

    # Rows that went are found.
    from deltalake import DeltaTable

    DeltaTable(table, storage_options=storage).delete("offset < 2")
    report = audit(spark, table, checkpoint, SQL, topic.options, storage_options=storage)
    assert [(line.missing, line.first_offset) for line in report.lines] == [(2, 0)]
    kept = read_table(spark, table, storage_options=storage).select("text").collect()
    assert sorted(row.text for row in kept) == ["c", "d", "e"]


def test_a_checkpoint_elsewhere_is_looked_through_for_state(
    spark: SparkSession, store: ObjectStore, tmp_path: Path
) -> None:
    store.put("lake/checkpoint/metadata", b'{"id": "one"}')
    log = WriteAheadLog(store.arrow_uri("lake/checkpoint"), spark)
    assert log.query_id() == "one"
    assert not log.has_state()
    store.put("lake/checkpoint/state/0/_metadata/metadata", b"v2")
    assert log.has_state()
    with pytest.raises(HealingError, match=r"\[CHECKPOINT_UNREADABLE\] .* holds no readable offsets/7"):
        log.ends(7)


@pytest.mark.parametrize("path", ["memory://checkpoint", "hdfs://127.0.0.1:1/checkpoint", "gibt://es/nicht"])
def test_what_cannot_be_read_is_one_line_with_a_tag(spark: SparkSession, path: str) -> None:
    with pytest.raises(HealingError) as raised:
        WriteAheadLog(path, spark).query_id()
    said = str(raised.value)
    assert said.startswith(f"[CHECKPOINT_UNREADABLE] {path} can be read neither by Spark (")
    assert ") nor by this process (" in said
    assert "\n" not in said
    assert "An error occurred while calling" not in said


@pytest.mark.parametrize("uri", ["memory://table", "hdfs://127.0.0.1:1/table"])
def test_a_table_where_none_can_be_is_one_line_with_a_tag(uri: str) -> None:
    with pytest.raises(HealingError, match=r"^\[TABLE_UNREACHABLE\] ") as raised:
        TableFolder.at(uri, None).open()
    assert uri in str(raised.value)
    assert "\x1b" not in str(raised.value)


def test_a_store_that_takes_nothing_is_one_line_with_a_tag(store: ObjectStore) -> None:
    import pyarrow as pa

    store.refuses_writes = True
    folder = TableFolder.at("s3://lake/table", {**store.storage_options, "max_retries": "0"})
    with pytest.raises(HealingError, match=r"^\[TABLE_UNREACHABLE\] s3://lake/table cannot be written: .*AccessDenied"):
        folder.create(pa.schema([("offset", pa.int64())]), {}, "none")
    assert "swordfish" not in repr(folder)


def ran(script: str, *arguments: str) -> list[str]:
    """What a program beside this file prints, line by line."""
    command = [sys.executable, str(Path(__file__).with_name(script)), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4_000:]
    return done.stdout.splitlines()


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """A server of Spark Connect, as on another machine: only the table and the checkpoint are shared with it."""
    import pyspark

    from tidelog.spark.session import java_environment, local_settings, worker_python

    (port,) = free_ports("127.0.0.1", [None])
    settings = {**local_settings(), **BRIEF, "spark.connect.grpc.binding.port": str(port), "spark.log.level": "OFF"}
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit")]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    python = str(worker_python())
    path = os.pathsep.join(one for one in sys.path if one)
    given = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    environment = os.environ | given | {"PYTHONPATH": path, **java_environment()}
    log = folder / "server.log"
    with log.open("wb") as file:
        server = subprocess.Popen(
            [*command, "spark-internal"], cwd=folder, env=environment, stdout=file, stderr=file, start_new_session=True
        )
    try:

        def listens() -> bool:
            assert server.poll() is None, log.read_text()
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        wait_until(listens, "the server of Spark Connect listens")
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def test_through_spark_connect_all_is_as_without(topic: Topic, tmp_path: Path) -> None:
    """Names of views are looked up when the plan runs: the audit's own must be there until its end, and go then."""
    pytest.importorskip("grpc", reason="Spark Connect is not installed: pip install 'tidelog[spark-connect]'")
    topic.send(*"abcde")
    with connect_server(tmp_path) as remote:
        arguments = (remote, topic.node.bootstrap, topic.name, str(tmp_path))
        told, printed, status = ran("connect_pipeline.py", *arguments)
    assert json.loads(told) == [4, [1], True, ["records"]]
    assert json.loads(printed)["missing"] == 1
    assert status == "3"


def test_a_select_may_say_with_and_end_with_a_semicolon(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    topic.send(*"abc")
    table, checkpoint = str(tmp_path / "table"), str(tmp_path / "checkpoint")
    run_query(spark, topic, table, checkpoint, {})
    for sql in (
        f"WITH some AS (SELECT * FROM records) {SQL.replace('FROM records', 'FROM some')};",
        f"WITH records AS (SELECT * FROM records WHERE true) {SQL} -- of all",
    ):
        report = audit(spark, table, checkpoint, sql, topic.options)
        assert (report.matching, report.differences) == (3, 0)
    assert [view.name for view in spark.catalog.listTables() if view.name.startswith("tidelog_audit")] == []


def test_what_retention_removes_during_an_audit_is_unverifiable(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    topic.send(*"abcdef")
    table, checkpoint = str(tmp_path / "table"), str(tmp_path / "checkpoint")
    run_query(spark, topic, table, checkpoint, {})
    removing = iter((2, 4))  # before the first reading, and before the second

    def derive(records: DataFrame) -> DataFrame:
        with Admin(topic.node.bootstrap) as admin:
            admin.delete_records({TopicPartition(topic.name, PartitionIndex(0)): next(removing)})
        return records.selectExpr(
            "topic", "partition", "offset", "leaderEpoch", "replace(cast(value as string), 'f', 'g') as text"
        )

    report = audit(spark, table, checkpoint, derive, topic.options)
    (line,) = report.lines
    assert next(removing, None) is None
    assert (line.changed, line.missing, line.phantom, line.unverifiable, line.expected) == (1, 0, 0, 4, 2)


def test_a_table_and_a_checkpoint_in_an_object_store_heal(
    node: NodeProcess, new_topic: NewTestTopic, store: ObjectStore
) -> None:
    if (reason := missing_peers(jars=HADOOP_JARS)) is not None:
        pytest.skip(reason)
    topic = new_topic(node=node)
    topic.send(*"abcde")
    topic.send(*"fg")
    jars = ",".join(str(jar) for jar in HADOOP_JARS.glob("*.jar"))
    script = str(Path(__file__).with_name("s3a_pipeline.py"))
    command = [sys.executable, script, node.bootstrap, topic.name, store.endpoint, jars]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        try:
            assert json.loads(program.stdout.readline()) == [[*"abcdefg"], 7, 0]
            lose_records(topic, 5)
            topic.send(*"hij")
            said, _ = program.communicate("go on\n", timeout=SECONDS_MAX)
        finally:
            program.kill()
    healed, lost, groups = said.splitlines()
    assert json.loads(healed) == [[*"abcdehij"], 8, 0]
    assert (json.loads(lost), groups) == ([5], "2")
    for place in ("table", "table_truncations", "totals", "checkpoint"):
        assert store.keys(f"lake/{place}/")
