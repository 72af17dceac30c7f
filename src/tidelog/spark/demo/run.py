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

from tidelog.base.errors import KafkaError, NetworkError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.spark.demo import ledger
from tidelog.spark.demo.flights import Books, Verdict, books_of, compare, extract
from tidelog.spark.demo.killer import Killer
from tidelog.spark.demo.ledger import Ledger, LedgerVerdict
from tidelog.spark.demo.nodes import DemoCluster
from tidelog.spark.demo.pipeline import PARTITIONS, TOPIC, DelaysQuery, write_flights
from tidelog.spark.demo.report import RunLog, plot
from tidelog.spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog import Admin

STANDSTILL_SECONDS_MAX = 60.0
LOOK_PAUSE_SECONDS = 0.05
REPLICATION_FACTOR = 3


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
    ledger: LedgerVerdict
    picture: Path
    results: Path
    query_restarts: int

    @property
    def is_clean(self) -> bool:
        """Whether nothing that was acknowledged was lost, nothing was duplicated, and so nobody had to be told."""
        return self.verdict.is_clean and not (self.ledger.lost or self.ledger.duplicated or self.ledger.told)


class Directories:
    """What the demo makes below its output directory. Only that is ever removed.

    `results` and the picture stay; `work`, with the nodes' files, Spark's checkpoint, their logs and the unpacked
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
        port: the first node's; 0 for free ones.
        keep: leave the nodes' files and the checkpoint where they are.
        listener: hears of every step.

    Raises:
        TidelogError: a part of it could not start or go on; says which, and why.
    """
    from tidelog import Admin

    directories = Directories(output)
    directories.prepare()
    with _termination_as_interrupt(), directories.cleaned_up(keep, listener), ExitStack() as stack:
        flights = extract(directories.work)
        cluster = DemoCluster(directories.work / "cluster", port)
        stack.callback(cluster.close)
        seconds = cluster.start()
        listener.say(f"{cluster.NODES} nodes on {cluster.bootstrap}, up in {seconds:.2f} s")
        listener.say("starting Spark ...")
        with _stderr_into(directories.work / "spark.log"):
            spark = local_session("tidelog demo", cores=2, heap="1g", settings={"spark.log.level": "ERROR"})
        stack.callback(spark.stop)
        listener.say(f"Spark {spark.version} runs in this process")
        expected = books_of(flights)
        total = sum(totals.flights for totals in expected.values())
        admin = stack.enter_context(Admin(cluster.bootstrap, client_id="tidelog-demo"))
        _create_topics(admin)
        scene = Scene(cluster, admin, RunLog(began=time.monotonic()), listener, total)
        numbers = Ledger(cluster.bootstrap)
        stack.callback(numbers.abandon)
        numbers.start()
        scene.fill(spark, flights)
        query = DelaysQuery(spark, cluster.bootstrap, directories.results, directories.work / "checkpoint")
        stack.callback(query.stop)
        scene.read(query)
        query.stop()
        listener.say("reading what is left of the ledger ...")
        balance = numbers.stop()
        books = query.books()
        verdict = compare(expected, books)
        outcome = Outcome(books, verdict, balance, directories.picture, directories.results, query.restarts)
        plot(directories.picture, books, scene.log, verdict, balance)
        directories.is_worth_keeping = not outcome.is_clean
        return outcome


def _create_topics(admin: Admin) -> None:
    from tidelog import NewTopic

    admin.create_topics(
        [
            NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=REPLICATION_FACTOR),
            NewTopic(ledger.TOPIC, num_partitions=ledger.PARTITIONS, replication_factor=REPLICATION_FACTOR),
        ]
    )


@dataclass(frozen=True, slots=True)
class Scene:
    """What every step of the demo works with."""

    cluster: DemoCluster
    admin: Admin
    log: RunLog
    listener: Listener
    total: int

    def fill(self, spark: SparkSession, flights: Path) -> None:
        """Spark writes; a third of the way a leader is killed."""
        killer = Killer(self.cluster, self.log, self.listener)
        self.listener.begin(f"Spark writes {self.total:,} flights to the topic {TOPIC}", self.total)

        def look() -> None:
            with suppress(KafkaError, NetworkError):  # the next look will tell
                written = self._written()
                self.log.written.append((self.log.seconds(), written))
                if written * 3 >= self.total and not killer.has_struck:
                    leader = self.admin.describe_topics([TOPIC])[TOPIC].partitions[0].leader
                    if leader is not None:
                        killer.strike(f"the leader of {TOPIC}-0", leader)
                self.listener.advance(written)

        with _again_and_again(look):
            write_flights(spark, flights, self.cluster.bootstrap)
        self.log.written.append((self.log.seconds(), self._written()))
        self.listener.advance(self.total)
        killer.join()

    def read(self, query: DelaysQuery) -> None:
        """Spark reads; half way the active controller is killed."""
        killer = Killer(self.cluster, self.log, self.listener)

        def on_progress(records: int) -> None:
            self.log.progress.append((self.log.seconds(), records))
            self.listener.advance(records)

        self.listener.begin("A streaming query sums up delays by carrier and day", self.total)
        self.log.query_began_at = self.log.seconds()
        query.start()
        query.run_until(self.total // 2, seconds_max=STANDSTILL_SECONDS_MAX, on_progress=on_progress)
        leader = self.admin.describe_quorum().leader_id
        if leader is not None:
            killer.strike("the active controller", leader)
        query.run_until(self.total, seconds_max=STANDSTILL_SECONDS_MAX, on_progress=on_progress)
        killer.join()
        if query.restarts:
            self.listener.say(
                f"the query failed on an outage and was started from its checkpoint {query.restarts} times"
            )
        else:
            self.listener.say("the query lived through both outages")

    def _written(self) -> int:
        partitions = [TopicPartition(TOPIC, PartitionIndex(index)) for index in range(PARTITIONS)]
        ends = self.admin.list_offsets(dict.fromkeys(partitions, "latest"))
        return sum(end.offset for end in ends.values() if end is not None)


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
