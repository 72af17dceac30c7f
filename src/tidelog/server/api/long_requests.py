"""Requests that list much are answered in pieces, one after another, with turns for everybody else in between.

Each piece is a request of its own, and its answer a part of the whole. What is said of one name stays in one piece,
unless that is more than a piece may hold. So the largest request that a stranger may send takes the event loop for a
few milliseconds at a time; and what a controller decides by it is appended in portions that the quorum can follow, as
Kafka's controller bounds the records of an operation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.server.api.apis import APIS
from tidelog.server.tasks import start_kept
from tidelog.server.transport.turns import in_turns
from tidelog.wire.api import Api, ApiKey
from tidelog.wire.schema import layout_of

if TYPE_CHECKING:
    from tidelog.server.api.ports import ServerApi
    from tidelog.server.api.request_context import Handler, RequestContext

CANCELLED_AT_ONCE_MAX = 8
"""Pieces of a request whose sender is gone."""

LOOKED_AT_FROM_BYTES = 1_024
"""A shorter request lists few elements, unless it orders more than it lists (`Division.orders`)."""

BYTES_GROWTH = 16
"""About how many bytes of memory one byte of a request that lists very much takes once it is read."""
KEPT_BYTES_MAX = 48 << 20
"""What is counted at most for one, unless its frame is larger: several find room at a time."""


def kept_bytes(size_bytes: int) -> int:
    """The memory that is counted for a request that lists very much, by the size of its frame."""
    return max(min(size_bytes * BYTES_GROWTH, KEPT_BYTES_MAX), size_bytes)


def is_long(known: Api, request: Any, size_bytes: int) -> bool:
    """Whether a request is to be answered in pieces."""
    division = APIS[known.key].division
    if division is None or (size_bytes < LOOKED_AT_FROM_BYTES and division.orders is None):
        return False
    if known.key == ApiKey.PRODUCE and not request.acks:
        return False  # who waits for no answer may be gone before the second piece
    return division.of(request).is_long(request)


def in_pieces(known: Api, handle: Handler) -> Handler:
    """The handler of an API, for long requests: it answers piece by piece, if there is a way to divide them.

    To free what a long request lists takes long as well: that is done piece by piece too, or on the other thread.
    """
    known_division = APIS[known.key].division
    if known_division is None:

        async def answer_whole(node: ServerApi, request: Any, context: RequestContext) -> Any:
            context.read(node)  # the answer is written later, on another thread
            try:
                response = handle(node, request, context)
                return await response if isinstance(response, Awaitable) else response
            finally:
                node.executor.compute(partial(forget_lists, request))

        return answer_whole

    async def answer(node: ServerApi, request: Any, context: RequestContext) -> Any:
        division = known_division.of(request)
        answers: list[Any] = []
        pieces = await node.executor.compute(partial(division.taken_from, request))
        try:
            while pieces:
                piece = pieces.pop()
                one = handle(node, piece, context)
                if isinstance(one, Awaitable):
                    one = start_kept(one) if division.waits_for_all else await one
                answers.append(one)
                if division.may_be_heavy(piece) and not division.waits_for_all:
                    node.executor.compute(partial(forget_lists, piece))
                del piece
                await asyncio.sleep(0)
            if division.waits_for_all:
                async for number in in_turns(range(len(answers))):
                    if isinstance(answers[number], Awaitable):
                        answers[number] = await answers[number]
            answers = [one for one in answers if one is not None]
            return await node.executor.compute(partial(division.joined, answers)) if answers else None
        finally:
            waiting = [one for one in answers if isinstance(one, asyncio.Future)]
            if waiting:
                start_kept(_cancel(waiting))
            if pieces or answers:  # whoever asked is gone
                node.executor.compute(partial(_clear, pieces, answers))

    return answer


async def _cancel(waiting: list[asyncio.Future[Any]]) -> None:
    """Nobody wants these any more. Each may wait for dozens of others, which are cancelled with it."""
    async for one in in_turns(waiting, turn_size=CANCELLED_AT_ONCE_MAX):
        one.cancel()


def _clear(*lists: list[Any]) -> None:
    for one in lists:
        one.clear()


def let_go(known: Api, answer: Any) -> None:
    """Free what a long answer lists, once it is written: to be done on another thread."""
    division = APIS[known.key].division
    if division is None:
        forget_lists(answer)
        return
    for one in (division, division.earlier):
        if one is not None and hasattr(answer, one.answered):
            one.let_go(answer)


def forget_lists(message: Any) -> None:
    """Have a message list nothing any more. The lists may be somebody else's by now, so they stay as they are."""
    for spec in layout_of(type(message)).fields:
        if spec.type.kind == "array":
            setattr(message, spec.name, [])
