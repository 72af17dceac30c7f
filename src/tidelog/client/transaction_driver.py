"""The loop's side of a producer's transactions: asks the coordinators what is due, and brings the machine the answers.

One request is under way at a time, and goes on whatever became of the call that caused it: a caller that runs out of
time, or is cancelled, may call again, and waits for the same answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from threading import Lock
from typing import Any

from tidelog.base.errors import (
    ClientClosedError,
    Code,
    KafkaError,
    TidelogError,
    TimedOutError,
    UnsupportedVersionError,
)
from tidelog.client.cluster import Cluster, is_retriable
from tidelog.client.coordinators import Coordinators
from tidelog.client.core.transaction import (
    CONCURRENT_BACKOFF_MS,
    AddOffsetsDue,
    CommitOffsetsDue,
    Due,
    ProducerTransactions,
)
from tidelog.client.core.transaction_messages import TRANSACTION_VERSION, Question, question, verdict
from tidelog.client.options import ProducerConfig
from tidelog.net.connection import Connection
from tidelog.wire.messages.api_10_find_coordinator import (
    KEY_TYPE_GROUP,
    KEY_TYPE_TRANSACTION,
)
from tidelog.wire.schema import layout_of

logger = logging.getLogger("tidelog.client")

_FIRST_WITH_SEVERAL_KEYS = 4  # of FindCoordinator (KIP-699)
_STILL_THE_COORDINATOR = frozenset({Code.CONCURRENT_TRANSACTIONS, Code.COORDINATOR_LOAD_IN_PROGRESS})


class TransactionDriver:
    """See the module. Belongs to the event loop that it runs on.

    Args:
        config: the producer's.
        machine: of its transactions, touched under `lock` alone.
        cluster: where the coordinators are; closed by its owner, after this.
        lock: guards the machine.
        on_answer: called after every answer, without the lock.

    Attributes:
        last_error: for which a request is being repeated; None if none is.
    """

    def __init__(
        self,
        config: ProducerConfig,
        machine: ProducerTransactions,
        cluster: Cluster,
        lock: Lock,
        on_answer: Callable[[], None],
    ) -> None:
        self.machine = machine
        self.last_error: TidelogError | None = None
        self._config = config
        self._cluster = cluster
        self._lock = lock
        self._on_answer = on_answer
        self._coordinators = {
            key_type: Coordinators(cluster, key_type, noun=noun)
            for key_type, noun in ((KEY_TYPE_GROUP, "group"), (KEY_TYPE_TRANSACTION, "transactional id"))
        }
        self._changed = asyncio.Event()
        self._awake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def wake(self) -> None:
        """Something may be due."""
        self._awake.set()
        if (self._task is None or self._task.done()) and not self._is_closed:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._on_end)

    async def until(self, is_done: Callable[[], bool], what: str, otherwise: Callable[[], str] = str) -> None:
        """Return when the machine says so.

        Args:
            is_done: asked after every answer, under the lock; may raise.
            what: named in errors.
            otherwise: what the caller is told if the time runs out.

        Raises:
            TimedOutError: not within `default_api_timeout_ms`. What is under way goes on.
        """
        limit_ms = self._config.default_api_timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                while True:
                    with self._lock:
                        if is_done():
                            return
                    await self._changed.wait()
        except TimeoutError as error:
            if isinstance(error, TidelogError):
                raise
            last = self.last_error or self._cluster.last_error or "no answer came"
            raise TimedOutError(
                f"transactional id {self.machine.transactional_id!r}: {what}: not done within {limit_ms} ms"
                f" (default_api_timeout_ms); last: {last}{otherwise()}"
            ) from None

    def tell(self) -> None:
        """The machine has changed: those who wait look again."""
        self._changed.set()
        self._changed.clear()

    async def close(self) -> None:
        """Ask nothing more: whoever waits is told so."""
        self._is_closed = True
        with self._lock:
            self.machine.fail(ClientClosedError("the producer is closed"))
        self.tell()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # How.
    async def _run(self) -> None:
        failures = 0
        while True:
            self._awake.clear()
            with self._lock:
                due = self.machine.take_request()
            if due is None:
                self.tell()
                if not self._awake.is_set():
                    return
                continue
            code = await self._ask(due)
            self._on_answer()
            self.tell()
            if code is None:
                failures = 0
                self.last_error = None
                continue
            failures += 1
            delay_ms = self._cluster.backoff.delay_ms(failures)
            if code is Code.CONCURRENT_TRANSACTIONS:
                delay_ms = min(delay_ms, CONCURRENT_BACKOFF_MS)
            await asyncio.sleep(delay_ms / 1000)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        if self._task is task:
            self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s: a bug in Tidelog: transactions failed", self._config.client_id, exc_info=error)
            with self._lock:
                self.machine.fail(TidelogError(f"a bug in Tidelog's producer: {type(error).__name__}: {error}"))
            self._on_answer()
            self.tell()

    async def _ask(self, due: Due) -> Code | None:
        """Ask once. Returns why the same is to be asked again, or None if it is not."""
        key_type, key = KEY_TYPE_TRANSACTION, self.machine.transactional_id
        if isinstance(due, CommitOffsetsDue):
            key_type, key = KEY_TYPE_GROUP, due.group.group_id
        coordinators = self._coordinators[key_type]
        is_sent = False

        def ask(connection: Connection) -> asyncio.Future[Any]:
            nonlocal is_sent
            with self._lock:
                if key_type == KEY_TYPE_TRANSACTION:
                    self.machine.on_feature_level(connection.versions.features.get(TRANSACTION_VERSION, 0))
                asked = question(self.machine, due, self._config.transaction_timeout_ms)
            future = self._send(connection, asked)
            is_sent = True
            return future

        try:
            if isinstance(due, AddOffsetsDue):  # some brokers can add a group only once one was looked for
                await self._coordinators[KEY_TYPE_GROUP].connection(due.group_id)
            found = verdict(await coordinators.answer(key, ask))
        except TidelogError as error:
            coordinators.forget(key)
            return self._on_error(due, error, is_sent=is_sent)
        with self._lock:
            if found.code is Code.NONE:
                self.machine.on_done(due, found.producer)
                return None
            is_repeated = self.machine.on_refused(due, found.code)
        if found.code not in _STILL_THE_COORDINATOR:
            coordinators.forget(key)
        self.last_error = KafkaError(f"{found.code.meaning} ({found.code.name})", code=found.code)
        return found.code if is_repeated else None

    def _send(self, connection: Connection, asked: Question) -> asyncio.Future[Any]:
        version = connection.versions.version(
            layout_of(type(asked.request)).api_key, min_version=asked.min_version, max_version=asked.max_version
        )
        timeout_ms = self._config.request_timeout_ms
        return connection.send(asked.request, asked.response, timeout_ms=timeout_ms, version=version)

    def _on_error(self, due: Due, error: TidelogError, *, is_sent: bool) -> Code | None:
        self.last_error = error
        with self._lock:
            if not is_retriable(error):
                if isinstance(error, UnsupportedVersionError):
                    self.machine.on_unsupported(due, error)
                elif isinstance(error, KafkaError):
                    self.machine.on_refused(due, error.code, str(error))  # as one who may not use the group
                else:
                    self.machine.fail(error)
                return None
            if is_sent:
                self.machine.on_lost(due)
            else:
                self.machine.on_refused(due, Code.NOT_COORDINATOR)
        self._cluster.refresh_soon()
        return Code.NETWORK_EXCEPTION
