"""AssignReplicasToDirs 0, of brokers: in which log directory each replica lies (KIP-858)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import BrokerEpoch, BrokerId, PartitionIndex, TopicId
from tidelog.controller import ControllerState, ReplicaInDirectory, pieces_to_assign
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_73_assign_replicas_to_dirs import (
    AssignedDirectoryResult,
    AssignedPartitionResult,
    AssignedTopicResult,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import ControllerApi


async def handle(
    node: ControllerApi, request: AssignReplicasToDirsRequest, context: RequestContext
) -> AssignReplicasToDirsResponse:
    broker_id, broker_epoch = BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch)
    replicas = [
        ReplicaInDirectory(TopicId(topic.topic_id), PartitionIndex(one.partition_index), directory.id)
        for directory in request.directories
        for topic in directory.topics
        for one in topic.partitions
    ]
    try:
        controller = node.controller
        codes: list[Code] = await controller.request_in_pieces(
            [
                partial(
                    ControllerState.decide_assign_directories,
                    broker_id=broker_id,
                    broker_epoch=broker_epoch,
                    replicas=piece,
                )
                for piece in pieces_to_assign(controller.journal.speculative.settings, replicas)
            ]
        )
    except KafkaError as error:
        return AssignReplicasToDirsResponse(error_code=code_of(error, f"AssignReplicasToDirs of broker {broker_id}"))
    told = iter(codes)
    return AssignReplicasToDirsResponse(
        directories=[
            AssignedDirectoryResult(
                directory.id,
                [
                    AssignedTopicResult(
                        topic.topic_id,
                        [AssignedPartitionResult(one.partition_index, next(told)) for one in topic.partitions],
                    )
                    for topic in directory.topics
                ],
            )
            for directory in request.directories
        ]
    )
