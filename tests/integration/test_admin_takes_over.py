"""What an administrator does to members and producers that do not answer any more, and which resources there are."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import pytest

from support.fixtures.waiting import wait_until
from support.nodes.node import NodeProcess
from tidelog import (
    Admin,
    ConfigResource,
    Consumer,
    KafkaError,
    NewTopic,
    Producer,
    ProducerFencedError,
    TopicPartition,
)
from tidelog.base.errors import Code

QUICK: dict[str, Any] = {"heartbeat_interval_ms": 50, "fetch_max_wait_ms": 50, "retry_backoff_ms": 10}


@pytest.fixture(scope="module")
def any_node(shared_node: NodeProcess) -> NodeProcess:
    return shared_node


@pytest.fixture
def topic(any_node: NodeProcess) -> str:
    """Also the name of its group, and of its transactional id."""
    name = f"t{uuid4().hex[:8]}"
    with Admin(any_node.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 2)])
    return name


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_static_members_are_put_out_and_the_others_go_on(any_node: NodeProcess, topic: str, protocol: str) -> None:
    with ExitStack() as open_ones:
        members = {}
        for instance in ("a", "b"):
            options: dict[str, Any] = {"group_instance_id": instance, "group_protocol": protocol, **QUICK}
            members[instance] = open_ones.enter_context(Consumer(any_node.bootstrap, group_id=topic, **options))
            members[instance].subscribe([topic])
        admin = open_ones.enter_context(Admin(any_node.bootstrap))

        def shares() -> dict[str, int]:
            return {instance: len(member.assignment()) for instance, member in members.items() if member.poll(50) == []}

        wait_until(lambda: shares() == {"a": 1, "b": 1}, lambda: f"each reads one: {shares()}")
        left = members.pop("b")
        admin.remove_group_members(topic, ["b"], reason="its host is gone")
        wait_until(lambda: shares() == {"a": 2}, lambda: f"the other reads both: {shares()}")
        assert [one.group_instance_id for one in admin.describe_groups([topic])[topic].members] == ["a"]
        with pytest.raises(KafkaError, match="member 'nobody' of") as refused:
            admin.remove_group_members(topic, ["nobody"])
        assert refused.value.code is Code.UNKNOWN_MEMBER_ID
        left.unsubscribe()
        members["a"].close()


def test_all_members_are_put_out(any_node: NodeProcess, topic: str) -> None:
    with Consumer(any_node.bootstrap, group_id=topic, **QUICK) as member, Admin(any_node.bootstrap) as admin:
        member.subscribe([topic])
        wait_until(lambda: member.poll(50) == [] and len(member.assignment()) == 2, "it reads both")
        admin.remove_group_members(topic)
        with pytest.raises(KafkaError) as refused:
            admin.remove_group_members(f"{topic}-nobody")
        assert refused.value.code is Code.GROUP_ID_NOT_FOUND


def test_a_producer_is_fenced_and_what_it_had_open_is_aborted(any_node: NodeProcess, topic: str) -> None:
    with Producer(any_node.bootstrap, transactional_id=topic) as producer, Admin(any_node.bootstrap) as admin:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"never", partition=0).result(30)
        admin.fence_producers([topic])
        with pytest.raises(ProducerFencedError):
            producer.commit_transaction()
        assert admin.describe_transactions([topic])[topic].state == "Empty"
    with Consumer(any_node.bootstrap, isolation_level="read_committed") as reader:
        reader.assign([TopicPartition(topic, 0)], start="earliest")
        assert list(reader.until_end()) == []


def test_what_has_a_configuration_is_listed(any_node: NodeProcess, topic: str) -> None:
    group = ConfigResource("group", topic)
    with Admin(any_node.bootstrap) as admin:
        admin.alter_configs({group: {"consumer.session.timeout.ms": "50000"}})
        wait_until(lambda: group in admin.list_config_resources(["group"]), "the group is there")
        found = admin.list_config_resources()
        assert {ConfigResource("broker", "1"), ConfigResource("topic", topic), group} <= set(found)
        assert found == sorted(found)
        assert {one.type for one in admin.list_config_resources(["topic"])} == {"topic"}
