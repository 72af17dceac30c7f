"""Consistency tokens (KIP-1243): no client is answered from metadata that is older than what it has seen.

A token is the inclusive last offset of the metadata log that an answer reflects. A request that bears a later one than
this broker has published waits for it, if `gated_apis.py` says that it must, holding up its own connection and no
other. The wait ends with the metadata, with `metadata.consistency.wait.ms.max`, with the client, or with this node; and
who did not get there says STALE_METADATA, or hangs up where the answer has no place for that. It never answers from
the past.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Container
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import Offset
from tidelog.base.ports import Executor
from tidelog.server.gated_apis import DENIALS, READS
from tidelog.wire import ConsistencyState, decode
from tidelog.wire.api import Api

if TYPE_CHECKING:
    from tidelog.server.dispatch import Handler, RequestContext
    from tidelog.server.node import Node


def read_elsewhere(executor: Executor, known: Api, frame: memoryview, version: int, position: int) -> Awaitable[Any]:
    """A request that is kept, read on another thread. Raises MalformedMessageError: the bytes are none."""
    return executor.run(partial(decode, known.request, frame, version, position, ignores_trailing_bytes=True))


class TokenGate:
    """What the tokens of one node's requests ask for.

    Args:
        node: its published image is what answers are made of.
        otherwise: APIs that this listener serves otherwise than brokers do, and from something else than the image.

    Attributes:
        reached: one that is, and stays so: the image never goes back. The same ones come again and again.
    """

    def __init__(self, node: Node, otherwise: Container[int] = ()) -> None:
        self._node = node
        self._denials = {key: is_denied for key, is_denied in DENIALS.items() if key not in otherwise}
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

    def must_wait(self, known: Api, request: Any, state: ConsistencyState) -> bool:
        """Whether a request whose token is not reached may not be answered now."""
        if known.key in READS or state.cluster_id not in (None, self._node.cluster_id):
            return True
        is_denied = self._denials.get(known.key)
        return is_denied is not None and is_denied(self._node, request)

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
            sent: the frame, which is not there for long, and where in it the request begins.
        """
        frame, position = sent
        return self._answer(known, handle, context, (memoryview(bytearray(frame)), position))

    async def _answer(self, known: Api, handle: Handler, context: RequestContext, kept: tuple[memoryview, int]) -> Any:
        frame, position = kept
        state, memory = context.header.consistency_state, context.connection.memory
        assert state is not None
        why: KafkaError | None = None
        if not memory.keep(len(frame)):
            why = self._stale(state, "as many requests wait as there is memory for (queued.max.request.bytes)")
        else:
            try:
                await self._wait_for(state)
            except KafkaError as error:
                why = error
            finally:
                memory.keep_no_more(len(frame))
        request = await read_elsewhere(self._node.executor, known, frame, context.api_version, position)
        if why is not None:
            refuse = READS.get(known.key)
            answer = None if refuse is None else refuse(known, request, context.api_version, why.code, str(why))
            if answer is None:  # it has no place to say why: the connection is to be closed
                raise why
            return answer
        response = handle(self._node, request, context)
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
