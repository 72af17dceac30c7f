"""InitProducerId 0-5: an id for an idempotent producer, unlike any given before.

Behaviour: a producer that already has an id and epoch (3+) gets a fresh id. A transactional id needs a transaction
coordinator, which is not served: the refusal is INVALID_REQUEST, which ends the attempt at once
(COORDINATOR_NOT_AVAILABLE would be retried for ever).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError
from tidelog.server.api.dispatch import RequestContext, code_of
from tidelog.server.settings.log_lines import Seldom
from tidelog.wire.messages.api_22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from tidelog.server.api.ports import DataApi

logger = logging.getLogger("tidelog.server.producer_ids")

LOG_INTERVAL_SECONDS = 1.0
TRANSACTIONAL_ID_SHOWN_MAX = 200
_seldom = Seldom(LOG_INTERVAL_SECONDS)
"""Whoever is refused may ask again at once, and on and on: the log is not to grow with it."""


async def handle(node: DataApi, request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        _log_refused(request.transactional_id, context.connection.peer)
        return InitProducerIdResponse(error_code=Code.INVALID_REQUEST)
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        return InitProducerIdResponse(error_code=Code.INVALID_REQUEST)
    try:
        producer_id = await node.next_producer_id()
    except KafkaError as error:
        return InitProducerIdResponse(error_code=code_of(error, "InitProducerId"))
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _log_refused(transactional_id: str, peer: str) -> None:
    suppressed = _seldom.suppressed()
    if suppressed is not None:
        logger.warning(
            "%s: InitProducerId for transactional id %r refused: this release has no transactions%s",
            peer,
            transactional_id[:TRANSACTIONAL_ID_SHOWN_MAX],
            f" ({suppressed} more were refused since the last line)" if suppressed else "",
        )
