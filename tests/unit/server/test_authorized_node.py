"""A node that has an authorizer: what it reads from sessions, what it says one is authorized to do, and tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from support.clients.token_client import OneNode, TokenClient, metadata, play, produce
from support.clients.wire_client import batch_of
from support.fixtures.scripted_authorizer import ScriptedAuthorizer
from tidelog.base.errors import Code, NetworkError
from tidelog.metadata.acls import AclOperation, AclResourceType
from tidelog.wire.messages.api_01_fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from tidelog.wire.messages.api_03_metadata import MetadataRequest
from tidelog.wire.messages.api_15_describe_groups import DescribeGroupsRequest
from tidelog.wire.messages.api_20_delete_topics import DeleteTopicsRequest
from tidelog.wire.messages.api_60_describe_cluster import DescribeClusterRequest
from tidelog.wire.messages.api_75_describe_topic_partitions import DescribeTopicPartitionsRequest

READ, WRITE, DELETE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.DESCRIBE
TOPIC, GROUP, CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
DENIED = Code.TOPIC_AUTHORIZATION_FAILED


def of(operations: list[AclOperation]) -> int:
    return sum(1 << one for one in operations)


def with_rules(story: Callable[[OneNode, ScriptedAuthorizer, TokenClient], Awaitable[None]], *grants: Any) -> None:
    """Play with a node that has the topics `flights` and `secrets`, and a client whose rights these are."""

    async def run(one: OneNode) -> None:
        await one.make("secrets")
        rules = one.node.authorizer = ScriptedAuthorizer(*grants)
        async with one.client() as client:
            await story(one, rules, client)

    play(run)


def fetch(*topics: Any, session: tuple[int, int] = (0, -1), follower: int | None = None) -> FetchRequest:
    """By name, or by id."""
    rows = [
        FetchTopic(
            topic=one if isinstance(one, str) else "",
            **({} if isinstance(one, str) else {"topic_id": one}),
            partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)],
        )
        for one in topics
    ]
    state = None if follower is None else ReplicaState(replica_id=follower, replica_epoch=-1)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_id=session[0],
        session_epoch=session[1],
        topics=rows,
        replica_state=state,
    )


def told(answer: Any) -> dict[Any, int]:
    return {row.topic or row.topic_id: row.partitions[0].error_code for row in answer.responses}


def test_a_reader_reads_what_it_may_and_is_not_told_what_there_is() -> None:
    async def story(one: OneNode, rules: ScriptedAuthorizer, client: TokenClient) -> None:
        answer = await client.ask(fetch("flights", "secrets", "unheard-of"), version=12)
        assert told(answer) == {"flights": 0, "secrets": DENIED, "unheard-of": DENIED}
        secrets = one.node.image.topics_by_name["secrets"].topic_id
        flights = one.node.image.topics_by_name["flights"].topic_id
        assert told(await client.ask(fetch(flights, secrets), version=13)) == {flights: 0, secrets: DENIED}

    with_rules(story, (READ, TOPIC, "flights"))


def test_a_session_goes_by_the_rules_of_each_of_its_requests() -> None:
    async def story(one: OneNode, rules: ScriptedAuthorizer, client: TokenClient) -> None:
        first = await client.ask(fetch("flights", "secrets", session=(0, 0)), version=12)
        assert told(first) == {"flights": 0, "secrets": DENIED}
        epoch = 1

        async def ask() -> Any:
            nonlocal epoch
            epoch += 1
            return await client.ask(fetch(session=(first.session_id, epoch - 1)), version=12)

        assert told(await ask()) == {"secrets": DENIED}
        rules.grants |= {(READ, TOPIC, "secrets"), (WRITE, TOPIC, "flights")}
        assert told(await ask()) == {"secrets": 0}
        rules.grants.remove((READ, TOPIC, "flights"))
        assert told(await ask()) == {}  # nothing new is there
        assert (await client.ask(produce("flights"), version=12)).responses[0].partition_responses[0].error_code == 0
        answer = await ask()
        assert told(answer) == {"flights": DENIED}
        assert not answer.responses[0].partitions[0].records
        rules.grants.add((READ, TOPIC, "flights"))
        answer = await ask()
        assert len(answer.responses[0].partitions[0].records) == len(batch_of(b"1"))

    with_rules(story, (READ, TOPIC, "flights"))


def test_who_says_that_it_is_a_follower_has_to_be_a_node() -> None:
    async def story(one: OneNode, rules: ScriptedAuthorizer, client: TokenClient) -> None:
        flights = one.node.image.topics_by_name["flights"].topic_id
        answer = await client.ask(fetch(flights, session=(0, 0), follower=7), version=17)
        assert (answer.session_id, answer.error_code, told(answer)) == (0, 0, {flights: DENIED})
        assert len(one.node.fetch_sessions) == 0
        rules.grants.add((AclOperation.CLUSTER_ACTION, CLUSTER, None))
        assert told(await client.ask(fetch(flights, session=(0, 0), follower=7), version=17)) != {flights: DENIED}

    with_rules(story, (READ, TOPIC, None))


def test_a_producer_without_acks_is_hung_up_on() -> None:
    async def story(one: OneNode, rules: ScriptedAuthorizer, client: TokenClient) -> None:
        with pytest.raises(NetworkError):
            await client.ask(produce("secrets", acks=0), version=12)
        assert one.node.broker.partition("secrets", 0).log.log_end_offset == 0

    with_rules(story, (WRITE, TOPIC, "flights"))


def test_an_order_for_the_controller_is_denied_by_the_broker() -> None:
    async def story(one: OneNode, rules: ScriptedAuthorizer, client: TokenClient) -> None:
        request = DeleteTopicsRequest(topic_names=["secrets", "flights"], timeout_ms=1_000)
        answer = await client.ask(request, version=5)
        assert [(row.name, row.error_code) for row in answer.responses] == [("secrets", DENIED), ("flights", 0)]
        assert list(one.node.image.topics_by_name) == ["secrets"]

    with_rules(story, (DELETE, TOPIC, "flights"))


def test_all_topics_are_those_that_one_may_describe() -> None:
    async def story(one: OneNode, rules: ScriptedAuthorizer, client: TokenClient) -> None:
        answer = await client.ask(MetadataRequest(topics=None), version=12)
        assert [row.name for row in answer.topics] == ["flights"]
        assert len(answer.brokers) == 1
        answer = await client.ask(DescribeTopicPartitionsRequest(topics=[]), version=0)
        assert [row.name for row in answer.topics] == ["flights"]

    with_rules(story, (DESCRIBE, TOPIC, "flights"))


def test_what_one_is_authorized_to_do() -> None:
    async def story(one: OneNode, rules: ScriptedAuthorizer, client: TokenClient) -> None:
        request = MetadataRequest(
            topics=None, include_topic_authorized_operations=True, include_cluster_authorized_operations=True
        )
        answer = await client.ask(request, version=9)
        assert answer.topics[0].topic_authorized_operations == of([READ, DESCRIBE])
        assert answer.cluster_authorized_operations == 0  # who may not describe it is told nothing
        (row,) = (await client.ask(DescribeTopicPartitionsRequest(topics=[]), version=0)).topics
        assert row.topic_authorized_operations == of([READ, DESCRIBE])
        cluster = DescribeClusterRequest(include_cluster_authorized_operations=True)
        assert (await client.ask(cluster, version=1)).cluster_authorized_operations == 0
        rules.grants.add((DESCRIBE, CLUSTER, None))
        found = (await client.ask(cluster, version=1)).cluster_authorized_operations
        assert found == of([AclOperation.ALTER, DESCRIBE])
        groups = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
        await one.node.groups.create_topic()
        await one.until(lambda: one.node.groups.partition_for("g") is not None)
        group = None
        while group is None or group.error_code:
            (group,) = (await client.ask(groups, version=5)).groups
        assert group.authorized_operations == of([DELETE, DESCRIBE])

    with_rules(
        story,
        (READ, TOPIC, "flights"),
        (DESCRIBE, TOPIC, "flights"),
        (DELETE, GROUP, "g"),
        (DESCRIBE, GROUP, "g"),
        (AclOperation.ALTER, CLUSTER, None),
    )


@pytest.mark.parametrize("has_rules", [False, True])
def test_what_allows_a_request_may_be_a_rule_that_is_not_here_yet(has_rules: bool) -> None:
    async def story(one: OneNode) -> None:
        if has_rules:
            one.node.authorizer = ScriptedAuthorizer(allows_all=True)
        async with one.client(one.last_offset + 1) as client:
            asking = asyncio.ensure_future(client.ask(produce("flights"), version=12))
            if has_rules:  # a topic that is there is written to at once where there are no rules
                await one.until(lambda: one.waiting)
                await one.make("other")
            assert (await asking).responses[0].partition_responses[0].error_code == 0
        async with one.client(1 << 40) as client:
            assert (await client.ask(metadata("flights"), version=9)).topics[0].error_code == Code.STALE_METADATA

    play(story)
