"""A node of a cluster that is started again whenever it ends, as an init system does: nobody waits for it meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from tidelog.base.errors import TidelogError
from tidelog.base.ids import TopicPartition
from tidelog.sim.faults.faulty_node import FaultyNode, NodeRecorder
from tidelog.sim.faults.own_bugs import words_of
from tidelog.sim.node import SimulatedNode

RESTART_SECONDS = 1.0
STOP_SECONDS_MAX = 60.0
"""A node that does not stop within that is killed, as an init system does; here it is told as well."""


class SupervisedNode(FaultyNode):
    """See the module.

    Args:
        may_lose_power: asked before it does.

    Attributes:
        busy: held by whatever ends its process, until that is started again. What comes meanwhile does not happen.
        is_serving: whether its start has come to its end.
        trouble: why it ended, or did not start, the last time that it did so by itself.
    """

    def __init__(
        self,
        node: SimulatedNode,
        recorder: NodeRecorder,
        partitions: Sequence[TopicPartition],
        may_lose_power: Callable[[], bool],
    ) -> None:
        super().__init__(node, recorder, partitions)
        self.busy = asyncio.Lock()
        self.is_serving = False
        self.trouble: str | None = None
        self._may_lose_power = may_lose_power
        self._minding: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to; `is_serving` says when it does."""
        self._stop_minding()
        starting = self.node.start_soon()
        self._minding = asyncio.create_task(self._mind(starting))

    def do_alone(self, work: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None] | None:
        """What ends its process, to be awaited; None if something else is ending it already."""
        if self.busy.locked():
            work.close()
            return None
        return self._alone(work)

    async def _alone(self, work: Coroutine[Any, Any, None]) -> None:
        async with self.busy:
            await work

    async def mend(self) -> None:
        """Start it again if something is out of use until it is; if it has ended, that happens by itself."""
        node = self.node.node
        if node is not None and self.is_serving and not node.failure.done() and node.broker.offline_partitions:
            work = self.do_alone(self.stop_and_start(0))
            if work is not None:
                await work

    def end(self, *, without_power: bool) -> None:
        self._stop_minding()
        super().end(without_power=without_power and self._may_lose_power())

    def end_without_telling(self) -> None:
        """As by a loss of power that was told already."""
        self._stop_minding()
        self.node.lose_power()

    async def stop_and_start(self, off_ms: int) -> None:
        await self.stop()
        await asyncio.sleep(off_ms / 1000)
        await self.start()

    async def stop(self) -> None:
        """Stop cleanly; until it serves, a signal ends it as a crash does."""
        if not self.is_serving or not self.machine.is_alive:
            self.end(without_power=False)
            return
        self._stop_minding()
        self._recorder.before_end(without_power=False)
        stopping = asyncio.create_task(self.node.stop())
        await asyncio.wait([stopping], timeout=STOP_SECONDS_MAX)
        has_stopped = stopping.done()
        self._recorder.expect(has_stopped, "Progress", f"{self.machine.name} did not stop in {STOP_SECONDS_MAX:.0f} s")
        error = stopping.exception() if has_stopped else None
        if error is not None:
            self.trouble = str(error)
            self._recorder.expect(isinstance(error, TidelogError), "OwnInvariant", words_of(error))
        if not has_stopped or error is not None:
            self.end(without_power=False)
        else:
            self._recorder.after_end()

    def _stop_minding(self) -> None:
        self.is_serving = False
        minding, self._minding = self._minding, None
        if minding is not None and minding is not asyncio.current_task():
            minding.cancel()

    async def _mind(self, starting: asyncio.Task[None]) -> None:
        """Until this incarnation comes to its end by itself; then start the next."""
        await asyncio.sleep(0)  # it has begun by then
        node = self.node.node
        waited_for: set[asyncio.Future[Any]] = {starting} if node is None else {starting, node.failure}
        await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
        if starting.done() and starting.exception() is None and node is not None and not node.failure.done():
            self.is_serving = True
            self._recorder.on_serving()
            await asyncio.wait({node.failure})
        if node is not None and node.failure.done():
            self.trouble = node.failure.result()
        else:
            error = starting.exception()
            self.trouble = str(error)
            if error is not None:
                self._recorder.expect(isinstance(error, TidelogError), "OwnInvariant", words_of(error))
        async with self.busy:
            self.end(without_power=False)
            await asyncio.sleep(RESTART_SECONDS)
            await self.start()
