"""Consistency tokens (KIP-1243): no client is answered from metadata that is older than what it has seen.

A token is the inclusive last offset of the metadata log that an answer reflects. A request that bears a later one than
this broker has published waits for it, if `apis.py` says that it must, or if an authorizer has to allow it, holding up
its own connection and no other. The wait ends with the metadata, with `metadata.consistency.wait.ms.max`, with the
client, or with this node; and who did not get there says STALE_METADATA, or hangs up where the answer has no place for
that. It never answers from the past.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import Offset
from tidelog.base.ports import Executor
from tidelog.server.api.apis import APIS, DENIALS, OPEN_TO_ALL, READS, is_served
from tidelog.server.api.long_requests import kept_bytes
from tidelog.server.api.rights import has_rules
from tidelog.server.transport.listener_roles import BROKER
from tidelog.server.transport.turns import in_turns
from tidelog.wire import ConsistencyState, decode
from tidelog.wire.api import Api

if TYPE_CHECKING:
    from tidelog.server.api.ports import ServerApi
    from tidelog.server.api.request_context import Handler, RequestContext


LOOKED_AT_ONCE_MAX = 2_048
"""Of what a request is about: a millisecond or two."""


def read_elsewhere(executor: Executor, known: Api, frame: memoryview, version: int, position: int) -> Awaitable[Any]:
    """A request that is kept, read on another thread. Raises MalformedMessageError: the bytes are none."""
    return executor.compute(partial(decode, known.request, frame, version, position, ignores_trailing_bytes=True))


def refused_elsewhere(known: Api, frame: memoryview, version: int, position: int, why: KafkaError) -> Any:
    """The answer that says why a read is refused, perhaps for all that it lists; None where it has no place for that.

    To be called on another thread, where the request is freed as well.
    """
    request = decode(known.request, frame, version, position, ignores_trailing_bytes=True)
    return READS[known.key](known, request, version, why.code, str(why))


class TokenGate:
    """What the tokens of one node's requests ask for.

    Args:
        node: its published image is what answers are made of.
        listener_role: what controllers serve otherwise than brokers do is answered from something else than the image.

    Attributes:
        reached: one that is, and stays so: the image never goes back. The same ones come again and again.
    """

    def __init__(self, node: ServerApi, listener_role: str = BROKER) -> None:
        self._node = node
        self._denials = {
            key: are_denied
            for key, are_denied in DENIALS.items()
            if APIS[key].module_at(listener_role) == APIS[key].module
        }
        self._authorized = (
            frozenset(
                key
                for key, served in APIS.items()
                if is_served(served.roles, BROKER) and served.module_at(listener_role) == served.module
            )
            - OPEN_TO_ALL
        )
        self.reached: ConsistencyState | None = None

    def is_reached(self, state: ConsistencyState) -> bool:
        """Whether whatever is answered now reflects all that the client has seen."""
        node = self._node
        if state.cluster_id not in (None, node.cluster_id):
            return False
        last_offset = node.image.last_offset
        if state.token is not None and (last_offset is None or state.token > last_offset):
            return False
        self.reached = state
        return True

    def must_wait(self, known: Api, request: Any, state: ConsistencyState) -> bool | None:
        """Whether a request whose token is not reached may not be answered now; None if it takes long to say."""
        for number, is_denied in enumerate(self._are_denied(known, request, state)):
            if is_denied:
                return True
            if number == LOOKED_AT_ONCE_MAX:
                return None
        return False

    async def must_wait_in_turns(self, known: Api, request: Any, state: ConsistencyState) -> bool:
        """As `must_wait`, however long it takes."""
        looks = self._are_denied(known, request, state)
        async for is_denied in in_turns(looks, turn_size=LOOKED_AT_ONCE_MAX):
            if is_denied:
                return True
        return False

    def _are_denied(self, known: Api, request: Any, state: ConsistencyState) -> Iterable[bool]:
        if known.key in READS or state.cluster_id not in (None, self._node.cluster_id):
            return (True,)
        if known.key in self._authorized and has_rules(self._node):
            return (True,)  # what allows it may be a rule that is not here yet
        are_denied = self._denials.get(known.key)
        return () if are_denied is None else are_denied(self._node, request)

    def hold(
        self,
        known: Api,
        handle: Handler,
        context: RequestContext,
        sent: tuple[memoryview, int],
    ) -> Awaitable[Any]:
        """The answer of `handle`, once it can be given; raises KafkaError where that has no place for a refusal.

        What is kept meanwhile are the bytes that were sent: what is read from them may be many times as large. Anybody
        may send a token that never comes; what finds no room (`queued.max.request.bytes`) is refused at once.

        Args:
            sent: the frame, which is not there for long unless the request `is_long`, and where in it that begins.
        """
        frame, position = sent
        kept = frame if context.is_long else memoryview(bytearray(frame))
        return self._answer(known, handle, context, (kept, position))

    async def _answer(self, known: Api, handle: Handler, context: RequestContext, sent: tuple[memoryview, int]) -> Any:
        frame, position = sent
        del sent
        state, memory = context.header.consistency_state, context.connection.memory
        assert state is not None
        why: KafkaError | None = None
        with memory.kept() as kept:
            if not kept.hold(len(frame)):
                why = self._stale(state, "as many requests wait as there is memory for (queued.max.request.bytes)")
            else:
                try:
                    await self._wait_for(state)
                except KafkaError as error:
                    why = error
            await kept.hold_in_line(kept_bytes(len(frame)) if context.is_long else 0)
            context.kept = kept
            executor, version = self._node.executor, context.api_version
            if why is not None:
                refused = partial(refused_elsewhere, known, frame, version, position, why)
                answer = await executor.compute(refused) if known.key in READS else None
                if answer is None:  # it has no place to say why: the connection is to be closed
                    raise why
                return answer
            request = await read_elsewhere(executor, known, frame, version, position)
            response = handle(self._node, request, context)
            del request, frame
            return await response if isinstance(response, Awaitable) else response

    async def _wait_for(self, state: ConsistencyState) -> None:
        """Raises KafkaError: STALE_METADATA: it did not come in time. INCONSISTENT_CLUSTER_ID: it never will."""
        node = self._node
        if state.cluster_id not in (None, node.cluster_id):
            raise refusal(
                Code.INCONSISTENT_CLUSTER_ID,
                f"the consistency token is of cluster {state.cluster_id}; this one is {node.cluster_id}",
            )
        assert state.token is not None
        wait_ms_max = node.config.metadata_consistency_wait_ms_max
        try:
            async with asyncio.timeout(wait_ms_max / 1000):
                await node.broker.applied(Offset(state.token + 1))
        except TimeoutError:
            raise self._stale(state, f"after {wait_ms_max} ms (metadata.consistency.wait.ms.max)") from None
        except KafkaError as error:
            raise self._stale(state, str(error)) from None

    def _stale(self, state: ConsistencyState, when: str) -> KafkaError:
        return refusal(
            Code.STALE_METADATA,
            f"the client has seen the metadata of offset {state.token}, and broker {self._node.config.node_id} "
            f"only that of offset {self._node.image.last_offset}: {when}",
        )
