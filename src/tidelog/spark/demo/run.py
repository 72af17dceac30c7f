"""The demo from its first step to its last, leaving nothing running however it ends."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from tidelog.base.errors import TidelogError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.spark.demo.broker import DemoBroker
from tidelog.spark.demo.flights import Books, Verdict, books_of, compare, extract
from tidelog.spark.demo.pipeline import PARTITIONS, TOPIC, DelaysQuery, in_background, write_flights
from tidelog.spark.demo.progress import Reporter
from tidelog.spark.demo.report import RunLog, plot
from tidelog.spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog import Admin

STANDSTILL_SECONDS_MAX = 60.0
DOWN_SECONDS = 1.0
"""How long the broker stays dead. A restart alone would be over before a micro-batch noticed."""


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

    `results` and the picture stay; `work`, with the broker's files, Spark's checkpoint and the unpacked flights, is
    removed at the end unless it is to be kept.
    """

    def __init__(self, output: Path) -> None:
        self.output = output
        self.results = output / "delays"
        self.picture = output / "flights.png"
        self.work = output / "work"

    def prepare(self) -> None:
        self.output.mkdir(parents=True, exist_ok=True)
        self.remove(self.work)
        self.remove(self.results)
        self.picture.unlink(missing_ok=True)
        self.work.mkdir()

    @staticmethod
    def remove(directory: Path) -> None:
        shutil.rmtree(directory, ignore_errors=True)


def run_demo(output: Path, *, port: int, keep: bool, reporter: Reporter) -> Outcome:
    """Run the whole of it.

    Args:
        output: the directory for results and picture; what a demo before left there is replaced.
        port: the broker's; 0 for a free one.
        keep: leave the broker's files and the checkpoint where they are.
        reporter: hears of every step.

    Raises:
        TidelogError: a part of it could not start or go on; says which, and why.
    """
    directories = Directories(output)
    directories.prepare()
    with _termination_as_interrupt(), ExitStack() as stack:
        if not keep:
            stack.callback(directories.remove, directories.work)
        flights = extract(directories.work)
        broker = DemoBroker(directories.work / "broker", port)
        stack.callback(broker.close)
        seconds = broker.start()
        reporter.say(f"broker on {broker.bootstrap}, pid {broker.pid}, up in {seconds:.2f} s")
        spark = local_session("tidelog demo", cores=2, heap="1g", settings={"spark.log.level": "ERROR"})
        stack.callback(spark.stop)
        reporter.say(f"Spark {spark.version} in this process")
        expected = books_of(flights)
        total = sum(totals.flights for totals in expected.values())
        _fill(spark, flights, broker, total, reporter)
        query = DelaysQuery(spark, broker.bootstrap, directories.results, directories.work / "checkpoint")
        stack.callback(query.stop)
        log = _query_through_an_outage(query, broker, total, reporter)
        query.stop()
        books = query.books()
        verdict = compare(expected, books)
        plot(directories.picture, books, log, verdict)
        return Outcome(books, verdict, directories.picture, directories.results, query.restarts)


def _fill(spark: SparkSession, flights: Path, broker: DemoBroker, total: int, reporter: Reporter) -> None:
    from tidelog import Admin, NewTopic

    with Admin(broker.bootstrap, client_id="tidelog-demo") as admin:
        admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)])
        reporter.begin(f"Spark writes {total:,} flights to the topic {TOPIC}", total)

        def look() -> None:
            with suppress(TidelogError):  # the next look will tell
                reporter.advance(_written(admin))

        in_background(lambda: write_flights(spark, flights, broker.bootstrap), meanwhile=look)
        reporter.advance(_written(admin))


def _written(admin: Admin) -> int:
    ends = admin.list_offsets({TopicPartition(TOPIC, PartitionIndex(n)): "latest" for n in range(PARTITIONS)})
    return sum(end.offset for end in ends.values() if end is not None)


def _query_through_an_outage(query: DelaysQuery, broker: DemoBroker, total: int, reporter: Reporter) -> RunLog:
    log = RunLog()
    began = time.monotonic()

    def on_progress(records: int) -> None:
        log.progress.append((time.monotonic() - began, records))
        reporter.advance(records)

    reporter.begin("A streaming query sums up delays by carrier and day", total)
    query.start()
    query.run_until(total // 2, seconds_max=STANDSTILL_SECONDS_MAX, on_progress=on_progress)
    killed_pid = broker.pid
    broker.kill()
    log.killed_at = time.monotonic() - began
    reporter.say(f"kill -9 {killed_pid}: the broker is gone, half way through")
    time.sleep(DOWN_SECONDS)
    seconds = broker.start()
    log.back_at = time.monotonic() - began
    reporter.say(f"broker restarted on the same files in {seconds:.2f} s, pid {broker.pid}")
    query.run_until(total, seconds_max=STANDSTILL_SECONDS_MAX, on_progress=on_progress)
    if query.restarts:
        reporter.say(f"the query failed on the outage and was started from its checkpoint {query.restarts} times")
    else:
        reporter.say("the query lived through the outage")
    return log


@contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    """SIGTERM ends the demo as Ctrl-C does: in order."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
