"""A load that remembers: producers that note every acknowledgement, readers that note every record they are given.

Each producer and each reader is a client of its own in a thread of its own. Producers keep few records under way, so
that what a fault hits is never far from what is looked at; they write as fast as they are answered,
or pause in between.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import OFFSET_BEGINNING

from support.clients.confluent import read_from
from support.load.histories import Given, History, RecordId
from support.load.verifying_clients import DELIVERY_MS_MAX, PLAIN, PRODUCERS, READERS
from support.load.ways import Way
from tidelog.client.options import CompressionType

PROGRESS_SECONDS_MAX = 60.0
PAUSE_SECONDS = 0.1
"""Of a test's producers: what comes of a fault does not depend on how many records are written meanwhile."""


class VerifyingLoad:
    """See the module. `verifying_load` starts and ends it.

    Args:
        way: how all clients reach the cluster; a bootstrap alone is in plain text.
        codec: in which producers compress their batches.
        pause_seconds: of each producer after it has sent a few records to each partition.

    Attributes:
        way: may be changed: each client then goes on by another client that uses it.
        history: what is known so far; judge it only after `finish`.
        pauses: the longest time in seconds that each producer has waited for its next acknowledgement.
    """

    def __init__(
        self,
        way: str | Way,
        topic: str,
        partitions: int,
        *,
        producers: Collection[str],
        readers: Collection[str],
        codec: CompressionType = "none",
        pause_seconds: float = 0.0,
    ) -> None:
        self.way = Way(way) if isinstance(way, str) else way
        self.ways: dict[tuple[str, str], Way] = {}  # which each client uses now, by what it does and its name
        self.codec = codec
        self.pause_seconds = pause_seconds
        self.topic = topic
        self.partitions = partitions
        self.history = History(idempotent={name for name in producers if name not in PLAIN})
        self.progress = threading.Condition()  # notified at acknowledgements, and when something failed
        self.producing_ended = threading.Event()
        self.reading_ended = threading.Event()
        self.failures: list[BaseException] = []
        self.acknowledged = dict.fromkeys(producers, 0)
        self.pauses = dict.fromkeys(producers, 0.0)
        self._heard: dict[str, float] = {}
        self.ends: Mapping[int, int] | None = None  # exclusive, per partition: what readers are to reach at last
        self._producers = [threading.Thread(target=self._run, args=(PRODUCERS[name], name)) for name in producers]
        self._readers = [threading.Thread(target=self._run, args=(READERS[name], name)) for name in readers]
        self.history.given = {name: [] for name in readers}

    def start(self) -> None:
        for thread in (*self._producers, *self._readers):
            thread.start()

    def until_acknowledged(self, count: int, *, seconds: float = PROGRESS_SECONDS_MAX) -> None:
        """Wait until each producer has had so many more records acknowledged, from now on.

        Raises:
            AssertionError: not in time; says how far each came. Whatever else failed in a thread is raised as it was.
        """
        wanted = {name: acknowledged + count for name, acknowledged in self.acknowledged.items()}

        def is_enough() -> bool:
            return all(self.acknowledged[name] >= number for name, number in wanted.items())

        with self.progress:
            in_time = self.progress.wait_for(lambda: bool(self.failures) or is_enough(), seconds)
        self._raise_failure()
        assert in_time, f"after {seconds:.0f} s acknowledged {self.acknowledged}, wanted {wanted}" + "".join(
            f"\n{line}" for line in self.history.failed_lines()
        )

    def finish(self) -> History:
        """End the writing, read everything with one more client, let the readers come to the end. All that was seen.

        Raises:
            AssertionError: something did not end in time.
        """
        self.producing_ended.set()
        self._join(self._producers, DELIVERY_MS_MAX / 1_000 + PROGRESS_SECONDS_MAX)
        for partition in range(self.partitions):
            found = read_from(
                self.way.bootstrap, self.topic, OFFSET_BEGINNING, partition=partition, **self.way.of_theirs
            )
            self.history.final[partition] = [Given(partition, one.offset, one.value, one.leader_epoch) for one in found]
        self.ends = {partition: found[-1].offset + 1 for partition, found in self.history.final.items() if found}
        self._join(self._readers, PROGRESS_SECONDS_MAX)
        return self.history

    def abandon(self) -> None:
        """End all threads, whatever they are at."""
        self.producing_ended.set()
        self.reading_ended.set()
        for thread in (*self._producers, *self._readers):
            thread.join()

    @property
    def has_moved(self) -> bool:
        """Whether every client that still runs uses `way` as it is now."""
        return all(way is self.way for way in tuple(self.ways.values()))

    # For the threads.

    def begin_on_way(self, does: str, name: str) -> Way:
        """The way for another client of a thread, which has closed the one before."""
        way = self.ways[does, name] = self.way
        return way

    def next_record(self, name: str, partition: int) -> RecordId:
        """The next one of a producer, noted as sent."""
        number = self.history.sent.get((name, partition), 0)
        self.history.sent[name, partition] = number + 1
        return RecordId(name, partition, number)

    def on_outcome(self, record: RecordId, offset: int | None, why: str | None) -> None:
        """A record was acknowledged, or given up."""
        if why is not None:
            self.history.failed[record] = why
            return
        self.history.acknowledged[record] = offset
        now = time.monotonic()
        pause = now - self._heard.get(record.producer, now)
        self.pauses[record.producer] = max(self.pauses[record.producer], pause)
        self._heard[record.producer] = now
        with self.progress:
            self.acknowledged[record.producer] += 1
            self.progress.notify_all()

    def has_read_all(self, positions: Mapping[int, int]) -> bool:
        """Whether a reader with these positions may end."""
        ends = self.ends
        at_end = ends is not None and all(positions.get(partition, 0) >= end for partition, end in ends.items())
        return at_end or self.reading_ended.is_set()

    def _run(self, work: Callable[[VerifyingLoad, str], None], name: str) -> None:
        try:
            work(self, name)
        except BaseException as error:
            with self.progress:
                self.failures.append(error)
                self.progress.notify_all()

    def _join(self, threads: list[threading.Thread], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._raise_failure()
        late = [thread for thread in threads if thread.is_alive()]
        if late:
            read = {name: len(given) for name, given in self.history.given.items()}
            raise AssertionError(f"not at the end after {seconds:.0f} s: acknowledged {self.acknowledged}, read {read}")

    def _raise_failure(self) -> None:
        if self.failures:
            raise self.failures[0]


@contextmanager
def verifying_load(
    way: str | Way,
    topic: str,
    partitions: int,
    *,
    producers: Collection[str] = PRODUCERS,
    readers: Collection[str] = READERS,
) -> Iterator[VerifyingLoad]:
    """A load on a topic that is there and empty, which has begun to be acknowledged. It ends with the block."""
    load = VerifyingLoad(way, topic, partitions, producers=producers, readers=readers, pause_seconds=PAUSE_SECONDS)
    load.start()
    try:
        load.until_acknowledged(1)
        yield load
    finally:
        load.abandon()
