"""A requester with some rights is answered by a node as by Apache Kafka: the same rows, with the same errors.

Both have the topics mine, seen and secret, and these ACLs.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from support.clients.authorized_kafka import AuthorizedKafka
from support.clients.kafka_tools import KafkaTools
from support.clients.token_client import OneNode, play
from support.clients.wire_client import WireClient, batch_of
from support.clients.wire_values import request_from
from support.fixtures.scripted_authorizer import ScriptedAuthorizer
from support.fixtures.waiting import TURN_SECONDS, wait_until
from tidelog import Admin, NewTopic
from tidelog.base.errors import Code
from tidelog.base.ids import parse_uuid
from tidelog.metadata import ResourceType
from tidelog.metadata.acls import AclOperation, AclResourceType
from tidelog.wire.api import ApiKey, api
from tidelog.wire.messages.api_10_find_coordinator import KEY_TYPE_GROUP, KEY_TYPE_SHARE, KEY_TYPE_TRANSACTION
from tidelog.wire.schema import layout_of

READ, WRITE = AclOperation.READ, AclOperation.WRITE
CREATE, DESCRIBE = AclOperation.CREATE, AclOperation.DESCRIBE
TOPIC, GROUP, TRANSACTIONAL_ID = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID

GRANTS = [
    *((operation, TOPIC, "mine") for operation in (READ, WRITE, DESCRIBE)),
    (DESCRIBE, TOPIC, "seen"),
    *((operation, TOPIC, "missing") for operation in (READ, DESCRIBE)),
    *((operation, TOPIC, "made") for operation in (CREATE, DESCRIBE)),
    (DESCRIBE, TOPIC, "unmade"),
    *((operation, GROUP, "g") for operation in (READ, DESCRIBE)),
    *((operation, TRANSACTIONAL_ID, "t") for operation in (WRITE, DESCRIBE)),
]
FLAGS = {TOPIC: "--topic", GROUP: "--group", TRANSACTIONAL_ID: "--transactional-id"}

THERE = ("mine", "seen", "secret")
NAMES = (*THERE, "missing", "nowhere")
UNKNOWN = UUID(int=0xABCDEF)
TRANSACTIONAL = {"index": 0, "records": batch_of(b"1", producer=(5, 0), base_sequence=0, transactional=True)}
BATCH = {"index": 0, "records": batch_of(b"1")}
FROM_THE_START = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}
COMMITTED = {"partition_index": 0, "committed_offset": 1}
PRODUCER = {"producer_id": 1, "producer_epoch": 0}
NO_PRODUCER = {"producer_id": -1, "producer_epoch": -1, "transaction_timeout_ms": 1_000}
OF_NO_MEMBER = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
CONFIGURED = [
    (ResourceType.TOPIC, "mine"),
    (ResourceType.BROKER, "1"),
    (ResourceType.BROKER_LOGGER, "1"),
    (ResourceType.GROUP, "g"),
]


class Asked(NamedTuple):
    """A request, and what it says."""

    key: ApiKey
    version: int
    values: dict[str, Any]


def by_name(field: str = "name", **row: Any) -> list[dict[str, Any]]:
    return [{field: name, **row} for name in NAMES]


def by_id(**row: Any) -> list[dict[str, Any]]:
    """Topics whose ids are put in the place of their names later."""
    return [{"topic_id": name, **row} for name in (*THERE, UNKNOWN)]


def produced(**values: Any) -> dict[str, Any]:
    return {"acks": -1, "timeout_ms": 1_000, **values}


def fetched(**values: Any) -> dict[str, Any]:
    return {"max_wait_ms": 0, "min_bytes": 0, "session_epoch": -1, **values}


STORY = {
    "produce": Asked(ApiKey.PRODUCE, 9, produced(topic_data=by_name(partition_data=[BATCH]))),
    "produce by id": Asked(ApiKey.PRODUCE, 13, produced(topic_data=by_id(partition_data=[BATCH]))),
    "produce in a transaction": Asked(
        ApiKey.PRODUCE,
        9,
        produced(transactional_id="other", topic_data=[{"name": "mine", "partition_data": [TRANSACTIONAL]}]),
    ),
    "produce in no transaction": Asked(
        ApiKey.PRODUCE, 9, produced(topic_data=[{"name": "mine", "partition_data": [TRANSACTIONAL]}])
    ),
    "fetch": Asked(ApiKey.FETCH, 12, fetched(topics=by_name("topic", partitions=[FROM_THE_START]))),
    "fetch by id": Asked(ApiKey.FETCH, 17, fetched(topics=by_id(partitions=[FROM_THE_START]))),
    "fetch of a follower": Asked(
        ApiKey.FETCH, 17, fetched(topics=by_id(partitions=[FROM_THE_START]), replica_state={"replica_id": 5})
    ),
    "list offsets": Asked(
        ApiKey.LIST_OFFSETS,
        7,
        {"replica_id": -1, "topics": by_name(partitions=[{"partition_index": 0, "timestamp": -1}])},
    ),
    "metadata": Asked(
        ApiKey.METADATA,
        9,
        {"topics": by_name(), "include_topic_authorized_operations": True, "allow_auto_topic_creation": False},
    ),
    "metadata by id": Asked(
        ApiKey.METADATA, 12, {"topics": by_id(name=None), "include_topic_authorized_operations": True}
    ),
    "metadata of all": Asked(
        ApiKey.METADATA,
        9,
        {
            "topics": None,
            "include_topic_authorized_operations": True,
            "include_cluster_authorized_operations": True,
        },
    ),
    "metadata that creates": Asked(
        ApiKey.METADATA,
        9,
        {
            "topics": [{"name": "unmade"}, {"name": "nowhere"}],
            "include_topic_authorized_operations": True,
            "allow_auto_topic_creation": True,
        },
    ),
    "describe all topics": Asked(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": [], "response_partition_limit": 99}),
    "describe topics": Asked(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": by_name(), "response_partition_limit": 99}
    ),
    "find groups": Asked(ApiKey.FIND_COORDINATOR, 4, {"key_type": KEY_TYPE_GROUP, "coordinator_keys": ["g", "other"]}),
    "find ids": Asked(
        ApiKey.FIND_COORDINATOR, 4, {"key_type": KEY_TYPE_TRANSACTION, "coordinator_keys": ["t", "other"]}
    ),
    "find a share group's state": Asked(
        ApiKey.FIND_COORDINATOR, 6, {"key_type": KEY_TYPE_SHARE, "coordinator_keys": ["g:AAAAAAAAAAAAAAAAAAAAAA:0"]}
    ),
    "commit": Asked(ApiKey.OFFSET_COMMIT, 9, OF_NO_MEMBER | {"topics": by_name(partitions=[COMMITTED])}),
    "commit by id": Asked(ApiKey.OFFSET_COMMIT, 10, OF_NO_MEMBER | {"topics": by_id(partitions=[COMMITTED])}),
    "commit of another": Asked(
        ApiKey.OFFSET_COMMIT, 9, OF_NO_MEMBER | {"group_id": "other", "topics": by_name(partitions=[COMMITTED])}
    ),
    "offsets": Asked(
        ApiKey.OFFSET_FETCH,
        8,
        {"groups": [{"group_id": group, "topics": by_name(partition_indexes=[0])} for group in ("g", "other")]},
    ),
    "offsets of one group": Asked(ApiKey.OFFSET_FETCH, 7, {"group_id": "g", "topics": by_name(partition_indexes=[0])}),
    "offsets by id": Asked(
        ApiKey.OFFSET_FETCH, 10, {"groups": [{"group_id": "g", "topics": by_id(partition_indexes=[0])}]}
    ),
    "all offsets": Asked(ApiKey.OFFSET_FETCH, 8, {"groups": [{"group_id": "g", "topics": None}]}),
    "describe groups": Asked(
        ApiKey.DESCRIBE_GROUPS, 5, {"groups": ["g", "other"], "include_authorized_operations": True}
    ),
    "describe consumer groups": Asked(
        ApiKey.CONSUMER_GROUP_DESCRIBE, 0, {"group_ids": ["g", "other"], "include_authorized_operations": True}
    ),
    "list groups": Asked(ApiKey.LIST_GROUPS, 5, {}),
    "delete groups": Asked(ApiKey.DELETE_GROUPS, 2, {"groups_names": ["g", "other"]}),
    "delete offsets": Asked(
        ApiKey.OFFSET_DELETE, 0, {"group_id": "g", "topics": by_name(partitions=[{"partition_index": 0}])}
    ),
    "subscribe": Asked(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        {
            "group_id": "g",
            "member_id": "m",
            "member_epoch": 0,
            "rebalance_timeout_ms": 1_000,
            "subscribed_topic_names": ["mine", "secret"],
            "topic_partitions": [],
        },
    ),
    "begin as another": Asked(ApiKey.INIT_PRODUCER_ID, 4, NO_PRODUCER | {"transactional_id": "other"}),
    "add partitions": Asked(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        {"v3_and_below_transactional_id": "t", "v3_and_below_topics": by_name(partitions=[0])},
    ),
    "add partitions as another": Asked(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        {"v3_and_below_transactional_id": "other", "v3_and_below_topics": by_name(partitions=[0])},
    ),
    "add offsets": Asked(ApiKey.ADD_OFFSETS_TO_TXN, 3, PRODUCER | {"transactional_id": "t", "group_id": "other"}),
    "commit in a transaction": Asked(
        ApiKey.TXN_OFFSET_COMMIT,
        3,
        PRODUCER
        | {
            "transactional_id": "t",
            "group_id": "g",
            "generation_id": -1,
            "topics": [{"name": name, "partitions": [COMMITTED]} for name in ("seen", "secret", "nowhere")],
        },
    ),
    "describe transactions": Asked(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["t", "other"]}),
    "list transactions": Asked(ApiKey.LIST_TRANSACTIONS, 0, {}),
    "leader epochs": Asked(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        4,
        {
            "replica_id": -1,
            "topics": by_name("topic", partitions=[{"partition": 0, "leader_epoch": 0, "current_leader_epoch": -1}]),
        },
    ),
    "describe settings": Asked(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        {
            "resources": [
                {"resource_type": kind, "resource_name": name, "configuration_keys": None} for kind, name in CONFIGURED
            ]
        },
    ),
    "alter settings": Asked(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        {"resources": [{"resource_type": kind, "resource_name": name, "configs": []} for kind, name in CONFIGURED]},
    ),
    "describe producers": Asked(ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": by_name(partition_indexes=[0])}),
    "delete records": Asked(
        ApiKey.DELETE_RECORDS,
        2,
        {"timeout_ms": 1_000, "topics": by_name(partitions=[{"partition_index": 0, "offset": 0}])},
    ),
    "add partitions to topics": Asked(
        ApiKey.CREATE_PARTITIONS, 3, {"timeout_ms": 1_000, "topics": by_name(count=3, assignments=None)}
    ),
    "create": Asked(
        ApiKey.CREATE_TOPICS,
        7,
        {
            "timeout_ms": 1_000,
            "topics": [
                {"name": name, "num_partitions": 1, "replication_factor": 1}
                for name in ("made", "nowhere", "mine", "secret")
            ],
        },
    ),
    "delete by id": Asked(ApiKey.DELETE_TOPICS, 6, {"timeout_ms": 1_000, "topics": by_id(name=None)}),
    "delete": Asked(ApiKey.DELETE_TOPICS, 5, {"timeout_ms": 1_000, "topic_names": list(NAMES)}),
    "describe the cluster": Asked(ApiKey.DESCRIBE_CLUSTER, 0, {"include_cluster_authorized_operations": True}),
}
"""In this order; nothing in it does away with a topic."""

TOLD = {
    *("name", "topic", "topic_id", "topic_name", "group_id", "transactional_id", "key", "group_state", "is_internal"),
    *("index", "partition", "partition_index", "resource_type", "resource_name", "num_partitions"),
    *("error_code", "partition_error_code", "topic_config_error_code", "replication_factor"),
    *("topic_authorized_operations", "cluster_authorized_operations", "authorized_operations"),
}
"""What is compared of an answer, beside its rows."""
UNTOLD = {"brokers", "configs", "node_endpoints"}
PASSES = {Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR}


def told(value: Any, names: dict[UUID, str]) -> Any:
    if isinstance(value, list):
        return sorted((told(one, names) for one in value), key=str)
    if not hasattr(type(value), "__layout__"):
        return names.get(value, "new" if value.int > UNKNOWN.int else value) if isinstance(value, UUID) else value
    fields = {spec.name: getattr(value, spec.name) for spec in layout_of(type(value)).fields}
    return {
        name: told(field, names)
        for name, field in fields.items()
        if name not in UNTOLD and (name in TOLD or _has_rows(field))
    }


def _has_rows(field: Any) -> bool:
    return isinstance(field, list) and any(hasattr(type(one), "__layout__") for one in field)


def passes(answer: Any) -> bool:
    """Whether an answer only says that a coordinator is on its way."""
    return any(re.search(rf"'error_code': {int(code)}\b", str(answer)) for code in PASSES)


def with_ids(value: Any, ids: dict[str, UUID]) -> Any:
    if isinstance(value, list):
        return [with_ids(one, ids) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        name: ids.get(field, field) if name == "topic_id" else with_ids(field, ids) for name, field in value.items()
    }


@pytest.fixture(scope="module")
def kafka(
    tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[AuthorizedKafka, dict[str, UUID]]]:
    """Apache Kafka with these topics and ACLs, and the ids of the topics."""
    directory = tmp_path_factory.mktemp("rights")
    started = AuthorizedKafka(directory / "kafka")
    try:
        started.peer.start()
        given = started.trusted
        with Admin(given.pop("bootstrap_servers"), **given) as admin:
            admin.create_topics([NewTopic(name, 1, 1) for name in THERE])
            # Kafka's broker may not have heard yet of what its controller has made.
            wait_until(lambda: set(THERE) <= {one.name for one in admin.list_topics()}, "Kafka shows its topics")
            ids = {name: parse_uuid(one.topic_id or "") for name, one in admin.describe_topics(THERE).items()}
        place = started.tool_arguments(directory)
        for operation, kind, name in GRANTS:
            allowed = ["--add", "--allow-principal", "User:ANONYMOUS", "--operation", operation.name, FLAGS[kind], name]
            ran = tools.run("kafka-acls", *place, *allowed)
            assert ran.status == 0, ran
        yield started, ids
    finally:
        started.peer.close()


@pytest.fixture(scope="module")
def ours() -> dict[str, Any]:
    """What a node answers."""
    answers: dict[str, Any] = {}

    async def story(one: OneNode) -> None:
        await one.make(*THERE)
        one.node.authorizer = ScriptedAuthorizer(*GRANTS)
        ids: dict[str, UUID] = {name: one.node.image.topics_by_name[name].topic_id for name in THERE}
        names = {topic_id: name for name, topic_id in ids.items()}
        for title, (key, version, values) in STORY.items():
            while True:
                async with one.client() as client:
                    request = request_from(key, version, with_ids(values, ids))
                    answers[title] = told(await client.ask(request, version=version), names)
                if not passes(answers[title]):
                    break
                await asyncio.sleep(TURN_SECONDS)

    play(story)
    return answers


@pytest.mark.parametrize("title", STORY)
def test_rows_are_denied_as_kafka_denies_them(
    kafka: tuple[AuthorizedKafka, dict[str, UUID]], ours: dict[str, Any], title: str
) -> None:
    started, ids = kafka
    key, version, values = STORY[title]
    names = {topic_id: name for name, topic_id in ids.items()}
    answers: list[Any] = []

    def is_answered() -> bool:
        with WireClient(started.peer.port) as client:
            request = request_from(key, version, with_ids(values, ids))
            answers.append(told(client.ask(key, version, request, api(key).response), names))
        return not passes(answers[-1])

    wait_until(is_answered, f"Kafka answers: {title}")
    assert ours[title] == answers[-1]
