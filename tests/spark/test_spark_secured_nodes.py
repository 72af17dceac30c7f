"""The source and the sink on a listener with SASL_SSL whose sessions are short: each mechanism, and refusals."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.nodes.secured_cluster import Login, SecuredCluster, properties_of
from tidelog import AclBinding, AclBindingFilter, Consumer, NewTopic, Producer, TopicPartition
from tidelog.base.errors import TopicAlreadyExistsError
from tidelog.client.admin.acl_descriptions import AclOperationName

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tidelog[spark-local]'")
pytest.importorskip("cryptography", reason="cryptography is not installed: pip install 'tidelog[security]'")

import pyarrow as pa

from support.load.spark_pipeline import Settings
from support.nodes.spark_standalone import PipelineDriver, SparkStandalone
from tidelog.spark import exactly_once
from tidelog.spark.decision_log import decision_log
from tidelog.spark.options import sink_options
from tidelog.spark.sink import _Rows
from tidelog.spark.sink_decisions import Writing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOKEN = "delegation token"
DECISIONS = "__tidelog_sink_decisions"
RIGHTS_OF_THE_SINK: tuple[AclOperationName, ...] = ("read", "write", "describe", "describe_configs", "create")
"""What docs/spark-exactly-once.md says that the sink needs there."""

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", TOKEN)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    cluster = SecuredCluster(tmp_path_factory.mktemp("secured"), 1)
    try:
        cluster.start()
        with cluster.admin_client() as admin:
            admin.create_topics([NewTopic("forbidden", 1)])
            admin.create_acls([AclBinding("topic", DECISIONS, "User:alice", right) for right in RIGHTS_OF_THE_SINK])
        yield cluster
        cluster.cluster.check_logs()
    finally:
        cluster.close()


def login_of(secured: SecuredCluster, mechanism: str) -> Login:
    return secured.token_login("SCRAM-SHA-256") if mechanism == TOKEN else secured.login(mechanism)


def options_of(secured: SecuredCluster, login: Login) -> dict[str, str]:
    properties = {"bootstrap.servers": secured.bootstrap("RENEWED"), **properties_of(login, secured.authority)}
    return {f"kafka.{key}": value for key, value in properties.items()}


@pytest.mark.timeout(240)
def test_a_query_by_a_token_and_what_is_refused(spark: SparkSession, secured: SecuredCluster) -> None:
    with secured.admin_client() as admin:
        admin.create_topics([NewTopic("allowed-written", 1)])
    options = options_of(secured, secured.token_login("SCRAM-SHA-512"))
    rows = spark.range(10).selectExpr("cast(id as string) as value")
    rows.write.format("tidelog").options(**options, topic="allowed-written").mode("append").save()
    found = spark.read.format("tidelog").options(**options, subscribe="allowed-written").load()
    assert sorted(int(row.value) for row in found.collect()) == list(range(10))
    with pytest.raises(Exception, match="TOPIC_AUTHORIZATION_FAILED"):
        spark.read.format("tidelog").options(**options, subscribe="forbidden").load().count()
    wrong = options_of(secured, Login("SCRAM-SHA-512", "alice", "not-hers"))
    with pytest.raises(Exception, match="SASL SCRAM-SHA-512 failed, as user 'alice'") as error:
        spark.read.format("tidelog").options(**wrong, subscribe="allowed-written").load().count()
    assert "not-hers" not in str(error.value)


@pytest.mark.timeout(240)
def test_the_page_for_those_who_come_from_spark_s_connector_tells_how(
    spark: SparkSession, secured: SecuredCluster, tmp_path: Path
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "spark-from-kafka-connector.md").read_text(encoding="utf-8")
    snippet = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[-1]
    with secured.admin_client() as admin:
        admin.create_topics([NewTopic("allowed-flights", 1)])
    login = secured.login("SCRAM-SHA-512")
    with Producer(secured.bootstrap(), **secured.options(login)) as producer:
        producer.send("allowed-flights", b"UA1545")
    real = properties_of(login, secured.authority)
    for shown, given in {
        "broker.example:9094": secured.bootstrap("RENEWED"),
        "/etc/kafka/ca.pem": real["ssl.truststore.location"],
        '"flights"': '"allowed-flights"',
    }.items():
        assert shown in snippet
        snippet = snippet.replace(shown, given)
    assert login.username in snippet
    names: dict[str, Any] = {"spark": spark, "password": login.password}
    exec(compile(snippet, "docs/spark-from-kafka-connector.md", "exec"), names)
    read: list[bytes] = []
    query = names["flights"].writeStream.foreachBatch(lambda rows, _: read.extend(row.value for row in rows.collect()))
    query = query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    assert read == []  # a stream starts at the end, as that of Spark's connector does
    with Producer(secured.bootstrap(), **secured.options(login)) as producer:
        producer.send("allowed-flights", b"UA1714")
    query = names["flights"].writeStream.foreachBatch(lambda rows, _: read.extend(row.value for row in rows.collect()))
    query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()
    assert read == [b"UA1714"]


def test_a_topic_of_decisions_that_is_there_needs_no_right_to_create_it(secured: SecuredCluster) -> None:
    create = AclBinding("topic", DECISIONS, "User:alice", "create")
    with secured.admin_client() as admin:
        with suppress(TopicAlreadyExistsError):
            admin.create_topics([NewTopic(DECISIONS, 1, configs={"cleanup.policy": "compact"})])
        admin.create_topics([NewTopic("allowed-once", 1)])
        admin.delete_acls([AclBindingFilter("topic", DECISIONS, "User:alice", "create")])
    login = login_of(secured, "SCRAM-SHA-512")
    options = {**options_of(secured, login), "topic": "allowed-once", "delivery": "exactly-once"}
    parsed = sink_options({**options, "sinkId": "allowed-once"}, streaming=True)
    rows = _Rows(parsed)
    batch = pa.record_batch({"value": pa.array([b"a"])})
    try:
        task = exactly_once.Task(Writing("query", "run", 0), 0, 0)
        exactly_once.commit([exactly_once.write(iter([batch]), parsed, task, rows.send)], parsed)
    finally:
        decision_log(parsed.client).close()
        with secured.admin_client() as admin:
            admin.create_acls([create])
    with Consumer(secured.bootstrap(), isolation_level="read_committed", **secured.options(login)) as consumer:
        consumer.assign([TopicPartition("allowed-once", 0)], start="earliest")
        assert [record.value for record in consumer.until_end()] == [b"a"]


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkStandalone]:
    pytest.importorskip("deltalake", reason="deltalake is not installed: pip install 'tidelog[spark-delta]'")
    with SparkStandalone(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_pipeline_on_workers(
    secured: SecuredCluster, standalone: SparkStandalone, tmp_path: Path, mechanism: str
) -> None:
    source, target = (f"allowed-{name}-{mechanism.replace(' ', '-')}" for name in ("source", "target"))
    with secured.admin_client() as admin:
        admin.create_topics([NewTopic(name, 2) for name in (source, target)])
    login = login_of(secured, mechanism)
    sent = [b"%d" % number for number in range(50)]
    with Producer(secured.bootstrap(), **secured.options(login)) as producer:
        for number, value in enumerate(sent):
            producer.send(source, value, partition=number % 2)
    properties = properties_of(login, secured.authority)
    settings = Settings(
        standalone.url, secured.bootstrap("RENEWED"), source, target, str(tmp_path), security=properties
    )
    with PipelineDriver(settings, tmp_path / "driver.log") as driver:
        assert driver.ask("once") == []
        assert driver.ask("audit") == [0, 0, len(sent)]
    with Consumer(secured.bootstrap(), isolation_level="read_committed", **secured.options(login)) as consumer:
        consumer.assign([TopicPartition(target, index) for index in range(2)], start="earliest")
        assert sorted(record.value or b"" for record in consumer.until_end()) == sorted(sent)
