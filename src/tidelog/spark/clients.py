"""The clients of this process, kept from task to task: executors are reused, and connecting takes time.

A client belongs to the process that made it; a forked worker makes its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from tidelog.base.errors import TidelogError
from tidelog.client.kafka_settings import client_arguments

if TYPE_CHECKING:
    from tidelog import Consumer, Producer


class _Closable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=_Closable)

MAX_PARTITION_FETCH_BYTES = 4 * 1024 * 1024
"""Of a task's fetch, unless the user says otherwise: a task reads one partition, and much of it."""


IDLE_MAX = 8
"""Clients of a kind that wait for the next task: a process of Spark has one task at a time, of some queries in turn."""


class _Kept(Generic[C]):
    """Clients that nobody uses at the moment, with the settings they were made with, the latest last."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._idle: list[tuple[str, C]] = []

    def take(self, settings: Mapping[str, object]) -> C | None:
        if self._pid != os.getpid():
            self._pid, self._idle = os.getpid(), []
        wanted = json.dumps(settings, sort_keys=True)
        for number, (known, client) in enumerate(self._idle):
            if known == wanted:
                del self._idle[number]
                return client
        return None

    def give_back(self, settings: Mapping[str, object], client: C) -> None:
        self._idle.append((json.dumps(settings, sort_keys=True), client))
        while len(self._idle) > IDLE_MAX:
            _, longest_idle = self._idle.pop(0)
            with suppress(TidelogError):
                longest_idle.close()


_consumers: _Kept[Consumer] = _Kept()
_producers: _Kept[Producer] = _Kept()


@contextmanager
def borrowed_consumer(settings: Mapping[str, object]) -> Iterator[Consumer]:
    """A consumer for one task alone. It comes back to be lent again, unless the task failed."""
    from tidelog import Consumer

    consumer = _consumers.take(settings)
    if consumer is None:
        options = {"max_partition_fetch_bytes": MAX_PARTITION_FETCH_BYTES, **client_arguments(settings)}
        # A lost position is for the planner to decide about.
        consumer = Consumer(**options, auto_offset_reset="none")
    try:
        yield consumer
        consumer.assign([])
    except BaseException:
        consumer.close()
        raise
    _consumers.give_back(settings, consumer)


@contextmanager
def borrowed_producer(settings: Mapping[str, object]) -> Iterator[Producer]:
    """A producer for one task alone, which flushes it. It comes back to be lent again, unless the task failed."""
    from tidelog import Producer

    producer = _producers.take(settings)
    if producer is None:
        producer = Producer(**client_arguments(settings))
    try:
        yield producer
    except BaseException:
        with suppress(TidelogError):  # the first failure is the one to tell
            producer.close(timeout=0)
        raise
    _producers.give_back(settings, producer)
