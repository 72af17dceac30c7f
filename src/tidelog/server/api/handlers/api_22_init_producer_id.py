"""InitProducerId 0-5: an id and an epoch to produce with.

Behaviour: without a transactional id, an id unlike any given before; a producer that already has an id and epoch (3+)
gets a fresh one. With a transactional id, the next epoch of its producer, by which the one before is fenced; a
transaction that the one before left open is aborted first, which the request waits for, at most a second, and is then
answered CONCURRENT_TRANSACTIONS. A producer that goes on after an error names what it has (3+, KIP-360), and is fenced
if another one began meanwhile: PRODUCER_FENCED, before version 4 INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import ProducerEpoch, ProducerId
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.server.api.transaction_answers import fenced_code, submit_with_producer_id
from tidelog.wire.messages.api_22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from tidelog.server.api.ports import TransactionsApi

PRODUCER_FENCED_FROM_VERSION = 4


async def handle(
    node: TransactionsApi, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    try:
        if (request.producer_id < 0) != (request.producer_epoch < 0):
            raise refusal(Code.INVALID_REQUEST, "a producer id and its epoch come together")
        if request.transactional_id is None:
            return InitProducerIdResponse(producer_id=await node.next_producer_id(), producer_epoch=0)
        producer_id, producer_epoch = await _init(node, request, request.transactional_id)
    except KafkaError as error:
        code = code_of(error, "InitProducerId")
        is_old = context.api_version < PRODUCER_FENCED_FROM_VERSION
        return InitProducerIdResponse(error_code=fenced_code(code) if is_old else code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=producer_epoch)


async def _init(node: TransactionsApi, request: InitProducerIdRequest, transactional_id: str) -> tuple[int, int]:
    from tidelog.coordinator.transactions import InitProducer, ProducerIdentity

    expected = None
    if request.producer_id >= 0:
        expected = ProducerIdentity(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch))

    def init(fresh_producer_id: ProducerId | None) -> object:
        wanted = InitProducer(
            transactional_id=transactional_id,
            timeout_ms=request.transaction_timeout_ms,
            expected=expected,
            fresh_producer_id=fresh_producer_id,
        )
        return node.transactions.submit(
            transactional_id,
            lambda machine, request_id, now_ms, wall_ms: machine.on_init_producer_id(
                request_id, wanted, now_ms=now_ms, wall_ms=wall_ms
            ),
        )

    return await submit_with_producer_id(node, init)
