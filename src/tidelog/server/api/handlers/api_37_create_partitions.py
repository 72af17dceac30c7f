"""CreatePartitions 0-3: topics grow, each on its own; the new partitions can be used at this broker with the answer.

Behaviour: counts and assignments are checked as Kafka does; a topic never shrinks, and the cluster's own topics stay as
they are. No record moves: keys go to other partitions from then on. `validate_only` checks, and creates nothing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.base.errors import KafkaError
from tidelog.base.ids import BrokerId
from tidelog.controller import GrownTopic, TopicToGrow
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import ControllerApi


async def handle(
    node: ControllerApi, request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    read = partial(_wanted, request)
    wanted = await node.executor.compute(read) if context.is_long else read()
    grown: tuple[GrownTopic, ...]
    try:
        grown = await node.controller.request(
            lambda state: state.decide_create_partitions(wanted, rng=node.rng, validate_only=request.validate_only)
        )
        await node.caught_up()
    except KafkaError as error:
        return refused(request, context, error)
    return CreatePartitionsResponse(
        results=[CreatePartitionsTopicResult(one.name, one.code, one.message) for one in grown]
    )


def refused(request: CreatePartitionsRequest, context: RequestContext, error: KafkaError) -> CreatePartitionsResponse:
    """The answer where nothing could be decided."""
    code = code_of(error, "CreatePartitions")
    return CreatePartitionsResponse(
        results=[CreatePartitionsTopicResult(one.name, code, str(error)) for one in request.topics]
    )


def _wanted(request: CreatePartitionsRequest) -> list[TopicToGrow]:
    return [_to_grow(topic) for topic in request.topics]


def _to_grow(topic: CreatePartitionsTopic) -> TopicToGrow:
    assignments = None
    if topic.assignments is not None:
        assignments = tuple(tuple(BrokerId(broker) for broker in one.broker_ids) for one in topic.assignments)
    return TopicToGrow(topic.name, topic.count, assignments)
