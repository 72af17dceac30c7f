"""Where a producer's records come in: from any thread, under a lock that is held for microseconds.

The event loop is woken once per batch, not once per record.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from tidelog.base.errors import ClientClosedError, Code, refusal
from tidelog.client.cluster import World
from tidelog.client.core.accumulator import (
    HEADER_OVERHEAD_MAX,
    RECORD_OVERHEAD_MAX,
    Accumulator,
    PartitionQueue,
    PendingBatch,
    RecordHeaders,
)
from tidelog.client.core.metadata_cache import MetadataCache
from tidelog.client.core.route import Route
from tidelog.client.core.sender import Sender
from tidelog.client.core.transaction import Call
from tidelog.client.futures import Outcomes, RecordFuture
from tidelog.client.options import ProducerConfig
from tidelog.records.columns import EncodedRecords

_ROOM_AGAIN = 0.75  # of the buffer: whoever waited for room then finds a good deal of it


class RecordAppender:
    """See the module. What it holds, and what the sender holds, is touched under `lock` alone.

    Args:
        config: the producer's.
        accumulator: where records wait; it is the sender's too.
        sender: says where the records of a partition queue, and why none will ever be taken again.
        metadata: the cluster's, as it is known now.
        world: clock and randomness.
        wake: has the loop pump soon; may be called from any thread.

    Attributes:
        outcomes: who is told what became of which batch.
        is_closed: nothing more is taken.
        is_full: nothing is taken until there is a good deal of room again.
        is_woken: a pump will follow.
        pumps_at_ms: when the loop will pump by itself; None if it will not.
        flushing: how many wait until all is sent.
    """

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: Accumulator,
        sender: Sender,
        *,
        metadata: MetadataCache,
        world: World,
        wake: Callable[[], object],
    ) -> None:
        self._config = config
        self._accumulator = accumulator
        self._sender = sender
        self._metadata = metadata
        self._clock = world.clock
        self._rng = world.rng
        self._wake = wake
        self._transactions = sender.transactions
        self._asks_user = callable(config.partitioner)
        self._routes: dict[str, Route] = {}
        self.lock = threading.Lock()
        self.outcomes = Outcomes()
        self.is_closed = False
        self.is_full = False
        self.is_woken = False
        self.pumps_at_ms: int | None = None
        self.flushing = 0

    def append(  # noqa: PLR0917 - once per record: keywords cost time
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: RecordHeaders,
    ) -> RecordFuture | None:
        """Append a record.

        Returns:
            Its future; or None if the caller has to wait first, as `until_ready` does.

        Raises:
            KafkaError: the record is too large, or its partition is negative.
            TidelogError: the producer is closed, or cannot go on.
        """
        size = RECORD_OVERHEAD_MAX
        if key is not None:
            size += len(key)
        if value is not None:
            size += len(value)
        for name, content in headers:
            size += HEADER_OVERHEAD_MAX + 4 * len(name) + (0 if content is None else len(content))
        if size > self._config.max_request_size:
            raise refusal(
                Code.MESSAGE_TOO_LARGE,
                f"a record of {size} bytes is larger than max_request_size allows ({self._config.max_request_size})",
            )
        if partition is None and self._asks_user:
            known = self.route(topic)
            if known is None:
                return None
            partition = known.partitioner.ask(key)  # not under the lock: it may send something itself
        with self.lock:
            route = self._routes.get(topic) or self._new_route(topic)
            if route is None or self.is_full or (partition is not None and partition >= route.partition_count):
                return None
            queue = route.queue(partition, key, size)
            batch = queue.open
            wake = False
            if batch is None or batch.size_bytes + size > self._accumulator.batch_size_bytes:
                if self.refuses():
                    return None
                batch, wake = self._open_batch(queue)
            index = len(batch.timestamps)
            batch.timestamps.append(timestamp_ms)
            batch.keys.append(key)
            batch.values.append(value)
            batch.headers.append(headers)
            if headers:
                batch.header_count += len(headers)
            batch.size_bytes += size
            self._accumulator.used_bytes += size
        if wake:
            self._wake()
        return RecordFuture(batch, index)

    def append_rows(self, topic: str, partition: int | None, rows: EncodedRecords) -> PendingBatch | None:
        """Take rows as one batch. As `append`."""
        with self.lock:
            route = self._routes.get(topic) or self._new_route(topic)
            if route is None or self.is_full or self.refuses():
                return None
            if partition is not None and partition >= route.partition_count:
                return None
            queue = route.queue(partition, None, len(rows.records))
            batch = self._accumulator.add_rows(queue, rows, self._clock.now_ms(), self.outcomes)
            wake = not self.is_woken
            self.is_woken = True
        if wake:
            self._wake()
        return batch

    def route(self, topic: str) -> Route | None:
        """How a topic's records go to its partitions; None if the caller has to wait, as `until_ready` does."""
        with self.lock:
            return self._routes.get(topic) or self._new_route(topic)

    def refuses(self) -> bool:
        """Whether no batch may be added now. Raises if never again."""
        self.check_open()
        used = self._accumulator.used_bytes
        if used and used + self._accumulator.batch_size_bytes > self._accumulator.buffer_size_bytes:
            self.is_full = True
        return self.is_full

    def check_open(self) -> None:
        """Raise why no record will ever be taken again, if that is so."""
        if self.is_closed:
            raise ClientClosedError("the producer is closed")
        if self._sender.fatal is not None:
            raise self._sender.fatal.with_traceback(None)
        if self._transactions is not None:
            self._transactions.check(Call.SEND)

    def on_room(self) -> None:
        """Memory was given back. Called under the lock."""
        if self.is_full and self._accumulator.used_bytes <= self._config.buffer_memory * _ROOM_AGAIN:
            self.is_full = False

    def forget_routes(self, topics: Iterable[str]) -> None:
        """Their partitions, or the leaders of them, are not what they were. Under the lock."""
        for topic in topics:
            self._routes.pop(topic, None)

    # How.
    def _new_route(self, topic: str) -> Route | None:
        if self.is_closed:
            raise ClientClosedError("the producer is closed")
        view = self._metadata.topics.get(topic)
        if view is None or not view.partitions:
            return None
        route = Route(
            view,
            self._sender.queue,
            self._config.partitioner,
            sticky_bytes=self._config.batch_size,
            rng=self._rng,
        )
        self._routes[topic] = route
        return route

    def _open_batch(self, queue: PartitionQueue) -> tuple[PendingBatch, bool]:
        """A new batch, and whether the loop has to be woken for it."""
        now_ms = self._clock.now_ms()
        batch = self._accumulator.open_batch(queue, now_ms, self.outcomes)
        if self.is_woken:
            return batch, False
        timer = self.pumps_at_ms
        if timer is not None and timer <= now_ms + self._config.linger_ms and not queue.waiting and not self.flushing:
            return batch, False  # it will look in time
        self.is_woken = True
        return batch, True
