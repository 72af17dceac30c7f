"""What handlers of transactions do alike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import ProducerId

if TYPE_CHECKING:
    from tidelog.coordinator.transactions import ProducerIdentity
    from tidelog.server.api.ports import TransactionsApi


def fenced_code(code: Code) -> Code:
    """For versions of requests that do not know PRODUCER_FENCED yet."""
    return Code.INVALID_PRODUCER_EPOCH if code == Code.PRODUCER_FENCED else code


async def submit_with_producer_id(
    node: TransactionsApi, ask: Callable[[ProducerId | None], object]
) -> ProducerIdentity:
    """Ask a coordinator, and again with a fresh producer id if it needs one, which is rare.

    Raises:
        KafkaError: it refuses, or the controller gives no producer id.
    """
    from tidelog.coordinator.transactions import ProducerIdentity, ProducerIdNeededError

    answer = await _answered(ask(None))
    if isinstance(answer, ProducerIdNeededError):
        answer = await _answered(ask(await node.next_producer_id()))
    if isinstance(answer, KafkaError):
        raise answer
    assert isinstance(answer, ProducerIdentity)
    return answer


async def _answered(answer: object) -> object:
    return await answer if isinstance(answer, asyncio.Future) else answer
