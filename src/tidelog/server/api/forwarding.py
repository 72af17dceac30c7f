"""What only the active controller can decide, asked of a broker: the broker asks it in the client's place (KIP-590).

The controller is told whose request it is, so that it decides by what the client may do: see `envelopes.py`. One of an
earlier release is asked by the broker as such.

A client goes to any broker, and learns nothing of which node leads the quorum, or that another one does meanwhile. It
is answered once this broker's own metadata shows what was done: whoever made a topic sees it here (KIP-1243).

Kafka: `ForwardingManager`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import TopicId
from tidelog.controller import CreateTopicResult, TopicToCreate
from tidelog.server.membership.controller_channel import says_not_controller
from tidelog.wire.api import Api
from tidelog.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.server.api.ports import DataApi, ServerApi
    from tidelog.server.api.request_context import Handler, RequestContext
    from tidelog.wire.messages.api_19_create_topics import CreatableTopic

logger = logging.getLogger("tidelog.server.forwarding")

TIMEOUT_MS = 30_000
"""For requests that do not say how long they may take."""
TIMEOUT_MS_MIN = 1_000
AUTO_CREATED_AT_ONCE_MAX = 16
AUTO_CREATED_TOGETHER_MAX = 4
"""Portions that are asked for at a time: each is a decision of its own, and they are synced and opened together."""
LEADERLESS_MS_MAX = 5_000
"""An election takes less, where it can succeed. Who asks later than that is told at once how many voters answer."""

Refuse = Callable[[Any, Any, KafkaError], Any]
"""(request, context, why) to the answer in which every part of the request is refused."""


def forwarding(known: Api, handle: Handler, refused: Refuse | None) -> Handler:
    """Serve an API here while the active controller is here, and have it served there while it is elsewhere.

    Args:
        refused: the answer where no controller can be asked; None for APIs whose answers have one error for all.
    """

    async def serve(node: ServerApi, request: Any, context: RequestContext) -> Any:
        if node.active_controller is not None:
            answer = handle(node, request, context)
            if isinstance(answer, Awaitable):
                answer = await answer
            if not says_not_controller(answer):
                return answer
        try:
            return await send_to_controller(node, request, known.response, context, version=context.api_version)
        except KafkaError as error:
            logger.debug("%s: %s: %s", known.name, error.code.name, error)
            if refused is not None:
                return refused(request, context, error)
            return known.response(error_code=error.code, error_message=str(error))

    return serve


async def send_to_controller(
    node: ServerApi,
    request: Any,
    response: type[Any],
    context: RequestContext | None = None,
    *,
    version: int | None = None,
) -> Any:
    """Ask the active controller, and return its answer once this broker has applied all that it reflects.

    Args:
        context: of what a client asked, so that this has to be asked; None for what the broker wants for itself.
        version: of the request; by default the highest that both sides have.

    Raises:
        KafkaError: REQUEST_TIMED_OUT: within the request's time there was no answer, or this broker did not come so
            far; whether it was done is not known. So it is where nobody has led the quorum for `LEADERLESS_MS_MAX`: the
            text says who of it answers. UNSUPPORTED_VERSION: the controller does not serve this version.
            UNKNOWN_SERVER_ERROR: it does not let this broker ask for its clients.
    """
    if node.failure.done():
        raise refusal(Code.NOT_CONTROLLER, node.failure.result())
    timeout_ms = max(getattr(request, "timeout_ms", TIMEOUT_MS), TIMEOUT_MS_MIN)
    deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
    request_class = type(request).__name__  # what takes long, as a voter that has to catch up, holds up only its like
    envelope = None
    if context is not None:
        from tidelog.server.api.envelopes import Envelope

        envelope = Envelope(request, response, context.header, context.requester, node.executor)
    answer = await node.channel.request(
        request,
        response,
        timeout_ms=timeout_ms,
        version=version,
        request_class=request_class,
        leaderless_ms_max=LEADERLESS_MS_MAX,
        envelope=envelope,
    )
    try:
        async with asyncio.timeout_at(deadline):
            await node.caught_up()
            await node.groups.events_synced()
    except TimeoutError:
        raise refusal(
            Code.REQUEST_TIMED_OUT, f"done at the controller, but not seen by this broker within {timeout_ms} ms"
        ) from None
    return answer


async def create_topics(
    node: ServerApi, topics: Sequence[TopicToCreate], context: RequestContext | None = None
) -> tuple[CreateTopicResult, ...]:
    """Have topics created, wherever the controller is; what was created is known at this broker when this returns.

    Args:
        context: of the request for which they are created; None for topics of the broker's own.

    Raises:
        KafkaError: as `send_to_controller`, or what keeps a controller that is here from it.
    """
    if node.active_controller is not None:
        try:
            return await node.create_topics_here(topics)
        except KafkaError as error:
            if error.code != Code.NOT_CONTROLLER:
                raise
    from tidelog.wire.messages.api_19_create_topics import CreateTopicsRequest, CreateTopicsResponse

    request = CreateTopicsRequest(topics=[_creatable(topic) for topic in topics], timeout_ms=TIMEOUT_MS)
    answer = cast(CreateTopicsResponse, await send_to_controller(node, request, CreateTopicsResponse, context))
    return tuple(
        CreateTopicResult(
            one.name,
            Code(one.error_code),
            one.error_message,
            None if one.topic_id == ZERO_UUID else TopicId(one.topic_id),
            None if one.num_partitions < 0 else one.num_partitions,
            None if one.replication_factor < 0 else one.replication_factor,
        )
        for one in answer.topics
    )


async def create_topics_with_defaults(
    node: DataApi, names: Sequence[str], context: RequestContext | None = None
) -> None:
    """As a metadata request asks for. Whatever is refused shows in the image: the topic is not there.

    In portions that the quorum can follow, a few at a time; the first ones among which one fails are the last.
    """
    results: list[CreateTopicResult] = []
    portions = [
        [TopicToCreate(name) for name in names[start : start + AUTO_CREATED_AT_ONCE_MAX]]
        for start in range(0, len(names), AUTO_CREATED_AT_ONCE_MAX)
    ]
    for start in range(0, len(portions), AUTO_CREATED_TOGETHER_MAX):
        together = portions[start : start + AUTO_CREATED_TOGETHER_MAX]
        for created in await asyncio.gather(*(node.create_topics(one, context) for one in together)):
            results += created
    refused = [one for one in results if one.code not in (Code.NONE, Code.TOPIC_ALREADY_EXISTS)]
    if refused:
        first = refused[0]
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        logger.warning("topic %s%s was not created: %s: %s", first.name, more, first.code.name, first.message)


def _creatable(topic: TopicToCreate) -> CreatableTopic:
    from tidelog.wire.messages.api_19_create_topics import (
        CreatableReplicaAssignment,
        CreatableTopic,
        CreatableTopicConfig,
    )

    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if topic.num_partitions is None else topic.num_partitions,
        replication_factor=-1 if topic.replication_factor is None else topic.replication_factor,
        assignments=[CreatableReplicaAssignment(index, list(brokers)) for index, brokers in topic.assignments],
        configs=[CreatableTopicConfig(name, value) for name, value in topic.configs],
    )
