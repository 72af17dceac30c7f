"""Six clients in one unclean election: what the table in docs/compatibility.md says of each is so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compat.unclean_elections.clients import CLIENTS
from compat.unclean_elections.rows import row_of_producers, row_of_readers, words_of
from compat.unclean_elections.story import CONFIG, OnTidelog, Place, Story, commands_of
from support.clients.kafka_unclean_election import KafkaUncleanElection
from tidelog import Consumer, LogTruncatedError, Producer, TopicPartition
from tidelog.base.errors import RecordsLostError
from tidelog.testing import Cluster

DOCS = Path(__file__).parents[3] / "docs" / "compatibility.md"
IN_PYTHON = ["Tidelog", "kafka-python", "confluent-kafka", "aiokafka"]
OTHERS = ["Java", "franz-go"]
BUILD_SECONDS_MAX = 900


@pytest.fixture(scope="module")
def kafka(needs_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaUncleanElection]:
    with KafkaUncleanElection(tmp_path_factory.mktemp("kafka")) as brokers:
        yield brokers


def rows(place: Place, names: list[str], directory: Path) -> list[str]:
    """What became of some clients."""
    story = Story(place, commands_of([CLIENTS[name] for name in names], directory), directory)
    short, long = story.run("short", commits=False), story.run("long", commits=True)
    found = [words_of(name, short, long) for name in names]
    for row_of in (row_of_readers, row_of_producers):
        found += [row_of(name, story.versions[name], short, long) for name in names]
    return found


def documented() -> list[str]:
    return DOCS.read_text().splitlines()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(config=CONFIG, directory=tmp_path / "nodes") as started:
        yield started


def test_what_clients_in_python_notice(cluster: Cluster, tmp_path: Path) -> None:
    assert [row for row in rows(OnTidelog(cluster), IN_PYTHON, tmp_path) if row not in documented()] == []


@pytest.mark.slow
@pytest.mark.timeout(BUILD_SECONDS_MAX)
@pytest.mark.parametrize("name", OTHERS)
def test_what_the_others_notice(cluster: Cluster, name: str, tmp_path: Path) -> None:
    if (reason := CLIENTS[name].missing()) is not None:
        pytest.skip(reason)
    assert [row for row in rows(OnTidelog(cluster), [name], tmp_path) if row not in documented()] == []


@pytest.mark.slow
@pytest.mark.timeout(BUILD_SECONDS_MAX)
def test_in_an_election_of_apache_kafka_they_notice_the_same(kafka: KafkaUncleanElection, tmp_path: Path) -> None:
    """But Java's client, which would be a third JVM."""
    names = [*IN_PYTHON, *(["franz-go"] if CLIENTS["franz-go"].missing() is None else [])]
    assert [row for row in rows(kafka, names, tmp_path) if row not in documented()] == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_apache_kafka_lets_our_clients_know_of_a_loss(kafka: KafkaUncleanElection) -> None:
    """Partition, divergent offset and where to go on; and that what was acknowledged is not there any more."""
    partition = TopicPartition("ours", 0)
    kafka.create_topic(partition.topic)
    losses: list[RecordsLostError] = []
    with (
        Producer(kafka.bootstrap_servers, on_records_lost=losses.append) as producer,
        Consumer(kafka.bootstrap_servers, auto_offset_reset="none") as consumer,
    ):
        for number in range(5):
            producer.send(partition.topic, b"kept %d" % number, partition=0).result(60)
        kafka.begin_loss(partition.topic)
        for number in range(5):
            producer.send(partition.topic, b"lost %d" % number, partition=0).result(60)
        consumer.assign([partition])
        consumer.seek_to_beginning()
        read = list(consumer.until_end())
        assert [record.offset for record in read] == list(range(10))
        kafka.lose(partition.topic)
        with Producer(kafka.bootstrap_servers) as other:
            for number in range(8):
                other.send(partition.topic, b"new %d" % number, partition=0)
        with pytest.raises(LogTruncatedError) as truncated:
            consumer.poll(timeout_ms=30_000)
        assert truncated.value.partition == partition
        assert (truncated.value.position, truncated.value.divergent_offset) == (10, 5)
        assert (truncated.value.seek_to.offset, truncated.value.seek_to.leader_epoch) == (5, read[4].leader_epoch)
        consumer.seek(partition, truncated.value.seek_to)
        assert [record.value for record in consumer.until_end()] == [b"new %d" % number for number in range(8)]
        with pytest.raises(RecordsLostError, match="ours-0: acknowledged records were lost"):
            producer.send(partition.topic, b"next", partition=0).result(60)
        assert [(loss.partition, loss.last_offset) for loss in losses] == [(partition, 9)]
