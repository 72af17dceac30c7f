"""What a change of the metadata costs in a cluster of 3 to 100 nodes with 100,000 partitions.

Messages, bytes and the time until the last node knows are those of the quorum's machines on a virtual network, as in
bench_quorum_observers.py: three voters, the other nodes observe. The processor's time of a node is measured with what
every node does for each change: decode the batch, replay it in its controller's state, and make the next image of its
broker. All nodes do the same, so one is measured, beside the controller's decision and its batches.

Two changes: a topic of one partition; and the death of a broker, which has 300,000 replicas divided by the number of
nodes.

python bench/bench_metadata_nodes.py [--partitions=100000] [--plot=docs/metadata-nodes.png]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from bench_quorum_observers import spread
from harness import figure, median, say

from tidelog.base.errors import Code
from tidelog.base.ids import BrokerEpoch, BrokerId, Offset
from tidelog.controller import LOG_TRANSACTIONS, ControllerSettings, ControllerState, PartitionScan
from tidelog.controller.values import TopicToCreate
from tidelog.journal import Journal
from tidelog.metadata import MetadataDelta, MetadataDraft, MetadataImage
from tidelog.metadata.features import own_features
from tidelog.metadata.records.brokers import BrokerEndpoint, RegisterBrokerRecord
from tidelog.metadata.records.cluster import FeatureLevelRecord
from tidelog.metadata.records.topics import PartitionRecord, TopicRecord
from tidelog.records import split_batches
from tidelog.server.broker.assignments import assigned
from tidelog.server.broker.broker import RECORDS_PER_RUN_MAX
from tidelog.server.quorum.metadata_log import encode_decision, read_batch
from tidelog.sim.world.rng import SeededRng

NODES = (3, 10, 30, 100)
VOTERS = 3
REPLICATION_FACTOR = 3
PARTITIONS = next((int(one[13:]) for one in sys.argv[1:] if one.startswith("--partitions=")), 100_000)
PLOT = next((Path(one[7:]) for one in sys.argv[1:] if one.startswith("--plot=")), None)
PER_TOPIC = 10
TOPICS_MEASURED = 20


class Cost(NamedTuple):
    """Of one change.

    Attributes:
        controller_ms: of the processor, for the decision and its batches.
        node_ms: of the processor, at each node.
        records: how many it is.
    """

    controller_ms: float
    node_ms: float
    records: int


class Node:
    """What a node keeps of the metadata: its controller's state, and the image of its broker."""

    def __init__(self, image: MetadataImage) -> None:
        self._journal = Journal(
            ControllerState(ControllerSettings(), image), not_active=Code.NOT_CONTROLLER, transactions=LOG_TRANSACTIONS
        )
        self._image = image

    def take(self, batches: Sequence[bytes]) -> None:
        """Replay batches, and make an image of them, as `Controller.on_replayed` and `Broker` do."""
        journal = self._journal
        delta = MetadataDelta(self._image)
        for batch in batches:
            for position, header in split_batches(batch):
                for record in read_batch(batch, position, header).records:
                    journal.replay(record, journal.next_offset)
                    delta.replay(record)
        journal.on_committed(journal.next_offset)
        journal.take_ready()
        self._image = delta.apply(Offset(journal.next_offset - 1))
        assigned(BrokerId(1), delta, self._image)


def main() -> None:
    rows = []
    for nodes in NODES:
        began_at = time.process_time()
        image = image_of(nodes)
        say(f"{nodes} nodes: {PARTITIONS:,} partitions made in {time.process_time() - began_at:.1f} s of CPU")
        topic, death = cost_of_topics(image), cost_of_death(image)
        changes = spread(max(nodes - VOTERS, 0), 18)
        messages, known_ms = median([one.messages for one in changes]), max(one.known_ms for one in changes)
        name = f"{nodes} nodes, {PARTITIONS:,} partitions"
        figure(f"{name}: messages of a change (simulated)", messages, "messages")
        figure(f"{name}: the last one knows of a change (simulated)", known_ms, "ms")
        for what, cost in (("a topic", topic), ("the death of a broker", death)):
            note = f"{cost.records:,} records"
            figure(f"{name}: {what}, CPU of the controller's decision", cost.controller_ms, "ms", note=note)
            figure(f"{name}: {what}, CPU of each node", cost.node_ms, "ms", note=note)
        rows.append((nodes, messages, topic, death))
    if PLOT is not None:
        plot(PLOT, rows)


