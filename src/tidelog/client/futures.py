"""What `send` returns: the outcome of a record, or of columns, once its batch is delivered or has failed.

There is nothing per record but the future itself, of two fields: all records of a batch share its outcome. It can be
waited for by threads (`result`), awaited on any event loop, or watched by callbacks.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable
from typing import Any, Generic, NamedTuple, TypeVar

from tidelog.base.errors import TidelogError, TimedOutError
from tidelog.client.core.accumulator import Delivered, PendingBatch
from tidelog.client.core.values import RecordMetadata

T = TypeVar("T")

logger = logging.getLogger("tidelog.client")


class BatchMetadata(NamedTuple):
    """Where a batch of columns' rows went."""

    topic: str
    partition: int
    base_offset: int | None
    """Of its first row; the others follow one by one. None if it is not known: see `RecordMetadata.offset`."""
    record_count: int
    leader_epoch: int | None
    """As in `RecordMetadata`."""


class Outcomes:
    """Who waits for which batch. Thread-safe; one a producer."""

    __slots__ = ("_lock", "_waiting")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[int, list[Callable[[], None]]] = {}

    def add(self, batch: PendingBatch, callback: Callable[[], None]) -> None:
        """Call `callback` once when the outcome is known, which may be now. From the client's thread, or this one."""
        with self._lock:
            if batch.outcome is None:
                self._waiting.setdefault(batch.number, []).append(callback)
                return
        callback()

    def on_done(self, batch: PendingBatch) -> None:
        """The batch has its outcome."""
        with self._lock:
            callbacks = self._waiting.pop(batch.number, ())
        for callback in callbacks:
            try:
                callback()
            except Exception:
                logger.exception("a callback of a delivered batch failed")


class Future(ABC, Generic[T]):
    """The outcome of a send: a value, or the error for which it was not delivered."""

    __slots__ = ()

    def done(self) -> bool:
        """Whether the outcome is known."""
        return all(batch.outcome is not None for batch in self._batches())

    def result(self, timeout: float | None = None) -> T:
        """Wait for the outcome. Not to be called on an event loop: `await` the future there.

        Args:
            timeout: in seconds; None waits until the record is delivered or has failed, which it does after
                `delivery_timeout_ms` at the latest.

        Raises:
            TimedOutError: it is not known yet. The record is still on its way.
            TidelogError: why it was not delivered.
        """
        self._wait(timeout)
        return self._value()

    def exception(self, timeout: float | None = None) -> TidelogError | None:
        """Wait as `result` does, and return the error, or None if all is well."""
        self._wait(timeout)
        return self._error()

    def add_done_callback(self, callback: Callable[[Future[T]], Any]) -> None:
        """Call `callback(self)` when the outcome is known: on the client's own thread, so briefly; at once if it is."""
        missing = [batch for batch in self._batches() if batch.outcome is None]
        left = len(missing)
        if not left:
            callback(self)
            return

        def on_batch() -> None:
            nonlocal left
            left -= 1
            if not left:
                callback(self)

        for batch in missing:
            _outcomes(batch).add(batch, on_batch)

    def __await__(self) -> Generator[Any, None, T]:
        if not self.done():
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            self.add_done_callback(lambda _: loop.call_soon_threadsafe(_wake, waiter))
            yield from waiter
        return self._value()

    @abstractmethod
    def _batches(self) -> tuple[PendingBatch, ...]:
        """The batches that hold what it stands for."""

    @abstractmethod
    def _value(self) -> T:
        """The result, once all of them are done. Raises what one of them failed with."""

    def _wait(self, timeout: float | None) -> None:
        if self.done():
            return
        event = threading.Event()
        self.add_done_callback(lambda _: event.set())
        if not event.wait(timeout):
            partition = self._batches()[0].topic_partition
            raise TimedOutError(f"{partition}: not delivered yet, after waiting {timeout} s").about(partition)

    def _error(self) -> TidelogError | None:
        error = None
        for batch in self._batches():
            batch.is_observed = True
            if isinstance(batch.outcome, TidelogError):
                error = error or batch.outcome
        return error


class RecordFuture(Future[RecordMetadata]):
    """The outcome of one record."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: PendingBatch, index: int) -> None:
        self._batch = batch
        self._index = index

    def __repr__(self) -> str:
        return f"RecordFuture({self._batch.topic_partition}, {self._batch.outcome or 'under way'})"

    def _batches(self) -> tuple[PendingBatch, ...]:
        return (self._batch,)

    def _value(self) -> RecordMetadata:
        batch, outcome = self._batch, self._batch.outcome
        batch.is_observed = True
        if not isinstance(outcome, Delivered):
            raise _fresh(outcome)
        topic, partition = batch.topic_partition
        offset = None if outcome.base_offset is None else outcome.base_offset + self._index
        timestamp = batch.timestamps[self._index] if outcome.log_append_time is None else outcome.log_append_time
        return RecordMetadata(topic, partition, offset, timestamp, outcome.leader_epoch)


class ColumnsFuture(Future[list[BatchMetadata]]):
    """The outcome of columns: where each of their batches went, in the order of the rows within each partition."""

    __slots__ = ("_all",)

    def __init__(self, batches: tuple[PendingBatch, ...]) -> None:
        self._all = batches

    @staticmethod
    def joined(futures: Iterable[ColumnsFuture]) -> ColumnsFuture:
        """One future for all."""
        return ColumnsFuture(tuple(batch for future in futures for batch in future._all))

    def __repr__(self) -> str:
        return f"ColumnsFuture({len(self._all)} batches, {'done' if self.done() else 'under way'})"

    def _batches(self) -> tuple[PendingBatch, ...]:
        return self._all

    def _value(self) -> list[BatchMetadata]:
        error = self._error()
        if error is not None:
            raise _fresh(error)
        found = []
        for batch in self._all:
            outcome = batch.outcome
            assert isinstance(outcome, Delivered)
            topic, partition = batch.topic_partition
            found.append(BatchMetadata(topic, partition, outcome.base_offset, batch.record_count, outcome.leader_epoch))
        return found


def _outcomes(batch: PendingBatch) -> Outcomes:
    assert isinstance(batch.ticket, Outcomes)
    return batch.ticket


def _fresh(outcome: TidelogError | None) -> TidelogError:
    """The error to raise: all records of a batch share it, so it is not to gather the tracebacks of all who ask."""
    assert outcome is not None, "asked for the outcome before there is one"
    return outcome.with_traceback(None)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
