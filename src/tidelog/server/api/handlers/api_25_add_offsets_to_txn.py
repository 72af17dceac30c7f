"""AddOffsetsToTxn 0-4: a transaction that commits offsets of a group gets the group's partition.

Behaviour: as AddPartitionsToTxn of the partition of `__consumer_offsets`. The first to need that topic has it made, as
FindCoordinator does: a producer asks for the group's coordinator only behind this request. A producer of version 2
sends none of these requests: TxnOffsetCommit adds the partition.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import ProducerEpoch, ProducerId, TopicPartition
from tidelog.server.api.group_answers import when_answered
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.server.api.transaction_answers import fenced_code
from tidelog.wire.messages.api_25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from tidelog.server.api.ports import TransactionsApi

PRODUCER_FENCED_FROM_VERSION = 2


def handle(
    node: TransactionsApi, request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse | Awaitable[AddOffsetsToTxnResponse]:
    place = node.groups.partition_for(request.group_id)
    if place is None:
        return _create_then_add(node, request, context)
    return _add(node, request, context, place)


async def _create_then_add(
    node: TransactionsApi, request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse:
    try:
        await node.groups.create_topic()
    except KafkaError as error:
        return AddOffsetsToTxnResponse(error_code=code_of(error, "AddOffsetsToTxn"))
    place = node.groups.partition_for(request.group_id)
    if place is None:
        return AddOffsetsToTxnResponse(error_code=Code.COORDINATOR_NOT_AVAILABLE)
    answer = _add(node, request, context, place)
    return answer if isinstance(answer, AddOffsetsToTxnResponse) else await answer


def _add(
    node: TransactionsApi, request: AddOffsetsToTxnRequest, context: RequestContext, place: TopicPartition
) -> AddOffsetsToTxnResponse | Awaitable[AddOffsetsToTxnResponse]:
    from tidelog.coordinator.transactions import ProducerIdentity

    producer = ProducerIdentity(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch))

    def respond(answer: Any) -> AddOffsetsToTxnResponse:
        code = code_of(answer, "AddOffsetsToTxn") if isinstance(answer, KafkaError) else Code.NONE
        is_old = context.api_version < PRODUCER_FENCED_FROM_VERSION
        return AddOffsetsToTxnResponse(error_code=fenced_code(code) if is_old else code)

    return when_answered(
        node.transactions.submit(
            request.transactional_id,
            lambda machine, request_id, now_ms, wall_ms: machine.on_add_partitions(
                request_id,
                request.transactional_id,
                producer,
                [place],
                client_version=0,
                now_ms=now_ms,
                wall_ms=wall_ms,
            ),
        ),
        respond,
    )
