"""However much a request lists, or an answer tells, others wait for few questions to the authorizer at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from support.clients.wire_values import request_from
from support.fixtures.guarded_api import ImageOfIds, answered
from support.fixtures.loop_steps import Steps
from support.fixtures.scripted_authorizer import ScriptedAuthorizer
from tidelog.base.principals import ANONYMOUS, Requester
from tidelog.io.clock import SystemClock
from tidelog.io.executor import ThreadExecutor
from tidelog.metadata import ResourceType
from tidelog.metadata.acls import AclOperation, AclResourceType
from tidelog.server.api.audit_log import AuditLog
from tidelog.server.api.authorization import guarded
from tidelog.server.api.long_requests import in_pieces
from tidelog.server.api.needs import NEEDS
from tidelog.server.transport.listener_roles import BROKER
from tidelog.wire.api import ApiKey, api
from tidelog.wire.messages.api_03_metadata import MetadataResponse, MetadataResponseTopic
from tidelog.wire.messages.api_09_offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopic,
)
from tidelog.wire.messages.api_16_list_groups import ListedGroup, ListGroupsResponse

COUNT = 3_000
AT_ONCE_MAX = 1_024
"""Questions, some of which are asked of each thing that is looked at."""

NAMES = [f"topic-{number}" for number in range(COUNT)]
IN_PARTITIONS = [{"partition_index": 0}]

LISTING: dict[ApiKey, tuple[int, dict[str, Any]]] = {
    ApiKey.LIST_OFFSETS: (7, {"topics": [{"name": one, "partitions": IN_PARTITIONS} for one in NAMES]}),
    ApiKey.METADATA: (9, {"topics": [{"name": one} for one in NAMES], "allow_auto_topic_creation": True}),
    ApiKey.OFFSET_COMMIT: (10, {"topics": [{"topic_id": UUID(int=number + 1)} for number in range(COUNT)]}),
    ApiKey.OFFSET_FETCH: (
        8,
        {"groups": [{"group_id": "g", "topics": [{"name": one, "partition_indexes": [0]} for one in NAMES]}]},
    ),
    ApiKey.FIND_COORDINATOR: (4, {"coordinator_keys": NAMES}),
    ApiKey.DESCRIBE_GROUPS: (5, {"groups": NAMES}),
    ApiKey.CREATE_TOPICS: (7, {"topics": [{"name": one, "num_partitions": 1} for one in NAMES]}),
    ApiKey.DELETE_TOPICS: (5, {"topic_names": NAMES}),
    ApiKey.ADD_PARTITIONS_TO_TXN: (3, {"v3_and_below_topics": [{"name": one, "partitions": [0]} for one in NAMES]}),
    ApiKey.DESCRIBE_CONFIGS: (
        4,
        {"resources": [{"resource_type": ResourceType.TOPIC, "resource_name": one} for one in NAMES]},
    ),
    ApiKey.DESCRIBE_PRODUCERS: (0, {"topics": [{"name": one, "partition_indexes": [0]} for one in NAMES]}),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, {"transactional_ids": NAMES}),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (1, {"group_id": "g", "subscribed_topic_names": NAMES}),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, {"topics": [{"name": one} for one in NAMES]}),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (
        0,
        {"groups": [{"group_id": "g", "topics": [{"topic_name": one, "partitions": [0]} for one in NAMES]}]},
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (0, {"group_id": "g", "topics": [{"topic_name": one} for one in NAMES]}),
}
TELLING: dict[ApiKey, tuple[int, dict[str, Any], Any]] = {
    ApiKey.METADATA: (
        9,
        {"topics": None},
        lambda: MetadataResponse(brokers=[], topics=[MetadataResponseTopic(name=one) for one in NAMES]),
    ),
    ApiKey.LIST_GROUPS: (
        5,
        {},
        lambda: ListGroupsResponse(groups=[ListedGroup(group_id=one, protocol_type="") for one in NAMES]),
    ),
    ApiKey.OFFSET_FETCH: (
        8,
        {"groups": [{"group_id": "g", "topics": None}]},
        lambda: OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(
                    group_id="g", topics=[OffsetFetchResponseTopic(name=one, partitions=[]) for one in NAMES]
                )
            ]
        ),
    ),
}


class CountedAuthorizer(ScriptedAuthorizer):
    """Counts what it is asked on the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = Steps()
        self._loop_thread = threading.get_ident()

    def authorize(self, requester: Any, operation: AclOperation, resource_type: AclResourceType, name: str) -> bool:
        if threading.get_ident() == self._loop_thread:
            self.steps.count()
        self.asked.append((operation, resource_type, name))
        is_first = resource_type == AclResourceType.CLUSTER or name.endswith(("1", "3", "5"))
        return not is_first  # some of the topics and no more


async def serve(
    authorizer: CountedAuthorizer, key: ApiKey, version: int, request: Any, answer: Any, *, is_long: bool
) -> Any:
    executor = ThreadExecutor()
    known = api(key)

    async def handle(node: Any, passed: Any, context: Any) -> Any:
        return answered(key, version, passed) if answer is None else answer()

    node: Any = SimpleNamespace(
        authorizer=authorizer,
        audit=AuditLog(SystemClock()),
        image=ImageOfIds(),
        executor=executor,
        config=SimpleNamespace(described_partitions_max=COUNT),
        consistency_state=None,
    )
    context: Any = SimpleNamespace(
        api_version=version,
        requester=Requester(ANONYMOUS, "host"),
        listener_role=BROKER,
        is_long=is_long,
        read=lambda node: node,
        forwarded_for=None,
    )
    try:
        serve = guarded(known, handle, NEEDS[key])
        found = (in_pieces(known, serve) if is_long else serve)(node, request, context)
        return await found if isinstance(found, Awaitable) else found
    finally:
        executor.close()


@pytest.mark.parametrize("key", LISTING, ids=lambda key: key.name.lower())
def test_what_lists_much(key: ApiKey) -> None:
    version, values = LISTING[key]

    async def scenario() -> CountedAuthorizer:
        authorizer = CountedAuthorizer()
        await serve(authorizer, key, version, request_from(key, version, values), None, is_long=True)
        return authorizer

    authorizer = asyncio.run(scenario())
    assert len(authorizer.asked) >= (1 if key == ApiKey.CONSUMER_GROUP_HEARTBEAT else COUNT)
    assert max(authorizer.steps.counts, default=0) <= AT_ONCE_MAX


@pytest.mark.parametrize("key", TELLING, ids=lambda key: key.name.lower())
def test_what_is_told_much(key: ApiKey) -> None:
    version, values, answer = TELLING[key]

    async def scenario() -> CountedAuthorizer:
        authorizer = CountedAuthorizer()
        found = await serve(authorizer, key, version, request_from(key, version, values), answer, is_long=False)
        assert 0 < len(_rows(found)) < COUNT
        return authorizer

    authorizer = asyncio.run(scenario())
    assert len(authorizer.asked) >= COUNT
    assert max(authorizer.steps.counts, default=0) <= AT_ONCE_MAX


def _rows(answer: Any) -> list[Any]:
    if isinstance(answer, OffsetFetchResponse):
        return answer.groups[0].topics
    return answer.topics if isinstance(answer, MetadataResponse) else answer.groups
