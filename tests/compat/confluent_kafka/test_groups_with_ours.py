"""One group of librdkafka's consumers and ours: whoever leads, the others understand what they are given."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import confluent_kafka
import pytest

from integration.test_consumers_in_groups import QUICK, fill
from support.fixtures.waiting import wait_until
from support.nodes.node import NodeProcess
from tidelog import Consumer

PARTITIONS = 4


class Theirs:
    def __init__(self, bootstrap: str, topic: str, strategy: str) -> None:
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": topic,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": strategy,
                "heartbeat.interval.ms": 100,
                "session.timeout.ms": 6_000,
            }
        )
        self.consumer.subscribe([topic])

    def poll(self) -> None:
        self.consumer.poll(0.02)

    def assigned(self) -> set[int]:
        return {one.partition for one in self.consumer.assignment()}


class Ours:
    def __init__(self, bootstrap: str, topic: str, strategy: str) -> None:
        self.consumer = Consumer(bootstrap, group_id=topic, partition_assignment_strategy=[strategy], **QUICK)
        self.consumer.subscribe([topic], start="earliest")

    def poll(self) -> None:
        self.consumer.poll(20, max_records=1)

    def assigned(self) -> set[int]:
        return {int(one.partition) for one in self.consumer.assignment()}


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
@pytest.mark.parametrize("kinds", [(Theirs, Ours), (Ours, Theirs)], ids=["theirs leads", "ours leads"])
def test_both_share_a_topic(
    shared_node: NodeProcess,
    topic: str,
    strategy: str,
    kinds: tuple[Callable[[str, str, str], Theirs | Ours], Callable[[str, str, str], Theirs | Ours]],
) -> None:
    fill(shared_node, topic)
    with ExitStack() as stack:

        def join(number: int) -> Theirs | Ours:
            member = kinds[number](shared_node.bootstrap, topic, strategy)
            stack.callback(member.consumer.close)
            return member

        def share(members: list[Theirs | Ours], *counts: int) -> bool:
            for member in members:
                member.poll()
            parts = [member.assigned() for member in members]
            return set().union(*parts) == set(range(PARTITIONS)) and [len(one) for one in parts] == list(counts)

        first = join(0)
        wait_until(lambda: share([first], 4), "the first has all")
        second = join(1)
        wait_until(lambda: share([first, second], 2, 2), "each has its half")
        first.consumer.close()
        wait_until(lambda: share([second], 4), "the other has all")
