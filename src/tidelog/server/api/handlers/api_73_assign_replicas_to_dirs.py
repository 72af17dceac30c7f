"""AssignReplicasToDirs 0, of brokers: in which log directory each replica lies (KIP-858).

Behaviour: what lists many replicas is read, and its answer made, on another thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    from tidelog.controller.values import ControllerSettings
    from tidelog.server.api.ports import ControllerApi


async def handle(
    node: ControllerApi, request: AssignReplicasToDirsRequest, context: RequestContext
) -> AssignReplicasToDirsResponse:
    broker_id, broker_epoch = BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch)
    controller = node.controller
    read = partial(_pieces, request, controller.journal.speculative.settings)
    pieces = await node.executor.compute(read) if context.is_long else read()
    try:
        codes: list[Code] = await controller.request_in_pieces(
            [
                partial(
                    ControllerState.decide_assign_directories,
                    broker_id=broker_id,
                    broker_epoch=broker_epoch,
                    replicas=piece,
                )
                for piece in pieces
            ]
        )
    except KafkaError as error:
        answer = partial(_refused, pieces, code_of(error, f"AssignReplicasToDirs of broker {broker_id}"))
    else:
        answer = partial(_answered, pieces, request, codes)
    return await node.executor.compute(answer) if context.is_long else answer()


def _pieces(request: AssignReplicasToDirsRequest, settings: ControllerSettings) -> list[Sequence[ReplicaInDirectory]]:
    replicas = [
        ReplicaInDirectory(TopicId(topic.topic_id), PartitionIndex(one.partition_index), directory.id)
        for directory in request.directories
        for topic in directory.topics
        for one in topic.partitions
    ]
    return list(pieces_to_assign(settings, replicas))


def _refused(pieces: list[Sequence[ReplicaInDirectory]], code: Code) -> AssignReplicasToDirsResponse:
    pieces.clear()  # to free them takes long, too
    return AssignReplicasToDirsResponse(error_code=code)


def _answered(
    pieces: list[Sequence[ReplicaInDirectory]], request: AssignReplicasToDirsRequest, codes: Iterable[Code]
) -> AssignReplicasToDirsResponse:
    pieces.clear()
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
