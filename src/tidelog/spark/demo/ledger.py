"""A ledger beside the flights: numbers written all the while, each acknowledgement noted, and read as they come.

What was acknowledged and cannot be read is lost; what is read twice is duplicated, unless the reader was told.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from tidelog.base.errors import TidelogError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.client.core.values import ConsumerRecord, PositionReset, RecordMetadata
from tidelog.client.futures import Future

TOPIC = "ledger"
PARTITIONS = 3
RECORDS_PER_TURN = 10
TURN_SECONDS = 0.05
FLUSH_SECONDS_MAX = 30.0
READ_SECONDS_MAX = 60.0


class LedgerVerdict(NamedTuple):
    """What became of the numbers.

    Attributes:
        acknowledged: by all in-sync replicas, two at least.
        refused: the writer was told that they may not be there.
        told: how often a reader was told that records are gone.
        longest_pause_ms: between a number's being sent and its acknowledgement, at the most.
    """

    acknowledged: int
    lost: int
    duplicated: int
    refused: int
    told: int
    longest_pause_ms: int


class Ledger:
    """Writes and reads from `start` to `stop`, each in a thread of its own."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._stopped = threading.Event()
        self._acknowledged: set[int] = set()
        self._refused = 0
        self._longest_pause = 0.0
        self._read: Counter[int] = Counter()
        self._told = 0
        self._error: BaseException | None = None
        self._end: dict[int, int] = {}
        self._writer = threading.Thread(target=self._guarded, args=(self._write,), name="ledger-writer", daemon=True)
        self._reader = threading.Thread(target=self._guarded, args=(self._follow,), name="ledger-reader", daemon=True)
        self._all_written = threading.Event()

    @property
    def acknowledged(self) -> int:
        """So far."""
        return len(self._acknowledged)

    def start(self) -> None:
        self._writer.start()
        self._reader.start()

    def stop(self) -> LedgerVerdict:
        """Write no more, read to the end, and count. Raises TidelogError: one of the two could not go on."""
        self._stopped.set()
        self._writer.join()
        self._all_written.set()
        self._reader.join()
        if self._error is not None:
            raise self._error
        return LedgerVerdict(
            acknowledged=len(self._acknowledged),
            lost=len(self._acknowledged - self._read.keys()),
            duplicated=sum(count - 1 for count in self._read.values()),
            refused=self._refused,
            told=self._told,
            longest_pause_ms=round(self._longest_pause * 1000),
        )

    def abandon(self) -> None:
        """Have both threads end soon, whatever is left."""
        self._stopped.set()
        self._all_written.set()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except TidelogError as error:
            self._error = self._error or error

    def _write(self) -> None:
        from tidelog import Producer

        number = 0
        with Producer(self._bootstrap, client_id="tidelog-demo-ledger") as producer:
            while not self._stopped.wait(TURN_SECONDS):
                for _ in range(RECORDS_PER_TURN):
                    future = producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
                    future.add_done_callback(self._noting(number, time.monotonic()))
                    number += 1
            with suppress(TidelogError):  # each is told of one by one
                producer.flush(FLUSH_SECONDS_MAX)

    def _noting(self, number: int, sent_at: float) -> Callable[[Future[RecordMetadata]], None]:
        def note(future: Future[RecordMetadata]) -> None:
            self._longest_pause = max(self._longest_pause, time.monotonic() - sent_at)
            if future.exception() is None:
                self._acknowledged.add(number)
            else:
                self._refused += 1

        return note

    def _follow(self) -> None:
        from tidelog import Consumer

        with Consumer(
            self._bootstrap, client_id="tidelog-demo-ledger", auto_offset_reset="earliest", on_reset=self._on_reset
        ) as consumer:
            partitions = [TopicPartition(TOPIC, PartitionIndex(index)) for index in range(PARTITIONS)]
            consumer.assign(partitions)
            consumer.seek_to_beginning()
            while not self._all_written.is_set():
                self._take(consumer.poll(timeout_ms=200))
            ends = consumer.end_offsets(partitions)
            deadline = time.monotonic() + READ_SECONDS_MAX
            while any(consumer.position(each).offset < ends[each].offset for each in partitions):
                if time.monotonic() > deadline:
                    return  # what was not read counts as lost
                self._take(consumer.poll(timeout_ms=200))

    def _take(self, records: list[ConsumerRecord]) -> None:
        self._read.update(int(record.value or b"-1") for record in records)

    def _on_reset(self, _: PositionReset) -> None:
        self._told += 1
