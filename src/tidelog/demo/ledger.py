"""A ledger beside the flights: numbers written all the while, each acknowledgement noted, and read as they come.

Each of the two clients notes what it is told to be gone. What the files say of that is looked up by others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import permutations
from typing import TYPE_CHECKING

from tidelog.base.errors import RecordsLostError, TidelogError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.client.core.values import ConsumerRecord, PositionReset, RecordMetadata
from tidelog.client.futures import Future
from tidelog.demo.balance import History, LostRange, Place, without

if TYPE_CHECKING:
    from tidelog import Producer

TOPIC = "ledger"
REPLICAS = {index: list(order) for index, order in enumerate(permutations((1, 2, 3)))}
"""Every order of three nodes: whoever leads what, there is a partition with the roles that a story needs."""
PARTITIONS = len(REPLICAS)
CONFIGS = {"min.insync.replicas": "1"}
"""It is written on while one replica is left. Two acknowledge while two are there."""
RECORDS_PER_TURN = 10
RECORDS_PER_TURN_IN_A_HURRY = 120
TURN_SECONDS = 0.05
FLUSH_SECONDS_MAX = 120.0
READ_SECONDS_MAX = 120.0


def partition_of(index: int) -> TopicPartition:
    """One of the ledger's."""
    return TopicPartition(TOPIC, PartitionIndex(index))


class LedgerStoppedError(TidelogError):
    """The ledger's writer or reader stood still. Says which."""


class Ledger:
    """Writes and reads from `start` to `stop`, each in a thread of its own.

    Attributes:
        records_per_turn: how fast it writes: so many every `TURN_SECONDS`.
        told_producer: what the writer was told to be gone, so far.
        told_reader: what the reader was told.
    """

    def __init__(self, bootstrap: str) -> None:
        self.records_per_turn = RECORDS_PER_TURN
        self.told_producer: list[LostRange] = []
        self.told_reader: list[LostRange] = []
        self._bootstrap = bootstrap
        self._number = 0
        self._acknowledged: dict[int, tuple[int, int | None]] = {}
        self._refused = 0
        self._longest_pause = 0.0
        self._read: dict[Place, int] = {}
        self._read_twice = 0
        self._error: BaseException | None = None
        self._stopped = threading.Event()
        self._held = threading.Event()
        self._rests = threading.Event()
        self._all_written = threading.Event()
        self._writer = threading.Thread(target=self._guarded, args=(self._write,), name="ledger-writer", daemon=True)
        self._reader = threading.Thread(target=self._guarded, args=(self._follow,), name="ledger-reader", daemon=True)

    @property
    def longest_pause_ms(self) -> int:
        """Between a number's being sent and its acknowledgement, at the most, so far."""
        return round(self._longest_pause * 1000)

    def acknowledged_in(self, index: int) -> int:
        """How many so far, in one partition."""
        return sum(partition == index for partition, _ in list(self._acknowledged.values()))

    def start(self) -> None:
        self._writer.start()
        self._reader.start()

    def hold(self) -> History:
        """Let the writer rest; return what was seen, when all that was written is answered and read.

        Raises:
            TidelogError: the writer or the reader could not go on.
        """
        self._held.set()
        self._await(self._rests.is_set, "the writer of the ledger does not come to rest")
        self._await(self._has_read_all, "the reader of the ledger does not come to its end")
        return self.history()

    def go_on(self) -> None:
        """Write on."""
        self._rests.clear()
        self._held.clear()

    def stop(self) -> History:
        """Write no more, read to the end, and tell. Raises as `hold`."""
        self._stopped.set()
        self._held.clear()
        self._writer.join()
        self._all_written.set()
        self._reader.join()
        if self._error is not None:
            raise self._error
        return self.history()

    def history(self) -> History:
        """What was seen so far."""
        return History(
            acknowledged=dict(self._acknowledged),
            refused=self._refused,
            told_producer=tuple(self.told_producer),
            told_reader=tuple(self.told_reader),
            kept_by_reader=dict(self._read),
            read_twice=self._read_twice,
        )

    def abandon(self) -> None:
        """Have both threads end soon, whatever is left."""
        self._stopped.set()
        self._held.clear()
        self._all_written.set()

    def _await(self, is_so: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + FLUSH_SECONDS_MAX
        while not is_so():
            if self._error is not None:
                raise self._error
            if time.monotonic() > deadline:
                raise LedgerStoppedError(f"{otherwise} within {FLUSH_SECONDS_MAX:.0f} s")
            time.sleep(TURN_SECONDS)

    def _has_read_all(self) -> bool:
        places = {(partition, offset) for partition, offset in self._acknowledged.values() if offset is not None}
        return places <= self._read.keys()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except TidelogError as error:
            self._error = self._error or error

    # Writing.

    def _write(self) -> None:
        from tidelog import Producer

        while not self._stopped.is_set():
            # One that cannot tell what is left of its records delivers no more: another goes on with later numbers.
            with (
                suppress(TidelogError),  # each record is told of by its future
                Producer(
                    self._bootstrap, client_id="tidelog-demo-ledger", on_records_lost=self._on_records_lost
                ) as producer,
            ):
                while not self._stopped.wait(TURN_SECONDS):
                    if not self._held.is_set():
                        self._send_some(producer)
                    elif not self._rests.is_set():
                        producer.flush(FLUSH_SECONDS_MAX)
                        self._rests.set()

    def _send_some(self, producer: Producer) -> None:
        for _ in range(self.records_per_turn):
            number, self._number = self._number, self._number + 1
            future = producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
            future.add_done_callback(self._noting(number, time.monotonic()))

    def _noting(self, number: int, sent_at: float) -> Callable[[Future[RecordMetadata]], None]:
        def note(future: Future[RecordMetadata]) -> None:
            if future.exception() is None:
                self._longest_pause = max(self._longest_pause, time.monotonic() - sent_at)
                written = future.result()
                self._acknowledged[number] = written.partition, written.offset
            else:
                self._refused += 1

        return note

    def _on_records_lost(self, loss: RecordsLostError) -> None:
        partition = loss.partition.partition
        end_offset = 0 if loss.last_offset is None else loss.last_offset + 1
        self.told_producer.append(LostRange(partition, loss.first_offset, end_offset))

    # Reading.

    def _follow(self) -> None:
        from tidelog import Consumer

        with Consumer(
            self._bootstrap, client_id="tidelog-demo-ledger", auto_offset_reset="earliest", on_reset=self._on_reset
        ) as consumer:
            partitions = [partition_of(index) for index in range(PARTITIONS)]
            consumer.assign(partitions)
            consumer.seek_to_beginning()
            while not self._all_written.is_set():
                self._take(consumer.poll(timeout_ms=200))
            ends = consumer.end_offsets(partitions)
            deadline = time.monotonic() + READ_SECONDS_MAX
            while any(consumer.position(each).offset < ends[each].offset for each in partitions):
                if time.monotonic() > deadline:
                    return  # what was not read shows as a difference
                self._take(consumer.poll(timeout_ms=200))

    def _take(self, records: list[ConsumerRecord]) -> None:
        for record in records:
            place = record.partition, record.offset
            self._read_twice += place in self._read
            self._read[place] = int(record.value or b"-1")

    def _on_reset(self, reset: PositionReset) -> None:
        gone = LostRange(reset.topic_partition.partition, reset.divergent_offset, reset.position.offset)
        self.told_reader.append(gone)
        without(self._read, gone)
