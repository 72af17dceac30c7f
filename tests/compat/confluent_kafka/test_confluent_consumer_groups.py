"""confluent-kafka with group.protocol=consumer (KIP-848): members come, share, are killed, and go."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from support.clients.confluent import Sent, create_topic, new_producer, produce
from support.fixtures.waiting import wait_until
from support.nodes.node import NodeProcess, StartNode

PROMPT_GROUPS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "0",
}

KILLED_MEMBER = """
import sys
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "group.protocol": "consumer"})
consumer.subscribe([sys.argv[2]])
while not consumer.assignment():
    consumer.poll(0.05)
print("assigned", flush=True)
while True:
    consumer.poll(0.05)
"""


@pytest.fixture(scope="module")
def node(request: pytest.FixtureRequest) -> NodeProcess:
    """A node whose groups do not take long to notice."""
    start: StartNode = request.getfixturevalue("start_node")
    return start(config=PROMPT_GROUPS)


@pytest.fixture
def members(node: NodeProcess, topic: str) -> Iterator[Members]:
    """Makes members of a group that is called as its topic, which has four partitions and 40 records."""
    create_topic(AdminClient({"bootstrap.servers": node.bootstrap}), topic, 4)
    for partition in range(4):
        produce(new_producer(node.bootstrap), topic, [Sent(b"%d" % one) for one in range(10)], partition=partition)
    with ExitStack() as stack:
        yield Members(node.bootstrap, topic, stack)


class Members:
    """Consumers of one group, polled in turns."""

    def __init__(self, bootstrap: str, topic: str, stack: ExitStack) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.read: list[tuple[int, int]] = []
        self._stack = stack
        self._all: list[Any] = []

    def join(self, *topics: str, **settings: Any) -> Any:
        config: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.topic,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
        }
        consumer = Consumer(config | {key.replace("_", "."): value for key, value in settings.items()})
        consumer.subscribe(list(topics or (self.topic,)))
        self._all.append(consumer)
        self._stack.callback(consumer.close)
        return consumer

    def leave(self, consumer: Any) -> None:
        self._all.remove(consumer)
        consumer.close()

    def settle(self, **each: int) -> None:
        """Poll until the members have so many partitions, in any order, and none is shared."""

        def has_settled() -> bool:
            for consumer in self._all:
                for message in consumer.consume(100, timeout=0.02):
                    assert message.error() is None, message.error()
                    self.read.append((message.partition(), message.offset()))
            assigned = [{(one.topic, one.partition) for one in consumer.assignment()} for consumer in self._all]
            counts = [len(one) for one in assigned]
            return sorted(counts) == sorted(each.values()) and len(set().union(*assigned)) == sum(counts)

        wait_until(has_settled, f"they have {each} partitions")

    def read_all(self, **each: int) -> None:
        """Poll until all 40 records were read, by members that have so many partitions."""

        def is_read() -> bool:
            self.settle(**each)
            return len(set(self.read)) == 40

        wait_until(is_read, "all records are read")


def test_members_share_read_all_and_take_over_from_who_leaves(members: Members) -> None:
    first = members.join()
    members.settle(first=4)
    members.join()
    members.settle(first=2, second=2)
    members.join()
    members.settle(first=2, second=1, third=1)
    members.leave(first)
    members.settle(second=2, third=2)
    members.read_all(second=2, third=2)


def test_a_member_goes_on_where_another_one_committed(members: Members) -> None:
    first = members.join()
    members.read_all(first=4)
    first.commit(asynchronous=False)
    members.leave(first)
    second = members.join()
    members.settle(second=4)
    committed = second.committed([TopicPartition(members.topic, one) for one in range(4)], timeout=20)
    assert [(one.offset, one.leader_epoch) for one in committed] == [(10, 0)] * 4
    assert len(members.read) == 40, "nothing is read again"


def test_a_static_member_that_restarts_disturbs_nobody(members: Members) -> None:
    first = members.join(group_instance_id="one")
    other = members.join(group_instance_id="two")
    members.settle(first=2, other=2)
    before = {one.partition for one in first.assignment()}
    kept = {one.partition for one in other.assignment()}
    members.leave(first)
    again = members.join(group_instance_id="one")
    members.settle(other=2, again=2)
    assert {one.partition for one in again.assignment()} == before
    assert {one.partition for one in other.assignment()} == kept


def test_a_pattern_finds_a_topic_that_is_made_later(members: Members) -> None:
    members.join(f"^{members.topic}(-later)?$")
    members.settle(first=4)
    create_topic(AdminClient({"bootstrap.servers": members.bootstrap}), f"{members.topic}-later", 3)
    members.settle(first=7)


def test_what_a_killed_member_read_goes_to_the_others(members: Members) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED_MEMBER, members.bootstrap, members.topic], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "assigned\n"
        members.join()
        members.settle(first=2)
        process.kill()
    members.settle(first=4)


def test_an_assignor_that_is_not_there_is_refused(members: Members) -> None:
    consumer = members.join(group_remote_assignor="none")
    members._all.clear()

    def is_refused() -> bool:
        try:
            message = consumer.poll(0.05)
        except KafkaException as error:
            return "UNSUPPORTED_ASSIGNOR" in str(error)
        return message is not None and message.error() is not None and "assignor" in str(message.error()).lower()

    wait_until(is_refused, "the program learns of it")
