"""The demo from its first step to its last, leaving nothing running however it ends."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.demo import ledger
from tidelog.demo.balance import Balance, History, Place, balance, lost_between
from tidelog.demo.directories import Directories
from tidelog.demo.flights import Books, Verdict, books_of, compare, extract
from tidelog.demo.ledger import Ledger
from tidelog.demo.ledger_copy import LedgerCopy
from tidelog.demo.lineages import plot_lineages
from tidelog.demo.nodes import DemoCluster
from tidelog.demo.outages import Outages, ProgressListener
from tidelog.demo.pipeline import CONFIGS, PARTITIONS, TOPIC, DelaysQuery
from tidelog.demo.report import RunLog, audit_line, ledger_line, plot
from tidelog.demo.surroundings import clients_in_silence, stderr_into, termination_as_interrupt
from tidelog.demo.unclean_election import Stages, UncleanElectionAct
from tidelog.spark.session import local_session
from tidelog.spark.table_audit import AuditReport

if TYPE_CHECKING:
    from tidelog import Admin

REPLICATION_FACTOR = 3


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """What came of it.

    Attributes:
        books: of the flights.
        verdict: on them.
        outages: the books of the ledger after the first act, in which nobody may lose anything.
        ledger: its books in the end.
        longest_pause_ms: of an acknowledgement, in the first act.
        stages: what the replicas of one partition held, in the second.
        audit: of the table that Spark copied the ledger into.
        query_restarts: of the query that sums up the flights.
    """

    books: Books
    verdict: Verdict
    outages: Balance
    ledger: Balance
    longest_pause_ms: int
    stages: Stages
    audit: AuditReport
    directories: Directories
    query_restarts: int

    @property
    def is_clean(self) -> bool:
        """Whether the outages lost nothing, and what the unclean election lost was told to everybody who had it."""
        return (
            self.verdict.is_clean
            and self.outages.is_clean
            and not self.outages.truncated
            and self.ledger.is_clean
            and self.audit.is_clean
            and self.ledger.truncated > 0  # else the story did not happen
        )


def run_demo(output: Path, *, port: int, keep: bool, listener: ProgressListener) -> DemoOutcome:
    """Run the whole of it.

    Args:
        output: the directory for results and pictures; what a demo before left there is replaced.
        port: the first node's; 0 for free ones.
        keep: leave the nodes' files and the checkpoints where they are.
        listener: hears of every step.

    Raises:
        TidelogError: a part of it could not start or go on; says which, and why.
    """
    from tidelog import Admin

    directories = Directories(output)
    directories.prepare()
    with termination_as_interrupt(), directories.cleaned_up(keep, listener.say), ExitStack() as stack:
        flights = extract(directories.work)
        cluster = DemoCluster(directories.work / "cluster", port)
        stack.callback(cluster.close)
        seconds = cluster.start()
        listener.say(f"{cluster.NODES} nodes on {cluster.bootstrap}, up in {seconds:.2f} s")
        listener.say("starting Spark ...")
        with stderr_into(directories.work / "spark.log"):
            spark = local_session("tidelog demo", cores=2, heap="1g", settings={"spark.log.level": "OFF"})
        stack.callback(spark.stop)
        listener.say(f"Spark {spark.version} runs in this process")
        expected = books_of(flights)
        total = sum(totals.flights for totals in expected.values())
        admin = stack.enter_context(Admin(cluster.bootstrap, client_id="tidelog-demo"))
        _create_topics(admin)
        numbers = Ledger(cluster.bootstrap)
        stack.callback(numbers.abandon)
        numbers.start()

        log = RunLog(began=time.monotonic())
        outages = Outages(cluster, admin, log, listener, total)
        outages.fill(spark, flights)
        query = DelaysQuery(spark, cluster.bootstrap, directories.results, directories.work / "checkpoint")
        stack.callback(query.stop)
        outages.read(query)
        query.stop()
        books = query.books()
        verdict = compare(expected, books)

        stack.enter_context(clients_in_silence())
        copy = LedgerCopy(spark, cluster.bootstrap, directories.work / "ledger-checkpoint", directories.table)
        act = UncleanElectionAct(cluster, admin, numbers, copy, listener)
        history, pause_ms = numbers.hold(), numbers.longest_pause_ms
        after_outages = balance(history, act.look_at_all(), {}, {})
        listener.say(ledger_line(after_outages, pause_ms))
        stages = act.play()
        listener.say("reading what is left of the ledger ...")
        history = numbers.stop()
        act.read_again()
        history = replace(history, account=tuple(act.read_account()))
        report = copy.audit()
        listener.say(audit_line(report))
        outcome = DemoOutcome(
            books=books,
            verdict=verdict,
            outages=after_outages,
            ledger=_balance_in_the_end(act, copy, history),
            longest_pause_ms=pause_ms,
            stages=stages,
            audit=report,
            directories=directories,
            query_restarts=query.restarts,
        )
        plot(directories.picture, books, log, verdict, after_outages)
        plot_lineages(directories.lineages, stages, outcome.ledger, copy.as_log(stages.cast.partition))
        directories.is_worth_keeping = not outcome.is_clean
        return outcome


def _balance_in_the_end(act: UncleanElectionAct, copy: LedgerCopy, history: History) -> Balance:
    replicas = act.look_at_the_end()
    partition = act.stages.cast.partition
    lost: dict[Place, int] = {}
    for logs in act.stages.replicas.values():
        lost |= lost_between({partition: list(logs.values())}, replicas)
    parted_at = act.stages.parts_at()
    history = replace(history, told_query=tuple(copy.told), kept_by_query=copy.rows())
    return balance(history, replicas, lost, {} if parted_at is None else {partition: parted_at})


def _create_topics(admin: Admin) -> None:
    from tidelog import NewTopic

    admin.create_topics(
        [
            NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=REPLICATION_FACTOR, configs=CONFIGS),
            NewTopic(ledger.TOPIC, replica_assignments=ledger.REPLICAS, configs=ledger.CONFIGS),
        ]
    )
