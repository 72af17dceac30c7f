"""A consumer's poll: what it tells its caller before it reads, what it reads, and how that comes to the caller.

A poll is a step, or several. A step reads, or returns a rebalance of which the caller has to be told first. Then a
listener is called, and the next step follows. The listener may use the consumer. It is called where the caller waits:
`telling` calls it in the caller's task, the blocking consumer on the caller's thread.

Kafka: `ClassicKafkaConsumer.poll`, `ConsumerRebalanceListenerInvoker`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tidelog.base.errors import MalformedBatchError, TidelogError, WakeupError
from tidelog.base.ids import Position, TopicPartition
from tidelog.base.ports import Clock
from tidelog.client.core.deliveries import Deliveries
from tidelog.client.core.handing import Delivered, Handing
from tidelog.client.core.subscription import Begins, Subscription
from tidelog.client.core.values import ConsumerRecords, FetchedBatches, K, Rebalance, RebalanceKind, V
from tidelog.client.fetching import Fetching

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.client.arrow import ArrowReader
    from tidelog.client.consumer_group import ConsumerGroup

T = TypeVar("T")

_ANSWERS_PER_POLL_MAX = 64


class Polling(Generic[K, V]):
    """See the module. Belongs to the event loop that it runs on.

    Args:
        subscription: what holds the records that may be delivered.
        deliveries: what the caller was given before, and where it stands.
        fetching: what brings the records.
        group: the consumer's; None if it has no `group_id`.
        clock: the world's.
        records_max: that a poll returns if it does not say.
    """

    def __init__(
        self,
        subscription: Subscription,
        deliveries: Deliveries[K, V],
        fetching: Fetching,
        group: ConsumerGroup | None,
        *,
        clock: Clock,
        records_max: int,
    ) -> None:
        self._subscription = subscription
        self._deliveries = deliveries
        self._fetching = fetching
        self._group = group
        self._clock = clock
        self._records_max = records_max
        self._is_woken = False
        self._teller: asyncio.Task[Any] | None = None  # who calls a listener

    # What ends a wait.
    def wakeup(self) -> None:
        """See `Consumer.wakeup`."""
        self._is_woken = True
        self._fetching.interrupt()

    def is_interrupted(self) -> bool:
        """Whether the caller is to be told something before it is given records."""
        return self._is_woken or (self._group is not None and self._group.member.has_news)

    def _check_woken(self, found: object = ()) -> None:
        """Raise if another woke the caller, and nothing was found."""
        if self._is_woken and not len(found):  # type: ignore[arg-type]
            self._is_woken = False
            raise WakeupError("another thread or task called wakeup: nothing was read")

    # What is read.
    def reading(self, timeout_ms: int, max_records: int | None) -> Callable[[], Awaitable[ConsumerRecords[K, V]]]:
        """What reads records, and may be called more than once."""
        if max_records is not None and max_records < 1:
            raise ValueError(f"poll(max_records={max_records}): 1 or more are expected")
        limit = self._records_max if max_records is None else max_records
        deadline_ms = self._clock.now_ms() + timeout_ms
        return lambda: self._read(deadline_ms, limit)

    async def _read(self, deadline_ms: int, limit: int) -> ConsumerRecords[K, V]:
        self._fetching.settle()
        moved: dict[TopicPartition, Position] = {}
        while await self._fetching.wait_for_some(deadline_ms, self.is_interrupted):
            self._fetching.settle()  # another may have left a loop meanwhile
            records = self._subscription.take_records(limit)
            self._fetching.pump_soon(is_update=False)
            moved |= records.next_offsets()
            if records:
                return ConsumerRecords(records, self._positions(moved), records.begins, records.topic_ids)
        return ConsumerRecords((), self._positions(moved))

    def _positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        readers = {key: self._subscription.readers.get(key) for key in partitions}
        found = {key: None if reader is None else reader.position for key, reader in readers.items()}
        return {key: position for key, position in found.items() if position is not None}

    def reading_batches(self, timeout_ms: int) -> Callable[[Begins], Awaitable[list[FetchedBatches]]]:
        """As `reading`, of whole batches."""
        deadline_ms = self._clock.now_ms() + timeout_ms
        return partial(self._read_batches, deadline_ms)

    async def _read_batches(self, deadline_ms: int, begins: Begins) -> list[FetchedBatches]:
        self._fetching.settle()
        if not await self._fetching.wait_for_some(deadline_ms, self.is_interrupted):
            return []
        batches = self._subscription.take_batches(_ANSWERS_PER_POLL_MAX, begins)
        self._fetching.pump_soon(is_update=False)
        return batches

    def reading_arrow(
        self, timeout_ms: int, columns: Iterable[str] | None, size_bytes: int
    ) -> Callable[[Begins], Awaitable[pa.RecordBatch]]:
        """As `reading`, of records as an Arrow batch."""
        from tidelog.client.arrow import ArrowReader

        wanted = None if columns is None else list(columns)
        deadline_ms = self._clock.now_ms() + timeout_ms
        return lambda begins: self._read_arrow(ArrowReader(wanted), deadline_ms, size_bytes, begins)

    async def _read_arrow(
        self, reader: ArrowReader, deadline_ms: int, size_bytes: int, begins: Begins
    ) -> pa.RecordBatch:
        self._fetching.settle()
        while reader.row_count == 0 and await self._fetching.wait_for_some(deadline_ms, self.is_interrupted):
            while reader.size_bytes < size_bytes and self._subscription.has_some:
                try:
                    for batch in self._subscription.take_batches(1, begins):
                        reader.add(batch)
                except MalformedBatchError:
                    for key, (place, _) in begins.items():  # all that this call took: none of it was returned
                        self._subscription.readers[key].seek(*place.position)
                    raise
            self._fetching.pump_soon(is_update=False)
        return reader.finish()

    # A step.
    async def step(self, read: Callable[[], Awaitable[T]]) -> T | Rebalance:
        """Read; or what the caller has to be told before it reads. It has come back from what it was given before."""
        self._fetching.settle()
        self._deliveries.on_back()
        self._check_woken()
        group = self._group
        if group is None:
            found = await read()
            self._check_woken(found)
            return found
        group.member.on_poll(is_begin=True)
        try:
            while True:
                rebalance = await group.prepare()
                if rebalance is not None:
                    return rebalance
                group.member.check()
                found = await read()
                self._check_woken(found)
                if len(found) or not self.is_interrupted():  # type: ignore[arg-type]  # each kind of it has a length
                    return found
        finally:
            group.member.on_poll(is_begin=False)

    def hand(self, records: ConsumerRecords[K, V], *, is_loop: bool) -> Handing[K, V]:
        """Records on their way to the caller. Before anything else is done, those it did not take are given back."""
        self._fetching.settle()
        return self._deliveries.hand(records, is_loop=is_loop)

    async def deliver(self, read: Callable[[Begins], Awaitable[T]]) -> Delivered[T] | Rebalance:
        """As `hand`, of what is taken in one piece; or what the caller has to be told first."""
        begins: Begins = {}
        result = await self.step(lambda: read(begins))
        if isinstance(result, Rebalance):
            return result
        self._fetching.settle()
        return self._deliveries.deliver(result, begins)

    # What the caller is told.
    async def telling(self, read: Callable[[], Awaitable[T]]) -> T:
        """Read; the caller is told what its group changes."""
        check_not_telling(self._teller is not None and self._teller is asyncio.current_task())
        while isinstance(found := await self.step(read), Rebalance):
            await self.tell(found)
        return found

    async def taken(self, read: Callable[[Begins], Awaitable[T]]) -> T:
        """As `telling`, of what is taken in one piece."""
        begins: Begins = {}
        result = await self.telling(lambda: read(begins))
        self._deliveries.on_taken(Delivered(result, begins))
        return result

    async def tell(self, rebalance: Rebalance | None) -> None:
        """Call the listener, and wait until it has returned."""
        if rebalance is None:
            return
        self._teller = asyncio.current_task()
        try:
            outcome = self.call_listener(rebalance)
            if inspect.isawaitable(outcome):
                await outcome
        except BaseException:
            self.on_listener_failed(rebalance)
            raise
        finally:
            self._teller = None
        self.on_told(rebalance)

    def call_listener(self, rebalance: Rebalance) -> object:
        """Returns: what the listener did, which may have to be awaited."""
        assert self._group is not None
        listener = self._group.listeners.of(rebalance.kind)
        return None if listener is None else listener(sorted(rebalance.partitions))

    def on_listener_failed(self, rebalance: Rebalance) -> None:
        """What goes has gone. What comes is told again: it may be that the caller was about to seek."""
        if rebalance.kind is not RebalanceKind.ASSIGNED:
            self.on_told(rebalance)

    def on_told(self, rebalance: Rebalance) -> None:
        """The caller was told."""
        assert self._group is not None
        self._group.on_told(rebalance)


def check_not_telling(is_telling: bool) -> None:
    """Raise if who asks for records is a listener."""
    if is_telling:
        raise TidelogError("a rebalance listener asked for records: it is told of partitions, and then returns")
