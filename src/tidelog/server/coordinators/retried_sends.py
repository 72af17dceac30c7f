"""What a coordinator asks of other brokers: each request is tried until it is answered, or refused for good.

Kafka: `TransactionMarkerChannelManager`, without what is about transactions.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from logging import Logger

from tidelog.base.errors import InvariantBrokenError, KafkaError, TidelogError
from tidelog.base.ids import TopicPartition
from tidelog.journal import Send, SendId
from tidelog.net.backoff import Backoff
from tidelog.server.tasks import OnBug, Tasks

STARTED_AT_ONCE_MAX = 32
"""Before others have their turn."""

SendToLeader = Callable[[TopicPartition, object], Awaitable[object]]
"""Asks the leader of a partition, whoever that is by now, and returns its answer.

Raises:
    KafkaError: it refused; tried again if that is retriable.
    TidelogError: it cannot be reached, it answers nonsense, or nobody leads; tried again.
"""


class RetriedSends:
    """The sends of one coordinator that are under way.

    Args:
        on_done: told of the answer, or of the `KafkaError` that refuses for good.
        on_bug: told of what must not be raised; that send is given up.
    """

    def __init__(
        self,
        send_to_leader: SendToLeader,
        backoff: Backoff,
        tasks: Tasks,
        *,
        logger: Logger,
        on_done: Callable[[SendId, object], None],
        on_bug: OnBug,
    ) -> None:
        self._send_to_leader = send_to_leader
        self._backoff = backoff
        self._tasks = tasks
        self._logger = logger
        self._on_done = on_done
        self._on_bug = on_bug
        self._under_way: dict[SendId, asyncio.Task[None]] = {}
        self._due: deque[Send] = deque()
        self._starting: asyncio.Handle | None = None

    def start(self, send: Send) -> None:
        """Start a send soon, which is retried until it is answered or refused for good."""
        self._due.append(send)
        if self._starting is None:
            self._starting = asyncio.get_running_loop().call_soon(self._start_due)

    def _start_due(self) -> None:
        """A decision may be about very many partitions, each of which is a write here, or a row of a request."""
        loop = asyncio.get_running_loop()
        for _ in range(min(len(self._due), STARTED_AT_ONCE_MAX)):
            send = self._due.popleft()
            self._under_way[send.send_id] = self._tasks.start(self._run(send), on_bug=self._on_bug)
        self._starting = loop.call_soon(self._start_due) if self._due else None

    def stop(self) -> None:
        """The leadership ended: the next leader sends what is not done."""
        self._due.clear()
        for task in self._under_way.values():
            task.cancel()
        self._under_way.clear()

    async def _run(self, send: Send) -> None:
        outcome = await self._answer(send)
        del self._under_way[send.send_id]
        self._on_done(send.send_id, outcome)

    async def _answer(self, send: Send) -> object:
        failures = 0
        while True:
            try:
                return await self._send_to_leader(send.destination, send.request)
            except InvariantBrokenError:
                raise
            except TidelogError as error:
                if isinstance(error, KafkaError) and not error.retriable:
                    return error
                self._logger.debug("the leader of %s is asked again: %s", send.destination, error)
            failures += 1
            await asyncio.sleep(self._backoff.delay_ms(failures) / 1000)
