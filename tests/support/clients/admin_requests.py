"""What administrators ask of a node, over a `WireClient`: one resource a request, answers as they come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from support.clients.wire_client import WireClient
from tidelog.wire import ApiKey
from tidelog.wire.messages import api_33_alter_configs as replacing
from tidelog.wire.messages import api_44_incremental_alter_configs as changing
from tidelog.wire.messages.api_21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tidelog.wire.messages.api_32_describe_configs import (
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_TOPIC,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tidelog.wire.messages.api_37_create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

__all__ = ["RESOURCE_BROKER", "RESOURCE_BROKER_LOGGER", "RESOURCE_TOPIC"]

Change = tuple[int, str | None]
"""An operation and its value."""


def set_to(value: str) -> Change:
    return changing.OPERATION_SET, value


DELETED: Change = (changing.OPERATION_DELETE, None)


def alter(
    client: WireClient,
    name: str,
    changes: Mapping[str, Change],
    *,
    kind: int = RESOURCE_TOPIC,
    validate_only: bool = False,
    version: int = 1,
) -> changing.AlterConfigsResourceResponse:
    request = changing.IncrementalAlterConfigsRequest(
        resources=[
            changing.AlterConfigsResource(
                kind, name, [changing.AlterableConfig(key, *change) for key, change in changes.items()]
            )
        ],
        validate_only=validate_only,
    )
    answer = client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, request, changing.IncrementalAlterConfigsResponse)
    return answer.responses[0]


def change(client: WireClient, name: str, changes: Mapping[str, Change], *, kind: int = RESOURCE_TOPIC) -> None:
    """As `alter`; it is an error if it is refused."""
    row = alter(client, name, changes, kind=kind)
    assert row.error_code == 0, row.error_message


def replace_all(
    client: WireClient, name: str, configs: Mapping[str, str | None], *, kind: int = RESOURCE_TOPIC, version: int = 2
) -> replacing.AlterConfigsResourceResponse:
    request = replacing.AlterConfigsRequest(
        resources=[
            replacing.AlterConfigsResource(
                kind, name, [replacing.AlterableConfig(key, value) for key, value in configs.items()]
            )
        ]
    )
    return client.ask(ApiKey.ALTER_CONFIGS, version, request, replacing.AlterConfigsResponse).responses[0]


def describe(
    client: WireClient, name: str, *, kind: int = RESOURCE_TOPIC, version: int = 4, keys: list[str] | None = None
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(kind, name, keys)],
        include_synonyms=True,
        include_documentation=version >= 3,
    )
    return client.ask(ApiKey.DESCRIBE_CONFIGS, version, request, DescribeConfigsResponse).results[0]


def described(client: WireClient, name: str, *, kind: int = RESOURCE_TOPIC) -> dict[str, DescribeConfigsResourceResult]:
    """The settings of a resource by their keys; it is an error if it is refused."""
    result = describe(client, name, kind=kind)
    assert result.error_code == 0, result.error_message
    return {row.name: row for row in result.configs}


def grow(
    client: WireClient,
    topic: str,
    count: int,
    assignments: Sequence[Sequence[int]] | None = None,
    *,
    validate_only: bool = False,
    version: int = 3,
) -> CreatePartitionsTopicResult:
    chosen = None if assignments is None else [CreatePartitionsAssignment(list(one)) for one in assignments]
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(topic, count, chosen)], validate_only=validate_only)
    return client.ask(ApiKey.CREATE_PARTITIONS, version, request, CreatePartitionsResponse).results[0]


def delete_records(
    client: WireClient, topic: str, offset: int, *, partition: int = 0, version: int = 2
) -> DeleteRecordsPartitionResult:
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(topic, [DeleteRecordsPartition(partition, offset)])])
    answer = client.ask(ApiKey.DELETE_RECORDS, version, request, DeleteRecordsResponse)
    return answer.topics[0].partitions[0]
