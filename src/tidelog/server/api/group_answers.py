"""What handlers of groups do with an answer that is there, or is yet to come, or is a refusal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.metadata import MetadataImage
from tidelog.metadata.features import GROUP_VERSION, GROUP_VERSION_MAX

R = TypeVar("R")


def when_answered(answer: object, respond: Callable[[Any], R]) -> R | Awaitable[R]:
    """The response to an answer: at once if that is there, with neither task nor future made; else later."""
    if isinstance(answer, asyncio.Future):
        return _respond_later(answer, respond)
    return respond(answer)


def when_all_answered(answers: Sequence[object], respond: Callable[[list[Any]], R | Awaitable[R]]) -> R | Awaitable[R]:
    """As `when_answered`, of several, in their order; the response to many may itself be written later."""
    if any(isinstance(answer, asyncio.Future) for answer in answers):
        return _respond_to_all_later(answers, respond)
    return respond(list(answers))


async def _respond_later(answer: asyncio.Future[object], respond: Callable[[Any], R]) -> R:
    return respond(await answer)


async def _respond_to_all_later(answers: Sequence[object], respond: Callable[[list[Any]], R | Awaitable[R]]) -> R:
    waiting = [answer for answer in answers if isinstance(answer, asyncio.Future)]
    await asyncio.gather(*waiting)  # cancelled together, should nobody want them any more
    response = respond([answer.result() if isinstance(answer, asyncio.Future) else answer for answer in answers])
    return await response if isinstance(response, Awaitable) else response


def consumer_groups_refused(image: MetadataImage) -> KafkaError | None:
    """Why the requests of consumer groups (KIP-848) are not served; None while they are."""
    if image.features.get(GROUP_VERSION, 0) >= GROUP_VERSION_MAX:
        return None
    return refusal(
        Code.UNSUPPORTED_VERSION,
        f"consumer groups are served from {GROUP_VERSION} {GROUP_VERSION_MAX} on: upgrade the feature, or set "
        "group.protocol=classic",
    )
