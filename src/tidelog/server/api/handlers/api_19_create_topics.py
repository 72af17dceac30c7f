"""CreateTopics 2-7: each topic on its own; what is created can be used at this broker when the answer comes.

Behaviour: names, counts, assignments and settings are checked as Kafka does; `validate_only` checks and creates
nothing. The answer (5+) shows the settings that are in force, (7+) the topic's id. The answer's token covers the
creation itself (KIP-1243, own writes).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import BrokerId
from tidelog.controller import CreateTopicResult, TopicToCreate
from tidelog.controller.partitions import PARTITIONS_PER_REQUEST_MAX
from tidelog.server.api.alter_configs import CHANGES_MAX
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_19_create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.server.api.ports import ControllerApi


async def handle(node: ControllerApi, request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    read = partial(_wanted, request)
    wanted = await node.executor.compute(read) if context.is_long else read()
    try:
        created = await node.create_topics_here(wanted, validate_only=request.validate_only)
    except KafkaError as error:
        return refused(request, context, error)
    results = iter(created)
    return CreateTopicsResponse(
        topics=[_row(next(results) if len(one.configs) <= CHANGES_MAX else _too_much(one)) for one in request.topics]
    )


def _too_much(topic: CreatableTopic) -> CreateTopicResult:
    why = f"topic {topic.name!r}: more than {CHANGES_MAX} settings are named at once"
    return CreateTopicResult(topic.name, Code.INVALID_CONFIG, why)


def refused(request: CreateTopicsRequest, context: RequestContext, error: KafkaError) -> CreateTopicsResponse:
    """The answer where nothing could be decided."""
    code = code_of(error, "CreateTopics")
    return CreateTopicsResponse(topics=[_row(CreateTopicResult(one.name, code, str(error))) for one in request.topics])


def _wanted(request: CreateTopicsRequest) -> list[TopicToCreate]:
    return [_new(topic) for topic in request.topics if len(topic.configs) <= CHANGES_MAX]


def _new(topic: CreatableTopic) -> TopicToCreate:
    return TopicToCreate(
        name=topic.name,
        num_partitions=None if topic.num_partitions == -1 else topic.num_partitions,
        replication_factor=None if topic.replication_factor == -1 else topic.replication_factor,
        assignments=tuple(
            (one.partition_index, tuple(BrokerId(broker) for broker in one.broker_ids))
            for one in topic.assignments[: PARTITIONS_PER_REQUEST_MAX + 1]  # with more it is refused, whatever they are
        ),
        configs=tuple((one.name, one.value) for one in topic.configs),
    )


def _row(result: CreateTopicResult) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=result.name,
        topic_id=ZERO_UUID if result.topic_id is None else result.topic_id,
        error_code=result.code,
        error_message=result.message,
        num_partitions=-1 if result.num_partitions is None else result.num_partitions,
        replication_factor=-1 if result.replication_factor is None else result.replication_factor,
        configs=[
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.is_read_only,
                config_source=entry.source,
                is_sensitive=entry.key.is_sensitive,
            )
            for entry in result.configs
        ],
    )
