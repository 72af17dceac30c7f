"""One round: a new cluster under load, faults one after the other, and what is left when all is healed."""

from __future__ import annotations

import random
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from chaos.account import check_account, read_account
from chaos.churn import Churn
from chaos.copies import Copies
from chaos.dying_group import DyingGroup
from chaos.fault import Cost, Fault, Hurt, Stage
from chaos.network import Network
from chaos.nodes import ChaosCluster
from chaos.report import Row, Struck
from chaos.sandbox import StoppedError
from chaos.secured import Secured
from chaos.share_group import ShareGroup
from support.clients.kafka_peer import missing_peers
from support.load.histories import Fault as Finding
from support.load.histories import History, Told
from support.load.verifying import VerifyingLoad
from support.load.verifying_clients import PRODUCERS, READERS
from support.load.verifying_groups import VerifyingGroup
from support.load.ways import Way
from support.nodes.cluster_files import check_replicas_agree
from tidelog.client.options import CompressionType

GROUP = "verifiers"
PARTITIONS = 3
REPLICAS = 3
NODES = (3, 3, 3, 5, 4)
"""How many there are in a round: drawn from these."""
SHAPES: tuple[Mapping[str, str], ...] = ({}, {"segment_bytes": "65536"})
"""Settings of the topic: drawn from these. Small segments are rolled, and recovered, all the time."""
CODECS: tuple[CompressionType, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
"""Producers of a round compress in one of these."""
SHARED = 0.3  # of the rounds have a share group, where there is a JVM for its members
TWO_AT_A_TIME = 0.3  # the share of mixed faults that come with a second one
TOLD = frozenset({Finding.VANISHED, Finding.SKIPPED, Finding.REPEATED, Finding.EPOCHS})
"""What a reader should have been told of, and was not."""
TELLING_PRODUCERS = ("ours", "ours-plain", "librdkafka-plain")
TELLING_READERS = ("ours",)
"""Clients that go on where records were lost. librdkafka's idempotent producer ends there, its consumer is not told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is played.

    Attributes:
        kind: the row of the table that it counts for.
        faults: are drawn from these.
        seconds: how long faults are begun.
        is_bare: without groups and copies beside the load.
        is_secured: the load and the nodes speak TLS and log in, and there are rules.
        pause_seconds: of each producer after a few records; without one they write as fast as they are answered.
    """

    kind: str
    faults: Sequence[Fault]
    seed: int
    seconds: float
    is_bare: bool = False
    is_secured: bool = False
    pause_seconds: float = 0.0

    @property
    def cost(self) -> Cost:
        return self.faults[0].cost

    @property
    def topic(self) -> str:
        return f"chaos-{self.seed}"


@dataclass(frozen=True, slots=True)
class _Beside:
    """What runs beside the load of a round that may lose nothing."""

    group: VerifyingGroup
    dying: DyingGroup
    copies: Copies
    sharing: ShareGroup | None

    @staticmethod
    def of(cluster: ChaosCluster, dice: random.Random, topic: str, home: Path) -> _Beside:
        is_shared = dice.random() < SHARED
        return _Beside(
            VerifyingGroup(cluster.bootstrap, GROUP, topic, 2),
            DyingGroup(cluster, dice, topic, PARTITIONS, home),
            Copies(cluster, dice, home),
            ShareGroup(cluster, dice, topic, PARTITIONS, home) if is_shared and missing_peers() is None else None,
        )

    def start(self) -> None:
        self.group.start()
        self.group.until_committed(1)
        self.dying.start()
        self.copies.start()
        if self.sharing is not None:
            self.sharing.start()

    def close(self) -> None:
        self.group.ended.set()
        self.dying.close()
        self.copies.close()
        if self.sharing is not None:
            self.sharing.close()


@dataclass(slots=True)
class Round:
    """One load on a cluster, and faults under it.

    Attributes:
        row: what came of it.
        home: where those that run beside the load keep what they say.
    """

    plan: Plan
    row: Row
    cluster: ChaosCluster
    network: Network | None
    dice: random.Random
    home: Path

    def play(self) -> None:
        """All of a cluster's life. Raises AssertionError, or what a client failed with, if anything is wrong."""
        self.cluster.start()
        self.play_load()
        self.check_stopped()

    def play_load(self) -> None:
        """On a cluster that runs, and goes on afterwards. Raises as `play`."""
        plan, cluster, is_telling = self.plan, self.cluster, self.plan.cost is Cost.TOLD_LOSSES
        way = Way(cluster.bootstrap) if cluster.secured is None else cluster.secured.begin()
        settings = {**self.dice.choice(SHAPES), **plan.faults[0].topic}
        cluster.create_topic(plan.topic, PARTITIONS, replication_factor=REPLICAS, **settings)
        producers, readers = (TELLING_PRODUCERS, TELLING_READERS) if is_telling else (tuple(PRODUCERS), tuple(READERS))
        load = VerifyingLoad(
            way,
            plan.topic,
            PARTITIONS,
            producers=producers,
            readers=readers,
            codec=self.dice.choice(CODECS),
            pause_seconds=plan.pause_seconds,
        )
        beside = None if is_telling or plan.is_bare else _Beside.of(cluster, self.dice, plan.topic, self.home)
        try:
            self._play_with(load, beside)
        except StoppedError:
            raise
        except BaseException:
            if not self.row.acknowledged:
                self._count(load)
            raise
        finally:  # whoever still waits for something may be waited for by nobody
            load.producing_ended.set()
            load.reading_ended.set()
            self.row.pauses = {name: round(pause, 1) for name, pause in load.pauses.items()}
            if beside is not None:
                self.row.stalls = len(beside.group.stalls)
                beside.close()

    def _play_with(self, load: VerifyingLoad, beside: _Beside | None) -> None:
        plan, cluster = self.plan, self.cluster
        load.start()
        load.until_acknowledged(1)
        if beside is not None:
            beside.start()
        stage = Stage(cluster, self.network, load, self.dice, plan.topic, GROUP, PARTITIONS)
        churn, began = Churn(cluster, REPLICAS), time.monotonic()
        while time.monotonic() < began + plan.seconds:
            stage.go_on()
            churn.delete()
            self._strike(stage, time.monotonic() - began)
            churn.make()
            stage.until_in_sync()
        stage.go_on()
        self.row.seconds = time.monotonic() - began
        history = load.finish()
        self._note(history)
        judge(history, plan.cost)
        if beside is not None:
            beside.group.check(history, PARTITIONS)
            self.row.commits = beside.group.commits
            beside.dying.check(load.ends or {})
            self.row.members_killed = beside.dying.killed
            if beside.sharing is not None:
                beside.sharing.check(load.ends or {})
                self.row.members_killed += beside.sharing.killed
            self.row.copied = beside.copies.check()
        stage.until_in_sync()
        check_account(read_account(cluster, plan.topic), history)
        churn.check()

    def check_stopped(self) -> None:
        """Stop the nodes, and look at what they have left. Raises AssertionError."""
        self.cluster.stop()
        check_replicas_agree(self.cluster, self.plan.topic, PARTITIONS, count=REPLICAS)
        self.cluster.check_logs(*(said for fault in self.plan.faults for said in fault.says))

    def _strike(self, stage: Stage, at: float) -> None:
        """One fault, or two that hurt different things; the second one ends first."""
        first = self.dice.choice(self.plan.faults)
        hurting: list[tuple[Fault, Iterator[str]]] = []
        chosen = [first]
        others = [one for one in self.plan.faults if one.hurts is not first.hurts and not one.is_alone]
        if others and not first.is_alone and self.dice.random() < TWO_AT_A_TIME:
            # The network is hurt last: who is to be hurt is found out over it.
            chosen = sorted([first, self.dice.choice(others)], key=lambda one: one.hurts is Hurt.NETWORK)
        try:
            for fault in chosen:
                strike = fault.strike(stage)
                hurting.append((fault, strike))
                self._begin(fault, next(strike), at)
                self._last(stage, fault)
            while hurting:
                fault, strike = hurting[-1]
                for what in strike:
                    print(f"    then {what}", flush=True)
                    self._last(stage, fault)
                hurting.pop()
        finally:
            for _, strike in reversed(hurting):
                strike.close()  # type: ignore[attr-defined]

    def _begin(self, fault: Fault, what: str, at: float) -> None:
        print(f"  {at:6.1f} s: {fault.kind}: {what}", flush=True)
        self.row.faults.append(Struck(kind=fault.kind, what=what, at=round(at, 1)))

    def _last(self, stage: Stage, fault: Fault) -> None:
        """Let it last; a client that fails ends the round."""
        load, seconds = stage.load, self.dice.uniform(*fault.seconds)
        with load.progress:
            load.progress.wait_for(lambda: bool(load.failures), seconds)
        if load.failures:
            raise load.failures[0]

    def _count(self, load: VerifyingLoad) -> None:
        """What was lost, as far as it can be said after something else went wrong."""
        load.failures.clear()
        with suppress(Exception):  # that is not the news
            load.finish()
        self._note(load.history)

    def _note(self, history: History) -> None:
        row = self.row
        row.acknowledged = len(history.acknowledged)
        row.given_up = len(history.failed)
        row.told_producers = len(history.reported)
        row.told_readers = _told_readers(history)
        findings = history.findings()
        row.findings = dict(Counter(finding.fault.name for finding in findings))
        row.lost = row.findings.get(Finding.LOST.name, 0)
        row.unreported = sum(finding.fault in TOLD for finding in findings)


def judge(history: History, cost: Cost) -> None:
    """Raises AssertionError over what a fault of this cost may not have done."""
    history.check(*cost.excused)
    told_readers = _told_readers(history)
    if cost is Cost.NOTHING:
        assert not history.reported, f"told of losses that are none: {history.reported[:3]}"
        assert not told_readers, f"{told_readers} times a reader was told of a loss that is none"
        return
    lost = sum(finding.fault is Finding.LOST for finding in history.findings())
    assert not lost or history.reported or told_readers, f"{lost} records lost, and nobody was told"


def _told_readers(history: History) -> int:
    return sum(isinstance(one, Told) for stream in history.given.values() for one in stream)


def play(plan: Plan, home: Path, *, is_sealed: bool) -> Row:
    """Play it, below `home`. Returns what came of it, also where something is wrong.

    Raises:
        StoppedError: somebody wants the run to end now; all that it started has ended.
    """
    dice = random.Random(plan.seed)
    size = max(dice.choice(NODES), *(fault.nodes for fault in plan.faults))
    row = Row(kind=plan.kind, seed=plan.seed, nodes=size, is_sealed=is_sealed)
    config = {key: value for fault in plan.faults for key, value in fault.config.items()}
    with ExitStack() as ends:
        network = ends.enter_context(Network(plan.seed, range(1, size + 1))) if is_sealed else None
        cluster = ChaosCluster(home / "cluster", size, network, config)
        ends.callback(cluster.close)
        try:
            for fault in plan.faults:
                if fault.prepare is not None:
                    fault.prepare(cluster)
            if plan.is_secured:
                cluster.secured = Secured(cluster, dice, plan.topic)
                print(f"  {cluster.secured}", flush=True)
            Round(plan, row, cluster, network, dice, cluster.home).play()
        except StoppedError:
            raise
        except BaseException:
            row.error = traceback.format_exc()
            print(row.error, cluster.logs(), sep="\n", flush=True)
        if network is not None:
            row.packets = dict(network.ask())
    return row
