"""Our consumer reads from the replica in its rack, where the cluster selects replicas so (KIP-392)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.nodes.cluster import PROMPT, Cluster
from tidelog import Consumer, Producer, TopicPartition

RECORDS = 200
VALUE = b"v" * 1_000
CONFIG = {**PROMPT, "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
LONG_SESSIONS = {"broker.session.timeout.ms": "60000"}  # a leader that is paused leads on


@pytest.fixture
def racks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes, each in a rack of its own."""
    cluster = Cluster(tmp_path_factory.mktemp("racks") / "data", config=CONFIG | request.param)
    for node in cluster.nodes.values():
        node.settings["broker.rack"] = f"rack-{node.node_id}"
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("racks", [LONG_SESSIONS], indirect=True, ids=["long sessions"])
def test_records_come_from_the_rack_until_its_broker_dies(racks: Cluster) -> None:
    racks.create_topic("near", 1)
    partition = TopicPartition("near", 0)

    def write(count: int) -> None:
        with Producer(racks.bootstrap, batch_size=1_500) as producer:
            for _ in range(count):
                producer.send("near", VALUE, partition=0)

    write(RECORDS)
    leader = racks.leader_of("near")
    near = racks.follower_of("near")
    with Consumer(
        racks.bootstrap,
        client_rack=f"rack-{near.node_id}",
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=2_000,
        request_timeout_ms=5_000,
    ) as consumer:
        consumer.assign([partition])
        seen: list[int] = []

        def read_up_to(count: int) -> None:
            while len(seen) < count:
                seen.extend(record.offset for record in consumer.poll(timeout_ms=60_000, max_records=5))

        read_up_to(20)
        leader.pause()
        try:
            read_up_to(RECORDS - 1)
        finally:
            leader.resume()
        near.kill()
        write(50)
        read_up_to(RECORDS + 50)
        assert seen == list(range(RECORDS + 50))


@pytest.mark.timeout(180)
@pytest.mark.parametrize("racks", [{}], indirect=True, ids=["short sessions"])
def test_the_leader_is_asked_once_the_broker_of_the_rack_is_silent(racks: Cluster) -> None:
    """Its connections stay open, and the leader epoch stays. The request to it would end after 30 s."""
    racks.create_topic("near", 1)
    partition = TopicPartition("near", 0)
    near = racks.follower_of("near")
    with (
        Producer(racks.bootstrap) as producer,
        Consumer(
            racks.bootstrap,
            client_rack=f"rack-{near.node_id}",
            auto_offset_reset="earliest",
            request_timeout_ms=600_000,
        ) as consumer,
    ):
        consumer.assign([partition])
        for number in range(5):
            producer.send("near", b"%d" % number, partition=0).result(60)
            assert consumer.poll(timeout_ms=60_000)
        near.pause()
        try:
            producer.send("near", b"after", partition=0).result(60)
            (record,) = consumer.poll(timeout_ms=60_000)
        finally:
            near.resume()
        assert record.value == b"after"
