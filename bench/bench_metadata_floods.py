"""Floods of metadata on three nodes: who else waits for them, and whether the quorum keeps its leader.

Topics by CreateTopics in requests of 500; then a broker that holds a replica of each is killed, and started again; then
all are deleted, and one Metadata request asks for as many unknown names, with auto-creation. Meanwhile another client
produces with acks=all to a topic that the killed broker has no part in, and asks for its metadata, every 10 ms each, at
the active controller.

python bench/bench_metadata_floods.py [--quick] [--count=10000]
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from beside_kafka import QUICK
from harness import WireClient, cpu_seconds, figure, say

from support.clients.wire_client import batch_of
from support.nodes.cluster import Cluster, ClusterNode
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.descriptions import NewTopic
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.wire.messages.api_19_create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidelog.wire.messages.api_20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

SIZE = 3
COUNT = next((int(one[8:]) for one in sys.argv[1:] if one.startswith("--count=")), 1_000 if QUICK else 10_000)
PER_REQUEST = 500
PER_LOOK = 100
REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
}
ASK_EVERY_SECONDS = 0.01
WAIT_MS_MAX = 200
SECONDS_MAX = 900.0
BYSTANDER = "bystander"


class Bystander:
    """Another client, while a flood is on: how long each of its requests took.

    Attributes:
        waits_ms: by what was asked.
    """

    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        self._ended = threading.Event()
        self.waits_ms: dict[str, list[float]] = {"produce": [], "metadata": []}

    def __enter__(self) -> Bystander:
        asks = {"produce": self._produce, "metadata": self._ask_metadata}
        self._threads = [threading.Thread(target=self._run, args=one) for one in asks.items()]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self, what: str, ask: Callable[[WireClient], None]) -> None:
        with WireClient(self._node.port, timeout_seconds=60) as client:
            while not self._ended.is_set():
                began_at = time.perf_counter()
                ask(client)
                self.waits_ms[what].append((time.perf_counter() - began_at) * 1e3)
                time.sleep(ASK_EVERY_SECONDS)

    def _produce(self, client: WireClient) -> None:
        data = TopicProduceData(name=BYSTANDER, partition_data=[PartitionProduceData(0, bytes(batch_of(b"v")))])
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])
        (answer,) = client.ask(ApiKey.PRODUCE, 9, request, ProduceResponse).responses[0].partition_responses
        assert answer.error_code == 0, answer

    def _ask_metadata(self, client: WireClient) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=BYSTANDER)], allow_auto_topic_creation=False)
        assert client.ask(ApiKey.METADATA, 9, request, MetadataResponse).topics[0].error_code == 0


@contextmanager
def started() -> Iterator[Cluster]:
    home = Path(tempfile.mkdtemp(prefix="floods-bench-"))
    cluster = Cluster(home, SIZE, config=REPLICATED)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
        shutil.rmtree(home, ignore_errors=True)


def elections_so_far(cluster: Cluster) -> int:
    """The leader epoch of the quorum, as it is now."""
    with Admin(cluster.bootstrap) as admin:
        return admin.describe_quorum().leader_epoch


def measure(name: str, cluster: Cluster, node: ClusterNode, flood: Callable[[], None]) -> None:
    before = elections_so_far(cluster)
    began_at, cpu_before = time.perf_counter(), cpu_seconds(node.pid)
    with Bystander(node) as bystander:
        flood()
        seconds = time.perf_counter() - began_at
    figure(f"{name}: elections of the quorum", elections_so_far(cluster) - before, "elections", at_most=0)
    figure(
        f"{name}: done within",
        seconds,
        "s",
        note=f"{cpu_seconds(node.pid) - cpu_before:.1f} s of CPU at the controller",
    )
    for what, waits in bystander.waits_ms.items():
        found = sorted(waits)
        for share, at_most in ((0.5, None), (0.99, WAIT_MS_MAX)):
            value = found[min(int(len(found) * share), len(found) - 1)]
            note = None if at_most is None else f"of {len(found)}; the longest took {found[-1]:.0f} ms"
            figure(f"{name}: {what} of another client, p{share * 100:.0f}", value, "ms", at_most=at_most, note=note)


def create_topics(node: ClusterNode) -> None:
    with WireClient(node.port, timeout_seconds=300) as client:
        for start in range(0, COUNT, PER_REQUEST):
            topics = [
                CreatableTopic(name=f"made-{number}", num_partitions=1, replication_factor=SIZE)
                for number in range(start, min(start + PER_REQUEST, COUNT))
            ]
            request = CreateTopicsRequest(topics=topics, timeout_ms=300_000)
            answer = client.ask(ApiKey.CREATE_TOPICS, 7, request, CreateTopicsResponse)
            assert not any(one.error_code for one in answer.topics), answer.topics[0]
            say(f"{start + len(topics)} topics")


def ask_for_unknown(node: ClusterNode) -> None:
    with WireClient(node.port, timeout_seconds=600) as client:
        topics = [MetadataRequestTopic(name=f"unknown-{number}") for number in range(COUNT)]
        answer = client.ask(ApiKey.METADATA, 9, MetadataRequest(topics=topics), MetadataResponse)
        say(f"{sum(not one.error_code for one in answer.topics)} of {COUNT} were made")
    until_all(node, "unknown", lambda isr, is_led: is_led)


def delete_topics(node: ClusterNode) -> None:
    with WireClient(node.port, timeout_seconds=300) as client:
        for start in range(0, COUNT, PER_REQUEST):
            topics = [
                DeleteTopicState(name=f"made-{number}") for number in range(start, min(start + PER_REQUEST, COUNT))
            ]
            request = DeleteTopicsRequest(topics=topics, timeout_ms=300_000)
            answer = client.ask(ApiKey.DELETE_TOPICS, 6, request, DeleteTopicsResponse)
            assert not any(one.error_code for one in answer.responses), answer.responses[0]


def until_all(node: ClusterNode, name: str, is_so: Callable[[list[int], bool], bool]) -> None:
    """Wait until it is so of each topic, of whose partition it is told the ISR and whether somebody leads.

    Few are asked for at a time: whoever waits should not be what is measured.
    """
    deadline = time.monotonic() + SECONDS_MAX
    with WireClient(node.port, timeout_seconds=60) as client:
        for start in range(0, COUNT, PER_LOOK):
            topics = [MetadataRequestTopic(name=f"{name}-{one}") for one in range(start, min(start + PER_LOOK, COUNT))]
            request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
            while True:
                found = client.ask(ApiKey.METADATA, 9, request, MetadataResponse).topics
                if all(
                    one.partitions and is_so(one.partitions[0].isr_nodes, one.partitions[0].leader_id >= 0)
                    for one in found
                ):
                    break
                assert time.monotonic() < deadline, "it never came to that"
                time.sleep(0.2)


def main() -> None:
    with started() as cluster:
        with Admin(cluster.bootstrap) as admin:
            controller_id = admin.describe_quorum().leader_id
            assert controller_id is not None
            node = cluster.nodes[controller_id]
            other, victim = (cluster.nodes[one] for one in cluster.nodes if one != controller_id)
            admin.create_topics([NewTopic(BYSTANDER, replica_assignments={0: [controller_id, other.node_id]})])
        cluster.wait_until_in_sync(BYSTANDER)
        measure(f"{COUNT} topics by CreateTopics", cluster, node, lambda: create_topics(node))
        until_all(node, "made", lambda isr, _: len(isr) == SIZE)

        def kill() -> None:
            os.kill(victim.pid, signal.SIGKILL)
            victim.close()
            until_all(node, "made", lambda isr, is_led: is_led and victim.node_id not in isr)

        def restart() -> None:
            victim.start()
            until_all(node, "made", lambda isr, _: victim.node_id in isr)

        measure(f"kill -9 of a broker with {COUNT} replicas", cluster, node, kill)
        measure("it comes back", cluster, node, restart)
        measure(f"DeleteTopics of {COUNT}", cluster, node, lambda: delete_topics(node))
        measure(f"Metadata for {COUNT} unknown names", cluster, node, lambda: ask_for_unknown(node))


if __name__ == "__main__":
    main()
