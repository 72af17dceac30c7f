"""Keys go to the partitions that librdkafka chooses, with each of its partitioners that we have a name for."""

from __future__ import annotations

import confluent_kafka
import pytest

from support.nodes.node import NodeProcess
from tidelog import Admin, NewTopic, Producer

PARTITIONS = 7
KEYS = [b"a", b"", b"key-1", b"\x00", b"\xff" * 33, "schlüssel".encode(), *(b"%d" % number for number in range(200))]


@pytest.mark.parametrize(
    ("theirs", "ours"), [("consistent_random", "crc32"), ("murmur2_random", "murmur2"), ("fnv1a_random", "fnv1a")]
)
def test_keys_go_where_theirs_go(shared_node: NodeProcess, theirs: str, ours: str) -> None:
    topic = f"partitioner-{ours}"
    with Admin(shared_node.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS)])
    keys = [key for key in KEYS if key or ours != "crc32"]  # an empty key is none to crc32
    placed: dict[bytes, int | None] = {}
    producer = confluent_kafka.Producer({"bootstrap.servers": shared_node.bootstrap, "partitioner": theirs})
    for key in keys:
        producer.produce(
            topic, b"", key, on_delivery=lambda _, sent: placed.update({sent.key() or b"": sent.partition()})
        )
    assert producer.flush(30) == 0
    with Producer(shared_node.bootstrap, partitioner=ours) as mine:  # type: ignore[arg-type]
        sent = {key: mine.send(topic, b"", key) for key in keys}
        assert {key: future.result(30).partition for key, future in sent.items()} == {key: placed[key] for key in keys}
