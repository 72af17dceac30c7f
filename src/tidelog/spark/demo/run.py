"""The demo from its first step to its last, leaving nothing running however it ends."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Protocol

from tidelog.base.errors import TidelogError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.spark.demo.broker import DemoBroker
from tidelog.spark.demo.flights import Books, Verdict, books_of, compare, extract
from tidelog.spark.demo.pipeline import PARTITIONS, TOPIC, DelaysQuery, write_flights
from tidelog.spark.demo.report import RunLog, plot
from tidelog.spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog import Admin

STANDSTILL_SECONDS_MAX = 60.0
LOOK_PAUSE_SECONDS = 0.3
DOWN_SECONDS = 1.0
"""How long the broker stays dead. A restart alone would be over before a micro-batch noticed."""


class Listener(Protocol):
    """Who hears how far the demo is: the command that runs it shows that to people."""

    def say(self, text: str) -> None: ...
    def begin(self, step: str, total: int) -> None: ...
    def advance(self, done: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it."""

    books: Books
    verdict: Verdict
    picture: Path
    results: Path
    query_restarts: int


class Directories:
    """What the demo makes below its output directory. Only that is ever removed.

    `results` and the picture stay; `work`, with the broker's files, Spark's checkpoint, their logs and the unpacked
    flights, is removed at the end, unless it is to be kept or something went wrong.
    """

    def __init__(self, output: Path) -> None:
        self.output = output
        self.results = output / "delays"
        self.picture = output / "flights.png"
        self.work = output / "work"
        self.is_worth_keeping = False

    def prepare(self) -> None:
        self.output.mkdir(parents=True, exist_ok=True)
        self.remove(self.work)
        self.remove(self.results)
        self.picture.unlink(missing_ok=True)
        self.work.mkdir()

    @staticmethod
    def remove(directory: Path) -> None:
        shutil.rmtree(directory, ignore_errors=True)

    @contextmanager
    def cleaned_up(self, keep: bool, listener: Listener) -> Iterator[None]:
        """Remove `work` in the end, if that is right."""
        try:
            yield
        except Exception:
            self.is_worth_keeping = True
            raise
        finally:
            if self.is_worth_keeping and not keep:
                listener.say(f"files and logs are left in {self.work}")
            if not self.is_worth_keeping and not keep:
                self.remove(self.work)


def run_demo(output: Path, *, port: int, keep: bool, listener: Listener) -> Outcome:
    """Run the whole of it.

    Args:
        output: the directory for results and picture; what a demo before left there is replaced.
        port: the broker's; 0 for a free one.
        keep: leave the broker's files and the checkpoint where they are.
        listener: hears of every step.

    Raises:
        TidelogError: a part of it could not start or go on; says which, and why.
    """
    directories = Directories(output)
    directories.prepare()
    with _termination_as_interrupt(), directories.cleaned_up(keep, listener), ExitStack() as stack:
        flights = extract(directories.work)
        broker = DemoBroker(directories.work / "broker", port)
        stack.callback(broker.close)
        seconds = broker.start()
        listener.say(f"broker on {broker.bootstrap}, pid {broker.pid}, up in {seconds:.2f} s")
        listener.say("starting Spark ...")
        with _stderr_into(directories.work / "spark.log"):
            spark = local_session("tidelog demo", cores=2, heap="1g", settings={"spark.log.level": "ERROR"})
        stack.callback(spark.stop)
        listener.say(f"Spark {spark.version} runs in this process")
        expected = books_of(flights)
        total = sum(totals.flights for totals in expected.values())
        _fill(spark, flights, broker, total, listener)
        query = DelaysQuery(spark, broker.bootstrap, directories.results, directories.work / "checkpoint")
        stack.callback(query.stop)
        log = _query_through_an_outage(query, broker, total, listener)
        query.stop()
        books = query.books()
        verdict = compare(expected, books)
        plot(directories.picture, books, log, verdict)
        directories.is_worth_keeping = not verdict.is_clean
        return Outcome(books, verdict, directories.picture, directories.results, query.restarts)


def _fill(spark: SparkSession, flights: Path, broker: DemoBroker, total: int, listener: Listener) -> None:
    from tidelog import Admin, NewTopic

    with Admin(broker.bootstrap, client_id="tidelog-demo") as admin:
        admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)])
        listener.begin(f"Spark writes {total:,} flights to the topic {TOPIC}", total)

        def look() -> None:
            with suppress(TidelogError):  # the next look will tell
                listener.advance(_written(admin))

        with _again_and_again(look):
            write_flights(spark, flights, broker.bootstrap)
        listener.advance(_written(admin))


def _written(admin: Admin) -> int:
    ends = admin.list_offsets({TopicPartition(TOPIC, PartitionIndex(n)): "latest" for n in range(PARTITIONS)})
    return sum(end.offset for end in ends.values() if end is not None)


def _query_through_an_outage(query: DelaysQuery, broker: DemoBroker, total: int, listener: Listener) -> RunLog:
    log = RunLog()
    began = time.monotonic()

    def on_progress(records: int) -> None:
        log.progress.append((time.monotonic() - began, records))
        listener.advance(records)

    listener.begin("A streaming query sums up delays by carrier and day", total)
    query.start()
    query.run_until(total // 2, seconds_max=STANDSTILL_SECONDS_MAX, on_progress=on_progress)
    killed_pid = broker.pid
    broker.kill()
    log.killed_at = time.monotonic() - began
    listener.say(f"kill -9 {killed_pid}: the broker is gone, half way through")
    time.sleep(DOWN_SECONDS)
    seconds = broker.start()
    log.back_at = time.monotonic() - began
    listener.say(f"broker restarted on the same files in {seconds:.2f} s, pid {broker.pid}")
    query.run_until(total, seconds_max=STANDSTILL_SECONDS_MAX, on_progress=on_progress)
    if query.restarts:
        listener.say(f"the query failed on the outage and was started from its checkpoint {query.restarts} times")
    else:
        listener.say("the query lived through the outage")
    return log


@contextmanager
def _stderr_into(path: Path) -> Iterator[None]:
    """Have processes that are started now write their complaints to a file: Spark has many that mean nothing here."""
    sys.stderr.flush()
    saved = os.dup(2)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(file)


@contextmanager
def _again_and_again(look: Callable[[], None]) -> Iterator[None]:
    """Have a thread look every now and then. (Spark stays in the main thread: others do not know its session.)"""
    done = threading.Event()

    def run() -> None:
        while not done.wait(LOOK_PAUSE_SECONDS):
            look()

    thread = threading.Thread(target=run, name="demo-look", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    """SIGTERM ends the demo as Ctrl-C does: in order."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    def is_worth_logging(record: logging.LogRecord) -> bool:
        return "KeyboardInterrupt" not in record.getMessage()

    # The bridge to the JVM has tracebacks for an interrupt, and for a query that is stopped in the middle of a batch.
    bridge = logging.getLogger("py4j")
    bridge_level = bridge.level
    before = signal.signal(signal.SIGTERM, interrupt)
    logging.getLogger().addFilter(is_worth_logging)
    bridge.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        bridge.setLevel(bridge_level)
        logging.getLogger().removeFilter(is_worth_logging)
        signal.signal(signal.SIGTERM, before)
