"""DeleteRecords: what is answered is gone for good, and nothing that is not committed ever goes."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from support.clients import kafka_python_client as kafka_python
from support.clients.admin_requests import change, delete_records, set_to
from support.clients.wire_client import WireClient, batch_of
from support.nodes.node import NodeProcess
from tidelog.base.errors import Code
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

DEADLINE_SECONDS = 60.0
EARLIEST = -2


@pytest.fixture
def client(shared_node: NodeProcess) -> Iterator[WireClient]:
    with WireClient(shared_node.port) as client:
        yield client


def filled(client: WireClient, topic: str, count: int = 10, **configs: str) -> None:
    """A topic of `count` records, a batch each."""
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    assert client.create_topic(topic, configs=settings).error_code == 0
    for index in range(count):
        assert client.produce(topic, batch_of(b"%d" % index)).error_code == 0


def test_every_version_moves_the_start(client: WireClient) -> None:
    filled(client, "moves")
    for version in range(3):
        row = delete_records(client, "moves", 2 * version + 2, version=version)
        assert (row.error_code, row.low_watermark) == (0, 2 * version + 2)
    assert client.list_offset("moves", EARLIEST).offset == 6
    assert client.fetch("moves", 5).error_code == Code.OFFSET_OUT_OF_RANGE
    assert [record.value for record in client.read_all("moves", start=6)] == [b"6", b"7", b"8", b"9"]


def test_the_start_never_goes_back(client: WireClient) -> None:
    filled(client, "back")
    delete_records(client, "back", 5)
    row = delete_records(client, "back", 3)
    assert (row.error_code, row.low_watermark) == (0, 5)


def test_all_that_is_committed(client: WireClient) -> None:
    filled(client, "all")
    row = delete_records(client, "all", -1)
    assert (row.error_code, row.low_watermark) == (0, 10)
    assert client.read_all("all", start=10) == []
    assert client.produce("all", batch_of(b"next")).base_offset == 10
    assert [record.offset for record in client.read_all("all", start=10)] == [10]


@pytest.mark.parametrize("offset", [11, -2, 1 << 62])
def test_nothing_beyond_what_is_committed(client: WireClient, offset: int) -> None:
    filled(client, f"beyond{offset}")
    row = delete_records(client, f"beyond{offset}", offset)
    assert (row.error_code, row.low_watermark) == (Code.OFFSET_OUT_OF_RANGE, -1)
    assert len(client.read_all(f"beyond{offset}")) == 10


def test_a_topic_that_is_only_compacted_keeps_its_records(client: WireClient) -> None:
    filled(client, "kept")
    change(client, "kept", {"cleanup.policy": set_to("compact")})
    assert delete_records(client, "kept", 5).error_code == Code.POLICY_VIOLATION
    change(client, "kept", {"cleanup.policy": set_to("compact,delete")})
    assert delete_records(client, "kept", 5).error_code == 0
    change(client, "kept", {"cleanup.policy": set_to("")})
    assert delete_records(client, "kept", 6).error_code == 0


def test_where_there_is_nothing_to_delete_from(client: WireClient) -> None:
    filled(client, "narrow")
    assert delete_records(client, "nowhere", 1).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert delete_records(client, "narrow", 1, partition=3).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert delete_records(client, "narrow", 1, partition=-1).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert delete_records(client, "__consumer_offsets", 1).error_code == Code.INVALID_TOPIC_EXCEPTION


def test_each_partition_stands_for_itself_and_a_repeated_one_is_refused(client: WireClient) -> None:
    filled(client, "several")
    asked = [DeleteRecordsPartition(0, 4), DeleteRecordsPartition(9, 1)]
    twice = [DeleteRecordsPartition(0, 4), DeleteRecordsPartition(0, 5)]
    filled(client, "twice")
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic("several", asked), DeleteRecordsTopic("twice", twice)])
    answer = client.ask(ApiKey.DELETE_RECORDS, 2, request, DeleteRecordsResponse)
    rows = [(row.partition_index, row.error_code, row.low_watermark) for one in answer.topics for row in one.partitions]
    assert rows == [
        (0, 0, 4),
        (9, Code.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (0, Code.INVALID_REQUEST, -1),
        (0, Code.INVALID_REQUEST, -1),
    ]
    assert client.list_offset("twice", EARLIEST).offset == 0


def test_a_kill_right_after_the_answer_brings_nothing_back(node: NodeProcess) -> None:
    with WireClient(node.port) as client:
        filled(client, "killed", segment_bytes="200")
        filled(client, "emptied")
        assert delete_records(client, "killed", 7).error_code == 0
        assert delete_records(client, "emptied", -1).error_code == 0
    node.kill()
    node.restart()
    with WireClient(node.port) as client:
        assert client.list_offset("killed", EARLIEST).offset == 7
        assert [record.value for record in client.read_all("killed", start=7)] == [b"7", b"8", b"9"]
        assert client.list_offset("emptied", EARLIEST).offset == 10
        assert client.produce("emptied", batch_of(b"next")).base_offset == 10


def test_the_space_comes_back_and_the_lineage_is_trimmed(node: NodeProcess) -> None:
    with WireClient(node.port) as client:
        filled(client, "space", segment_bytes="200")
    node.restart()  # a new leader epoch
    directory = node.data_dir / "node-1" / "space-0"
    with WireClient(node.port) as client:
        before = len(list(directory.glob("*.log")))
        for index in range(3):
            client.produce("space", batch_of(b"%d" % index))
        old_epoch = client.end_of_epoch("space", 0)
        assert (old_epoch.leader_epoch, old_epoch.end_offset) == (0, 10)
        assert delete_records(client, "space", 12).error_code == 0
        assert len(list(directory.glob("*.log"))) < before
        asked_for_older = client.end_of_epoch("space", 0)
        assert asked_for_older.end_offset == 12
    node.restart()  # the next leader epoch is written, the first one no more
    lines = (directory / "leader-epoch-checkpoint").read_text().splitlines()[2:]
    assert [line.split()[1] for line in lines] == ["12", "13"]


def test_where_nothing_is_left_no_space_is_taken(client: WireClient, shared_node: NodeProcess) -> None:
    filled(client, "nothing-left")
    delete_records(client, "nothing-left", -1)
    directory = shared_node.data_dir / "node-1" / "nothing-left-0"
    assert [(path.name, path.stat().st_size) for path in directory.glob("*.log")] == [(f"{10:020}.log", 0)]


def test_confluents_admin_client(client: WireClient, shared_node: NodeProcess) -> None:
    filled(client, "confluent-deletes")
    admin = AdminClient({"bootstrap.servers": shared_node.bootstrap})
    place = confluent_kafka.TopicPartition("confluent-deletes", 0, 4)
    (future,) = admin.delete_records([place]).values()
    assert future.result(DEADLINE_SECONDS).low_watermark == 4
    too_far = confluent_kafka.TopicPartition("confluent-deletes", 0, 40)
    (future,) = admin.delete_records([too_far]).values()
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        future.result(DEADLINE_SECONDS)
    assert caught.value.args[0].code() == confluent_kafka.KafkaError.OFFSET_OUT_OF_RANGE


def test_kafka_pythons_admin_client(client: WireClient, shared_node: NodeProcess) -> None:
    filled(client, "kafka-python-deletes")
    with kafka_python.admin_of(shared_node.bootstrap) as admin:
        place = kafka_python.TopicPartition("kafka-python-deletes", 0)
        admin.delete_records({place: 4})
    assert client.list_offset("kafka-python-deletes", EARLIEST).offset == 4
