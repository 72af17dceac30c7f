"""StopReplica 0-4, of the active controller: this broker holds some replicas no more (KIP-570).

Served where brokers have a listener that clients do not use (`inter.broker.listener.name`), and nowhere else: there is
nothing in it that says who asks. Where they share one, brokers learn it from the metadata alone.

Behaviour: who is too late is refused, as a whole by the epochs of the controller and of this broker, or for one
partition by its leader epoch and its topic's id. What is obeyed serves no more when this is answered; its files go when
this broker's own metadata says the same. Versions before 3 have neither leader epochs nor ids: they stop nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import BrokerEpoch, ControllerEpoch, LeaderEpoch, Offset, PartitionIndex, TopicId, TopicPartition
from tidelog.replica import StopOrder, check_metadata_offset, check_stop_request
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_05_stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from tidelog.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.server.api.ports import ServerApi


async def handle(node: ServerApi, request: StopReplicaRequest, context: RequestContext) -> StopReplicaResponse:
    known = node.quorum.leader_epoch
    broker_epoch = node.broker_epoch
    try:
        if broker_epoch is None:
            raise refusal(Code.STALE_BROKER_EPOCH, "this broker is not registered: it serves nothing")
        check_stop_request(
            sent_controller_epoch=ControllerEpoch(request.controller_epoch),
            controller_epoch=None if known is None else ControllerEpoch(known),
            sent_broker_epoch=None if request.broker_epoch < 0 else BrokerEpoch(request.broker_epoch),
            broker_epoch=broker_epoch,
        )
        check_metadata_offset(_metadata_offset(request), node.metadata_received_end_offset)
    except KafkaError as error:
        return StopReplicaResponse(error_code=code_of(error, f"StopReplica of controller {request.controller_id}"))
    rows = []
    for order in orders_of(request):
        name, index = order.topic_partition
        code = Code.NONE
        try:
            await node.broker.stops.obey(order)
        except KafkaError as error:
            code = code_of(error, f"StopReplica of controller {request.controller_id}")
        rows.append(StopReplicaPartitionError(name, index, code))
    return StopReplicaResponse(partition_errors=rows)


def _metadata_offset(request: StopReplicaRequest) -> Offset | None:
    return None if request.metadata_offset < 0 else Offset(request.metadata_offset)


def orders_of(request: StopReplicaRequest) -> list[StopOrder]:
    """What a request of any version says, a partition at a time."""
    metadata_offset = _metadata_offset(request)
    told = [
        StopOrder(
            TopicPartition(topic.topic_name, PartitionIndex(one.partition_index)),
            None if topic.topic_id == ZERO_UUID else TopicId(topic.topic_id),
            None if one.leader_epoch < 0 else LeaderEpoch(one.leader_epoch),
            one.delete_partition,
            metadata_offset,
        )
        for topic in request.topic_states
        for one in topic.partition_states
    ]
    untold = [(one.topic_name, one.partition_index) for one in request.ungrouped_partitions]
    untold += [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    for name, index in untold:
        topic_partition = TopicPartition(name, PartitionIndex(index))
        told.append(StopOrder(topic_partition, None, None, request.delete_partitions, None))
    return told
