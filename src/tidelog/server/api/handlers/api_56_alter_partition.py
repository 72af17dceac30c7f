"""AlterPartition 2-3, of brokers: a leader asks for another ISR, for each of its partitions on its own (KIP-497).

Behaviour: checked against what is committed and what is about to be (rule 5): who asks, at which broker epoch, leader
epoch and partition epoch, and whether the members may be in sync (KIP-841; KIP-903 from 3 on). A grant comes with the
state that is in force then. What names many is decided in portions: each partition counts alone.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from tidelog.base.errors import KafkaError
from tidelog.base.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, PartitionIndex, TopicId
from tidelog.controller import AlteredPartition, ControllerState, IsrChange, IsrMember, PartitionToAlter
from tidelog.controller.isr_changes import PartitionKey, pieces_to_alter, repeated_in
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_56_alter_partition import (
    RECOVERED,
    RECOVERING,
    AlteredPartitionData,
    AlteredTopic,
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionResponse,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import ControllerApi

EPOCHS_OF_MEMBERS_FROM_VERSION = 3


async def handle(
    node: ControllerApi, request: AlterPartitionRequest, context: RequestContext
) -> AlterPartitionResponse:
    read = partial(_wanted, request, tells_epochs=context.api_version >= EPOCHS_OF_MEMBERS_FROM_VERSION)
    wanted, repeated = await node.executor.compute(read) if context.is_long else read()
    sender, sender_epoch = BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch)
    try:
        controller = node.controller
        altered: list[AlteredPartition] = await controller.request_in_pieces(
            partial(
                ControllerState.decide_alter_partitions,
                sender=sender,
                sender_epoch=sender_epoch,
                partitions=piece,
                repeated=repeated,
            )
            for piece in pieces_to_alter(controller.journal.speculative.settings, wanted)
        )
    except KafkaError as error:
        return AlterPartitionResponse(error_code=code_of(error, f"AlterPartition of broker {sender}"))
    return AlterPartitionResponse(
        topics=[
            AlteredTopic(topic_id, [_row(one) for one in rows])
            for topic_id, rows in groupby(altered, key=lambda one: one.topic_id)
        ]
    )


def _wanted(
    request: AlterPartitionRequest, *, tells_epochs: bool
) -> tuple[list[PartitionToAlter], Collection[PartitionKey]]:
    """What is asked for, and which partitions are named more than once."""
    wanted = [
        PartitionToAlter(TopicId(topic.topic_id), PartitionIndex(one.partition_index), _change(one, tells_epochs))
        for topic in request.topics
        for one in topic.partitions
    ]
    return wanted, repeated_in(wanted)


def _change(requested: AlterPartitionData, tells_epochs: bool) -> IsrChange:
    if tells_epochs:
        isr = [(one.broker_id, one.broker_epoch) for one in requested.new_isr_with_epochs]
    else:
        isr = [(broker_id, -1) for broker_id in requested.new_isr]
    return IsrChange(
        LeaderEpoch(requested.leader_epoch),
        PartitionEpoch(requested.partition_epoch),
        tuple(IsrMember(BrokerId(one), None if epoch < 0 else BrokerEpoch(epoch)) for one, epoch in isr),
        is_recovering=requested.leader_recovery_state == RECOVERING,
    )


def _row(altered: AlteredPartition) -> AlteredPartitionData:
    state = altered.state
    if state is None:
        return AlteredPartitionData(partition_index=altered.partition, error_code=altered.code)
    return AlteredPartitionData(
        partition_index=altered.partition,
        leader_id=-1 if state.leader is None else state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        leader_recovery_state=RECOVERING if state.is_recovering else RECOVERED,
        partition_epoch=state.partition_epoch,
    )
