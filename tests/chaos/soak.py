"""One cluster for hours: `python tests/chaos/soak.py --hours 24`. See README.md beside this file.

Three nodes live under a steady load, whose old segments are deleted or compacted, while one round of chaos after the
other is played on them, and an onlooker scrapes their metrics and measures what they hold. Ends with 1 if a round found
something wrong or if something grows, with 130 if it was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos.fault import Cost, Fault
from chaos.growth import WARM_UP_SECONDS, Growth
from chaos.leftovers import Home, clear_leftovers
from chaos.network import Network
from chaos.nodes import ChaosCluster
from chaos.play import Plan, Round
from chaos.report import Row, add_row
from chaos.run import CLIENTS_LOG, ROOT, playable_faults
from chaos.sampler import Sampler, open_metrics
from chaos.sandbox import STOPPED, StoppedError, can_seal, raise_when_stopped, run_apart
from chaos.soak_plots import SAMPLES, plot_samples
from chaos.soak_samples import Samples, judge_samples, unjudged_figures
from chaos.steady_load import SETTINGS, SteadyLoad
from support.fixtures.waiting import wait_until
from tidelog.base.errors import MissingExtraError, TidelogError
from tidelog.client.admin.admin import Admin

OUTPUT = ROOT / "soak-output"
KIND = "soak"
NODES = 3
HOUR = 3_600.0
CYCLES = 4
"""A soak has so many, but none is shorter than an hour, if the soak is not."""
RESTARTING_SHARE = 1 / 6
"""Of a cycle, at its start: faults that end processes are played then, and no other time, so that others live long."""
WARM_UP_SHARE = 0.25
"""Of a cycle: what is not judged of each process, at most, and never more than WARM_UP_SECONDS."""
STINT_SECONDS = 90.0
PAUSE_SECONDS = 0.05
INTERVALS = 1_500
INTERVAL_SECONDS = (2.0, 60.0)
CONFIG = {
    "log.retention.check.interval.ms": "5000",
    "log.segment.delete.delay.ms": "5000",
    "metadata.log.max.record.bytes.between.snapshots": "262144",
    "offsets.retention.check.interval.ms": "30000",
    "transactional.id.expiration.ms": "600000",
    "producer.id.expiration.ms": "600000",
    "metrics.topics.max": "20",
}
"""What is kept for days by default is kept for minutes: a soak is to see it go. A flood of topics has few series."""


@dataclass(frozen=True, slots=True)
class Clock:
    """When what is played, in a soak of so many seconds."""

    seconds: float

    @property
    def cycle_seconds(self) -> float:
        """From restarts to the next restarts."""
        return min(self.seconds, max(HOUR, self.seconds / CYCLES))

    @property
    def warm_up_seconds(self) -> float:
        """Of each process, which the judge passes over."""
        return min(WARM_UP_SECONDS, WARM_UP_SHARE * self.cycle_seconds)

    @property
    def interval_seconds(self) -> float:
        """From one sample to the next."""
        least, most = INTERVAL_SECONDS
        return min(most, max(least, self.seconds / INTERVALS))

    def is_restarting(self, at: float) -> bool:
        """Whether processes are ended then."""
        return at % self.cycle_seconds < RESTARTING_SHARE * self.cycle_seconds


class Soak:
    """See the module.

    Args:
        into: where samples, rows and pictures go.
        home: for the files of the nodes.
    """

    def __init__(
        self, clock: Clock, seed: int, into: Path, home: Path, faults: Sequence[Fault], *, is_sealed: bool
    ) -> None:
        self._clock = clock
        self._seed = seed
        self._into = into
        self._home = home
        self._faults = faults
        self._is_sealed = is_sealed

    def run(self) -> int:
        """Returns the exit status, when all that it started has ended. Raises StoppedError."""
        samples = Samples(self._into / SAMPLES)
        wrong: list[str] = []
        with ExitStack() as ends:
            network = ends.enter_context(Network(self._seed, range(1, NODES + 1))) if self._is_sealed else None
            cluster = ChaosCluster(self._home / "cluster", NODES, network, CONFIG)
            ends.callback(cluster.close)
            open_metrics(cluster)
            cluster.start()
            load = SteadyLoad(cluster)
            ends.callback(load.close)
            load.start()
            sampler = Sampler(cluster, load, samples, self._clock.interval_seconds)
            ends.callback(sampler.close)
            sampler.start()
            stint = self._play_stints(cluster, network)
            load.close()  # while there is somebody to answer it
            sampler.check()
            print(f"{sampler.scrapes} scrapes, {sampler.unanswered} without an answer; {load.refused} records refused")
            if not stint.row.error:
                self._play(stint, stint.check_stopped)
            wrong += [stint.row.summary()] if stint.row.error else []
        growths = judge_samples(samples, warm_up_seconds=self._clock.warm_up_seconds)
        wrong += map(str, growths)
        wrong += [f"the steady load ended before the soak: {error!r}" for error in load.failures]
        unjudged = unjudged_figures(samples, warm_up_seconds=self._clock.warm_up_seconds)
        wrong += [f"{name} has too few samples to be judged" for name in unjudged if not stint.row.error]
        self._write(samples, growths)
        for line in wrong:
            print(f"WRONG: {line}")
        print(f"{len(wrong)} things wrong" if wrong else "nothing is lost, and nothing grows", flush=True)
        return int(bool(wrong))

    def _play_stints(self, cluster: ChaosCluster, network: Network | None) -> Round:
        """Until the time is up, or something is wrong. Returns the last one."""
        began, number, stint = time.monotonic(), 0, None
        while (left := self._clock.seconds - (time.monotonic() - began)) > 0:
            if stint is not None:
                clear_topics(cluster)
            is_restarting = self._clock.is_restarting(self._clock.seconds - left)
            faults = [one for one in self._faults if is_restarting or not one.is_restart]
            plan = Plan(
                kind=KIND,
                faults=faults,
                seed=self._seed + number,
                seconds=min(STINT_SECONDS, left),
                pause_seconds=PAUSE_SECONDS,
            )
            row = Row(kind=KIND, seed=plan.seed, nodes=NODES, is_sealed=self._is_sealed)
            home = self._home / f"stint-{plan.seed}"
            home.mkdir()
            print(f"stint {number + 1}, {'with' if is_restarting else 'without'} restarts", flush=True)
            stint, number = Round(plan, row, cluster, network, random.Random(plan.seed), home), number + 1
            self._play(stint, stint.play_load)
            if row.error:
                break
            print(row.summary(), flush=True)
            shutil.rmtree(home)
        assert stint is not None
        return stint

    def _play(self, stint: Round, part: Callable[[], None]) -> None:
        try:
            part()
        except StoppedError:
            raise
        except BaseException:
            stint.row.error = traceback.format_exc()
            print(stint.row.error, stint.cluster.logs(), sep="\n", flush=True)
        if part == stint.play_load or stint.row.error:
            add_row(self._into / "report.json", stint.row)

    def _write(self, samples: Samples, growths: Sequence[Growth]) -> None:
        verdict = {"seconds": self._clock.seconds, "warm_up_seconds": self._clock.warm_up_seconds}
        (self._into / "verdict.json").write_text(
            json.dumps({**verdict, "growths": [asdict(one) for one in growths]}, indent=1) + "\n"
        )
        try:
            plot_samples(samples, self._into)
        except MissingExtraError as error:
            print(f"no pictures: {error}")


def clear_topics(cluster: ChaosCluster) -> None:
    """Delete what a stint has left: its topics, and its groups as soon as their members have gone."""

    def left() -> list[str]:
        with Admin(cluster.bootstrap) as admin:
            names = [one.name for one in admin.list_topics()]
            return [name for name in names if not name.startswith("__") and name not in SETTINGS]

    def is_clear() -> bool:
        with suppress(TidelogError), Admin(cluster.bootstrap) as admin:
            if names := left():
                admin.delete_topics(names)
        with suppress(TidelogError):
            return not left()
        return False

    wait_until(is_clear, lambda: f"the topics of a stint are deleted\n{cluster.logs()}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    options = _parser().parse_args(arguments)
    raise_when_stopped()
    for line in clear_leftovers(options.home):
        print(f"cleared up after a run that was killed: {line}")
    is_sealed = not options.ports and can_seal()
    playable = playable_faults(is_sealed=is_sealed)
    faults = [
        one
        for one in playable
        if one.is_mixed and not one.is_secured and one.nodes <= NODES and one.cost is Cost.NOTHING
    ]
    clock = Clock(options.hours * HOUR)
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    into = options.into or OUTPUT / time.strftime("%Y-%m-%d-%H%M%S")
    into.mkdir(parents=True, exist_ok=True)
    print(f"{options.hours:g} hours, seed {seed}, into {into}", flush=True)
    home = Home(options.home)
    try:
        soak = Soak(clock, seed, into, home.path, faults, is_sealed=is_sealed)
        status = run_apart(partial(_run, soak, home.path), is_sealed=is_sealed)
        if status not in (0, STOPPED):
            keep(home.path, into)
    finally:
        home.clear()
    print(f"samples, verdict and pictures are in {into}")
    return status


def _run(soak: Soak, home: Path) -> int:
    log = os.open(home / CLIENTS_LOG, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(log, sys.stderr.fileno())
    try:
        return soak.run()
    except StoppedError as stopped:
        print(f"stopped by {stopped}", flush=True)
        return STOPPED
    except BaseException:
        print(traceback.format_exc(), flush=True)
        return 1


def keep(home: Path, into: Path) -> None:
    """The files of the nodes, and what clients said."""
    for name in ("cluster", CLIENTS_LOG):
        source = home / name
        if source.is_dir():
            shutil.copytree(source, into / name, symlinks=True, dirs_exist_ok=True)
        elif source.exists():
            shutil.copy(source, into / name)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hours", type=float, default=1.0, help="how long; a fraction will do")
    parser.add_argument("--seed", type=int, help="of the first stint; the next one has the next")
    parser.add_argument("--into", type=Path, help="where samples and pictures go; soak-output/ with the date")
    parser.add_argument("--home", type=Path, help="where to put the files of nodes; the system's temporary directory")
    parser.add_argument("--ports", action="store_true", help="no namespaces, though there could be")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except StoppedError:
        sys.exit(STOPPED)
