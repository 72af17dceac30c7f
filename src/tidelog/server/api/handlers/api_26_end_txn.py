"""EndTxn 0-5: a producer commits or aborts its transaction.

Behaviour: answered once the decision is committed; markers are written to the partitions after that, and the next
transaction begins when they are there. From 5 on (KIP-890) the answer has the producer's next epoch, or another
producer id where the epochs run out; the same request again gets the same answer, and an abort is accepted where
nothing was written. A transaction that lost records in an unclean election is not committed: TRANSACTION_ABORTABLE, and
before 4, which does not know it, UNKNOWN_PRODUCER_ID, upon which producers abort. A fenced producer gets
PRODUCER_FENCED, before version 2 INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import ProducerEpoch, ProducerId
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.server.api.transaction_answers import fenced_code, submit_with_producer_id
from tidelog.wire.messages.api_26_end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from tidelog.server.api.ports import TransactionsApi

PRODUCER_FENCED_FROM_VERSION = 2
ABORTABLE_FROM_VERSION = 4
EPOCH_BUMP_FROM_VERSION = 5


async def handle(node: TransactionsApi, request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    from tidelog.coordinator.transactions import EndTransaction, ProducerIdentity

    version = context.api_version
    bumps = version >= EPOCH_BUMP_FROM_VERSION

    def end(fresh_producer_id: ProducerId | None) -> object:
        wanted = EndTransaction(
            transactional_id=request.transactional_id,
            producer=ProducerIdentity(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)),
            commits=request.committed,
            client_version=2 if bumps else 0,
            fresh_producer_id=fresh_producer_id,
        )
        return node.transactions.submit(
            request.transactional_id,
            lambda machine, request_id, now_ms, wall_ms: machine.on_end(
                request_id, wanted, now_ms=now_ms, wall_ms=wall_ms
            ),
        )

    try:
        producer_id, producer_epoch = await submit_with_producer_id(node, end)
    except KafkaError as error:
        return EndTxnResponse(error_code=_code(code_of(error, "EndTxn"), version))
    if bumps:
        return EndTxnResponse(producer_id=producer_id, producer_epoch=producer_epoch)
    return EndTxnResponse()


def _code(code: Code, version: int) -> Code:
    if version < ABORTABLE_FROM_VERSION and code == Code.TRANSACTION_ABORTABLE:
        return Code.UNKNOWN_PRODUCER_ID
    return fenced_code(code) if version < PRODUCER_FENCED_FROM_VERSION else code
