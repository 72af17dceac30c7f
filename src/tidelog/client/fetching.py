"""The loop's side of a consumer: asks the brokers what the subscription says, and brings it the answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tidelog.base.errors import ClientClosedError, InvariantBrokenError, NetworkError, TidelogError, TimedOutError
from tidelog.base.ids import BrokerId
from tidelog.base.ports import Clock
from tidelog.client.broker_choice import PATIENCE_MS_MIN, SILENT_SECONDS
from tidelog.client.cluster import Cluster, is_retriable
from tidelog.client.core.deliveries import Deliveries
from tidelog.client.core.fetch_messages import (
    LAST_FETCH_VERSION_WITH_NAMES,
    FetchSettings,
    RequestsByPartition,
    epoch_end_request,
    fetch_request,
    look_up_request,
    on_epoch_end_response,
    on_fetch_response,
    on_look_up_response,
    on_no_answer,
)
from tidelog.client.core.metadata_cache import MetadataChanges
from tidelog.client.core.subscription import Subscription
from tidelog.client.core.values import IsolationLevel
from tidelog.client.options import ConsumerConfig
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_01_fetch import FetchResponse
from tidelog.wire.messages.api_02_list_offsets import ListOffsetsResponse
from tidelog.wire.messages.api_23_offset_for_leader_epoch import OffsetForLeaderEpochResponse

logger = logging.getLogger("tidelog.client")


@dataclass(slots=True)
class _Question:
    """A request that is under way.

    Attributes:
        requested: for whom; for nobody once the broker was given up.
        expected: when its answer is due at the latest, by the loop's time, if the broker is well.
    """

    broker_id: BrokerId
    requested: RequestsByPartition
    expected: float


_REQUEST_CLASSES = ("fetch-1", "fetch-2", "fetch-3", "fetch-4")
"""Connections for fetches to one broker: while one waits at the end of some partitions, others can be read."""


class Fetching:
    """See the module. Belongs to the event loop that it runs on.

    Args:
        config: the consumer's.
        subscription: what is assigned, where it stands, and what is held to be delivered.
        deliveries: where the caller stands, who may not have taken all that was delivered.
        cluster: closed together with this.
        clock: the world's.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: Subscription,
        deliveries: Deliveries[Any, Any],
        cluster: Cluster,
        clock: Clock,
    ) -> None:
        self._config = config
        self._subscription = subscription
        self._deliveries = deliveries
        self._cluster = cluster
        self._clock = clock
        self._isolation_level = IsolationLevel(config.isolation_level)
        self._settings = FetchSettings(
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            max_wait_ms=config.fetch_max_wait_ms,
            isolation_level=self._isolation_level,
            check_crcs=config.check_crcs,
            rack=config.client_rack,
            preferred_ms=config.metadata_max_age_ms,
        )
        self._busy_classes: set[tuple[BrokerId, str]] = set()
        self._tasks: dict[asyncio.Task[None], _Question] = {}
        self._silence_timer: asyncio.TimerHandle | None = None
        self._update = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._is_pumping = False
        self._has_update = False
        self.is_closed = False
        cluster.on_changes(self._on_metadata)

    def check_open(self) -> None:
        """Raise if the consumer is closed."""
        if self.is_closed:
            raise ClientClosedError("the consumer is closed")

    # To wait.
    async def wait_for_some(self, deadline_ms: int, is_interrupted: Callable[[], bool]) -> bool:
        """Whether there is something to deliver. Raises what stopped a partition.

        Args:
            deadline_ms: how long to wait for it.
            is_interrupted: whether whoever waits is to do something else first.
        """
        while True:
            self.check_open()
            if is_interrupted():
                return False
            error = self._subscription.error()
            if error is not None:
                if self.settle():
                    continue
                raise error.with_traceback(None)
            if self._subscription.has_some:
                return True
            left_ms = deadline_ms - self._clock.now_ms()
            if left_ms <= 0:
                await asyncio.sleep(0)  # whoever polls without waiting still lets fetches happen
                return self._subscription.has_some
            last = self._cluster.last_error
            if last is not None and not isinstance(last, NetworkError | TimedOutError) and not is_retriable(last):
                raise last.with_traceback(None)
            await self.wait_for_update(left_ms / 1000)

    async def wait_for_update(self, seconds_max: float | None = None) -> None:
        """Return when something happened that somebody may be waiting for, or when the time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                await self._update.wait()

    async def close(self) -> None:
        """Ask no more, and disconnect; whoever waits is told. A second call does nothing."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._silence_timer is not None:
            self._silence_timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._cluster.close()
        self.wake()

    # What there is to do.
    def pump_soon(self, *, is_update: bool = True) -> None:
        """Pump in the next turn. What is no news is that somebody took what was here: it need wake nobody."""
        self._has_update |= is_update
        if not self._is_pumping and not self.is_closed:
            self._is_pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Send the requests that are due, and report what happened."""
        self._is_pumping = False
        if self.is_closed:
            return
        now_ms = self._clock.now_ms()
        plan = self._subscription.plan(now_ms)
        for broker_id, requested in plan.look_ups.items():
            self._start(broker_id, requested, partial(self._look_up, broker_id, requested))
        for broker_id, requested in plan.validations.items():
            self._start(broker_id, requested, partial(self._validate, broker_id, requested))
        for broker_id, wanted in plan.fetches.items():
            request_class = next((one for one in _REQUEST_CLASSES if (broker_id, one) not in self._busy_classes), None)
            if request_class is not None:
                self._busy_classes.add((broker_id, request_class))
                requested = self._subscription.start_fetches(wanted)
                self._start(broker_id, requested, partial(self._fetch, broker_id, request_class, requested))
        if plan.needs_metadata:
            self._cluster.refresh_soon()
        self._report_resets()
        if self._has_update or self._subscription.error() is not None:
            self._has_update = False
            self.wake()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self._subscription.next_deadline_ms(now_ms)
        if deadline_ms is not None:
            delay_s = (deadline_ms - now_ms) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self.pump_soon)

    def _report_resets(self) -> None:
        resets = [
            replace(reset, position=self._deliveries.place_in(reset.topic_partition) or reset.position)
            for reset in self._subscription.take_resets()
        ]
        if resets:
            self.settle()  # nothing of what is lost is handed out any more
        for reset in resets:
            logger.warning(
                "%s: %s: %s; it stood at %s, and goes on at %s",
                self._config.client_id,
                reset.topic_partition,
                reset.reason.value,
                reset.position.offset,
                reset.new_offset if reset.new_offset is not None else "what the policy finds",
            )
            if self._config.on_reset is not None:
                try:
                    self._config.on_reset(reset)
                except Exception:
                    logger.exception("on_reset failed")

    def settle(self) -> bool:
        """Have what the caller was given and has not taken delivered again. Returns whether there was anything."""
        if not self._deliveries.give_back():
            return False
        self.pump_soon()
        return True

    def interrupt(self) -> None:
        """Have a loop over records end its turn behind the one that it works on, and whoever waits look again."""
        if self._deliveries.is_loop:
            self.settle()
        self.wake()

    def wake(self) -> None:
        """Have whoever waits look again."""
        self._update.set()  # of those who wait now
        self._update.clear()

    def _on_metadata(self, changes: MetadataChanges) -> None:
        self._subscription.on_metadata(self._cluster.metadata, self._clock.now_ms())
        self.pump_soon()

    # To ask.
    def _start(
        self, broker_id: BrokerId, requested: RequestsByPartition, send_request: Callable[[], Awaitable[set[str]]]
    ) -> None:
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._run_request(requested, send_request))
        expected = loop.time() + (self._config.fetch_max_wait_ms + PATIENCE_MS_MIN) / 1000
        self._tasks[task] = _Question(broker_id, requested, expected)
        task.add_done_callback(self._on_task_done)
        self._watch_silence()

    def _watch_silence(self) -> None:
        if self._silence_timer is None and self._tasks and not self.is_closed:
            self._silence_timer = asyncio.get_running_loop().call_later(SILENT_SECONDS, self._on_silence)

    def _on_silence(self) -> None:
        """A broker that has not answered for a while may lead no more: ask who does.

        A new leader epoch has its readers turn to it, whatever is under way. A replica nearby that is silent has no
        epoch: once the cluster does not show it any more, the leader is asked. A late answer is dropped in both cases:
        of a replica that was away it may be that it lacks the offset, which counts from the leader alone.
        """
        self._silence_timer = None
        now, known = asyncio.get_running_loop().time(), self._cluster.metadata.brokers
        silent = [one for one in self._tasks.values() if one.expected <= now]
        for one in silent:
            if one.broker_id not in known and one.requested:
                on_no_answer(one.requested.values(), self._clock.now_ms())
                one.requested.clear()  # those who were to be answered: whatever comes now is for nobody
                self.pump_soon()
        if silent:
            self._cluster.refresh_soon()
        self._watch_silence()

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and task.exception() is not None:
            logger.error("%s: a request failed unexpectedly", self._config.client_id, exc_info=task.exception())
        self.pump_soon()

    async def _run_request(
        self, requested: RequestsByPartition, send_request: Callable[[], Awaitable[set[str]]]
    ) -> None:
        """Send a request, and see to it that no partition waits for an answer that will not come."""
        try:
            stale_topics = await send_request()
        except TidelogError as error:
            logger.debug("%s: %s", self._config.client_id, error)
            if isinstance(error, NetworkError) or is_retriable(error):
                on_no_answer(requested.values(), self._clock.now_ms())
                self._cluster.last_error = error
                self._cluster.refresh_soon()
            else:
                self._stop(requested, error)
        except Exception as error:
            logger.exception("%s: a bug in Tidelog: an answer was not understood", self._config.client_id)
            self._stop(requested, InvariantBrokenError(f"a bug in Tidelog's consumer: {type(error).__name__}: {error}"))
        else:
            if stale_topics:
                self._cluster.refresh_soon()

    @staticmethod
    def _stop(requested: RequestsByPartition, error: TidelogError) -> None:
        """Whoever reads these partitions is told, instead of waiting for ever."""
        for question in requested.values():
            question.reader.stop(question.generation, error)

    async def _fetch(self, broker_id: BrokerId, request_class: str, requested: RequestsByPartition) -> set[str]:
        try:
            connection = await self._cluster.reached(broker_id, request_class)
            request, has_ids = fetch_request(requested, self._settings, self._config.fetch_max_wait_ms)
            highest = None if has_ids else LAST_FETCH_VERSION_WITH_NAMES
            response = await connection.request(
                request,
                FetchResponse,
                timeout_ms=self._config.request_timeout_ms + self._config.fetch_max_wait_ms,
                version=connection.versions.version(ApiKey.FETCH, max_version=highest),
            )
            return on_fetch_response(requested, response, self._settings, self._clock.now_ms())
        finally:
            self._busy_classes.discard((broker_id, request_class))

    async def _look_up(self, broker_id: BrokerId, requested: RequestsByPartition) -> set[str]:
        connection = await self._cluster.reached(broker_id)
        response = await connection.request(
            look_up_request(requested, self._isolation_level),
            ListOffsetsResponse,
            timeout_ms=self._config.request_timeout_ms,
        )
        return on_look_up_response(requested, response, self._clock.now_ms())

    async def _validate(self, broker_id: BrokerId, requested: RequestsByPartition) -> set[str]:
        connection = await self._cluster.reached(broker_id)
        response = await connection.request(
            epoch_end_request(requested), OffsetForLeaderEpochResponse, timeout_ms=self._config.request_timeout_ms
        )
        return on_epoch_end_response(requested, response, self._clock.now_ms())