def image_of(nodes: int) -> MetadataImage:
    """A cluster of so many brokers, of which each leads as many partitions as another."""
    draft = MetadataDraft(MetadataImage.empty())
    for name, _, level in own_features():
        draft.apply(FeatureLevelRecord(name=name, feature_level=level))
    for broker_id in range(1, nodes + 1):
        endpoint = BrokerEndpoint("PLAINTEXT", "localhost", 9_092, 0)
        draft.apply(
            RegisterBrokerRecord(
                broker_id=broker_id,
                incarnation_id=UUID(int=broker_id),
                broker_epoch=broker_id,
                end_points=[endpoint],
                features=[],
                fenced=False,
            )
        )
    for number in range(PARTITIONS // PER_TOPIC):
        topic_id = UUID(int=1_000 + number)
        draft.apply(TopicRecord(name=f"topic-{number:05d}", topic_id=topic_id))
        for index in range(PER_TOPIC):
            first = number * PER_TOPIC + index
            replicas = [(first + step) % nodes + 1 for step in range(REPLICATION_FACTOR)]
            draft.apply(
                PartitionRecord(
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=replicas,
                    isr=replicas,
                    leader=replicas[0],
                    leader_epoch=0,
                    partition_epoch=0,
                )
            )
    return draft.image(Offset(0))


def cost_of_topics(image: MetadataImage) -> Cost:
    """Of a topic with one partition, which is a change of its own."""
    controller, node, rng = ControllerState(ControllerSettings(), image), Node(image), SeededRng(1)
    controller_ms, node_ms, records = [], [], 0
    for number in range(TOPICS_MEASURED):
        began_at = time.process_time()
        wanted = TopicToCreate(f"new-{number}", 1, REPLICATION_FACTOR)
        decision = controller.decide_create_topics([wanted], rng=rng)
        batch = encode_decision(decision.records, 0)
        decided_at = time.process_time()
        for record in decision.records:
            controller.apply(record)
        records = len(decision.records)
        applied_at = time.process_time()
        node.take([batch])
        controller_ms.append((decided_at - began_at) * 1e3)
        node_ms.append((time.process_time() - applied_at) * 1e3)
    return Cost(median(controller_ms), median(node_ms), records)


def cost_of_death(image: MetadataImage) -> Cost:
    """Of all that follows when a broker is fenced."""
    controller, node = ControllerState(ControllerSettings(), image), Node(image)
    began_at = time.process_time()
    batches, records = [], 0
    for portion in portions_of_death(controller):
        batches.append(encode_decision(portion, 0))
        records += len(portion)
    decided_at = time.process_time()
    size = max(RECORDS_PER_RUN_MAX // ControllerSettings().partition_changes_max, 1)
    for first in range(0, len(batches), size):
        node.take(batches[first : first + size])
    taken_at = time.process_time()
    return Cost((decided_at - began_at) * 1e3, (taken_at - decided_at) * 1e3, records)


def portions_of_death(controller: ControllerState) -> Iterator[Sequence[object]]:
    """The decisions, each applied before the next is made."""
    decision: Any = controller.decide_fence_broker(BrokerId(1), BrokerEpoch(1))
    scan = PartitionScan(controller.metadata)
    while True:
        for record in decision.records:
            controller.apply(record)
        if decision.records:
            yield decision.records
        if scan.is_done:
            return
        decision = controller.decide_pending_changes(scan)


def plot(path: Path, rows: Sequence[tuple[int, float, Cost, Cost]]) -> None:
    """The costs by the number of nodes, on logarithmic scales."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    nodes = [row[0] for row in rows]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.8), dpi=110, facecolor="white", layout="constrained")
    left.plot(nodes, [row[1] for row in rows], "o-", label="messages")
    left.plot(nodes, [row[2].node_ms * row[0] for row in rows], "o-", label="CPU of all nodes, ms")
    left.plot(nodes, [row[2].node_ms for row in rows], "o-", label="CPU of each node, ms")
    left.set_title(f"A topic is created beside {PARTITIONS:,} partitions", loc="left", fontsize=10)
    right.plot(nodes, [row[3].controller_ms / 1e3 for row in rows], "o-", label="CPU of the controller's decision, s")
    right.plot(nodes, [row[3].node_ms * row[0] / 1e3 for row in rows], "o-", label="CPU of all nodes, s")
    right.plot(nodes, [row[3].node_ms / 1e3 for row in rows], "o-", label="CPU of each node, s")
    right.set_title("A broker dies", loc="left", fontsize=10)
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(nodes, [str(one) for one in nodes])
        axes.minorticks_off()
        axes.set_xlabel("nodes")
        axes.grid(visible=True, alpha=0.3)
        axes.legend(fontsize=8, frameon=False)
    figure.savefig(path)
    say(f"{path} is drawn")


if __name__ == "__main__":
    main()
