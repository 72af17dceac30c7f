"""One Spark and one node for all tests here. Without pyspark or a Java they are skipped, and say why."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.nodes.node import NodeProcess
from support.nodes.spark_query import NewQuery, NewTestTopic, Query, Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = count(1)
BRIEF = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Half of what Spark takes in a few minutes goes into compiling what would pay after more of them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = f"{Path(__file__).parent}/"
    for item in items:
        if str(item.path).startswith(folder):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="package")
def driver_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Spark's JVM, and the processes that it starts, print on stderr: the driver's log."""
    return tmp_path_factory.mktemp("spark") / "driver.log"


@pytest.fixture(scope="package")
def spark(driver_log: Path) -> Iterator[SparkSession]:
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tidelog[spark-local]'")
    from tidelog.base.errors import ConfigError
    from tidelog.demo.surroundings import stderr_into
    from tidelog.spark.session import local_session

    try:
        with stderr_into(driver_log):
            session = local_session("tests", settings={"spark.log.level": "OFF", **BRIEF})
    except ConfigError as error:
        pytest.skip(str(error))
    yield session
    session.stop()


@pytest.fixture
def new_topic(shared_node: NodeProcess) -> NewTestTopic:
    """`new_topic(partitions=1, node=...)` creates a topic that nobody else uses."""

    def create(partitions: int = 1, node: NodeProcess | None = None) -> Topic:
        topic = Topic(node or shared_node, f"spark-{next(_numbers)}", partitions)
        topic.create()
        return topic

    return create


@pytest.fixture
def topic(new_topic: NewTestTopic) -> Topic:
    return new_topic()


@pytest.fixture
def new_query(spark: SparkSession, tmp_path: Path) -> NewQuery:
    """`new_query(topic, option=...)`: a query with a checkpoint of its own; from the earliest offsets by default."""

    def create(topic: Topic, **options: str) -> Query:
        checkpoint = tmp_path / f"checkpoint-{next(_numbers)}"
        return Query(spark, checkpoint, {**topic.options, "startingOffsets": "earliest", **options})

    return create
