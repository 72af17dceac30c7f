"""`tidelog sim run`: whole runs on a virtual clock, from seeds; and the shortest story of the first that fails."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import isnan
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tidelog.cli.command import FAILED, UsageError, option, output_option
from tidelog.cli.output import Rows, Section, Sections, print_sections
from tidelog.cli.progress import Reporter

if TYPE_CHECKING:
    from tidelog.sim.runs.report import Report, RunTotals
    from tidelog.sim.runs.shrink import Shrunk

CLUSTER_MIN, CLUSTER_MAX = 3, 7
MINUTES_MAX = 24 * 60
SEEDS_AT_ONCE_MAX = 1_000_000


class Seeds(NamedTuple):
    """The seeds to run, both bounds inclusive, and the commit that they are of, where one was named."""

    first: int
    last: int
    commit: str | None


class SeedRange(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions of click only
    """`A..B`, or one seed; `@COMMIT` after it says of which code."""

    name = "A..B"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Seeds:
        if isinstance(value, Seeds):
            return value
        text, at, commit = str(value).partition("@")
        first, dots, last = text.partition("..")
        last = last if dots else first
        if not (first.isascii() and first.isdigit() and last.isascii() and last.isdigit()) or (at and not commit):
            self.fail(
                f"{value!r} is not a range of seeds such as 1..100, nor one seed such as 7 or 7@COMMIT.",
                parameter,
                context,
            )
        seeds = Seeds(int(first), int(last), commit or None)
        if seeds.first > seeds.last:
            self.fail(f"{value!r} ends before it begins; {last}..{first} is meant?", parameter, context)
        if seeds.last - seeds.first >= SEEDS_AT_ONCE_MAX:
            self.fail(f"{value!r} are more than {SEEDS_AT_ONCE_MAX:,} seeds.", parameter, context)
        return seeds


class FaultNumbers(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions of click only
    """`N,N...`, as a failure prints them, from 1; or `none`. Becomes places in the schedule, from 0."""

    name = "N,N..."

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> list[int]:
        if isinstance(value, list):
            return value
        words = [] if value == "none" else str(value).split(",")
        if not all(word.isascii() and word.isdigit() and int(word) for word in words):
            self.fail(f"{value!r} are not numbers of faults such as 4 or 2,7, nor none.", parameter, context)
        return sorted({int(word) - 1 for word in words})


class Minutes(click.FloatRange):
    """A range of numbers; what is not a number is in none."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> float:
        minutes = float(super().convert(value, parameter, context))
        if isnan(minutes):
            self.fail(f"{value} is no number of minutes.", parameter, context)
        return minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSimulations:
    """Run seeds: things go wrong on a virtual clock, and after every step it is checked that nothing is broken.

    One node is a production node with its clients: kills, losses of power, a full, slow and rotten disk, a network
    that resets, delays and parts. A cluster is several of them with their metadata quorum, replicas and clients; all
    voters may lose power at once.
    The first run that breaks an invariant is made as short as it can be, told, and the exit status is 1.

    A seed means the same run at the same commit only. Write it as SEED@COMMIT, and another commit refuses it.
    A failure says how to run it again, with only those of its faults that it takes.

    Examples:

        tidelog sim run --seeds 1..200
        tidelog sim run --seeds 1..200 --cluster 3 --minutes 0.15
        tidelog sim run --seeds 17@1f2e3d4c5b6a --only 2,7
    """

    seeds: Seeds = option(
        "--seeds",
        type=SeedRange(),
        required=True,
        metavar="A..B",
        help="Which, both inclusive; or one, or one @COMMIT.",
    )
    nodes: int = option(
        "--nodes", type=click.IntRange(1), default=1, metavar="1", help="One node; several are a --cluster."
    )
    cluster: int | None = option(
        "--cluster",
        type=click.IntRange(CLUSTER_MIN, CLUSTER_MAX),
        default=None,
        metavar="N",
        help="A cluster of so many nodes, from 3 to 7, instead of one node.",
    )
    minutes: float = option(
        "--minutes",
        type=Minutes(min=0, max=MINUTES_MAX, min_open=True),
        default=1.0,
        metavar="M",
        help="Of virtual time for faults, in each run; healing comes after that.",
    )
    only: list[int] | None = option(
        "--only",
        type=FaultNumbers(),
        default=None,
        metavar="N,N...",
        help="Of the faults of the one seed, only these, or none.",
    )
    jobs: int | None = option(
        "--jobs",
        type=click.IntRange(1, 1_024),
        default=None,
        metavar="N",
        help="Runs at a time, each in a process; by default one for every core.",
    )
    output: str = output_option()

    def run(self) -> int:
        from tidelog.cli.commit import commit_of_code, is_same_commit
        from tidelog.sim.runs.report import RunTotals

        commit = commit_of_code()
        if self.seeds.commit is not None and not is_same_commit(self.seeds.commit, commit):
            raise UsageError(
                f"seed {self.seeds.first} is of commit {self.seeds.commit}; this is {commit}, where it is another run: "
                f"git checkout {self.seeds.commit} and run it there, or leave out @{self.seeds.commit}"
            )
        if self.nodes != 1:
            cluster = self.cluster or min(max(self.nodes, CLUSTER_MIN), CLUSTER_MAX)
            raise UsageError(
                f"--nodes {self.nodes}: --nodes simulates one node, and several are simulated as a cluster: "
                f"give --cluster {cluster} instead"
            )
        count = self.seeds.last - self.seeds.first + 1
        if self.only is not None and count > 1:
            raise UsageError(f"--only names faults of one seed; {self.seeds.first}..{self.seeds.last} are {count}")
        totals, failed = RunTotals(), None
        with Reporter() as reporter:
            reporter.begin(f"seeds {self.seeds.first}..{self.seeds.last} of {self._what}", count)
            for report in self._reports(min(self.jobs or _cores(), count)):
                if self.only and self.only[-1] >= len(report.schedule):
                    raise UsageError(
                        f"seed {report.seed} has {len(report.schedule)} faults; there is no {self.only[-1] + 1}"
                    )
                totals.add(report)
                if report.broken:
                    failed = report
                    break
                reporter.advance(totals.runs)
            shrunk = None if failed is None else self._shrink(failed, reporter)
        print_sections(_summary(totals), self.output, sys.stdout)
        if failed is None or shrunk is None:
            if self.output == "table":
                print(f"\nnothing broke, commit {commit}")
            return 0
        kind = "--nodes 1" if self.cluster is None else f"--cluster {self.cluster}"
        again = f"tidelog sim run --seeds {failed.seed}@{commit} {kind} --minutes {self.minutes:g}"
        again += f" --only {','.join(str(place + 1) for place in shrunk.left) or 'none'}"
        _tell_failure(failed, shrunk, commit, again, self.output)
        return FAILED

    @property
    def _what(self) -> str:
        if self.cluster is not None:
            return f"a cluster of {self.cluster} nodes and its clients"
        return "one node and its clients"

    @property
    def _run(self) -> Callable[..., Report]:
        return partial(_run, nodes=self.cluster or 1, minutes=self.minutes)

    def _reports(self, jobs: int) -> Iterator[Report]:
        """As they come."""
        seeds = range(self.seeds.first, self.seeds.last + 1)
        work = partial(self._run, only=self.only)
        if jobs == 1:
            yield from map(work, seeds)
            return
        from multiprocessing import get_context

        with get_context("spawn").Pool(jobs) as pool:  # which ends its processes, whatever they still do
            yield from pool.imap_unordered(work, seeds)

    def _shrink(self, failed: Report, reporter: Reporter) -> Shrunk:
        from tidelog.sim.runs.shrink import shrink

        def tell(shrunk: Shrunk) -> None:
            if shrunk.attempts % 10 == 0:
                reporter.say(f"{shrunk.attempts} runs, {len(shrunk.left)} faults left")

        reporter.say(f"seed {failed.seed} broke {', '.join(sorted(failed.broken_names))}; making it shorter")
        return shrink(
            failed,
            lambda only: self._run(failed.seed, only=only),
            left=self.only,
            on_progress=tell,
        )


def _run(seed: int, *, nodes: int, minutes: float, only: list[int] | None) -> Report:
    """One run, silently: what nodes log under faults is not what is wrong."""
    import logging

    from tidelog.sim.runs.run import run_seed

    logger = logging.getLogger("tidelog")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        return run_seed(seed, nodes=nodes, minutes=minutes, only=only)
    finally:
        logger.setLevel(level)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _summary(totals: RunTotals) -> Sections:
    kinds = (
        ("runs", [_totals_row(totals)]),
        ("faults injected", _counted("fault", totals.faults)),
        ("checks made", _counted("invariant", totals.checks)),
    )
    return Sections(Section(title, {"kind": title}, Rows(rows)) for title, rows in kinds)


def _totals_row(totals: RunTotals) -> dict[str, object]:
    return {
        "runs": totals.runs,
        "virtual_hours": round(totals.virtual_seconds / 3_600, 3),
        "events": totals.events,
        "faults": sum(totals.faults.values()),
        "checks": sum(totals.checks.values()),
    }


def _counted(name: str, counts: dict[str, int]) -> list[dict[str, object]]:
    return [{name: kind, "count": counts[kind]} for kind in sorted(counts)]


def _tell_failure(failed: Report, shrunk: Shrunk, commit: str, again: str, output: str) -> None:
    report = shrunk.report
    if output == "json":
        facts = {
            "kind": "failure",
            "seed": failed.seed,
            "commit": commit,
            "again": again,
            "broken": list(report.broken),
            "schedule": shrunk.schedule,
            "attempts": shrunk.attempts,
        }
        print(json.dumps(facts, ensure_ascii=False), flush=True)
        return
    drawn = len(failed.schedule)
    left = [f"{place + 1}. {failed.schedule[place]}" for place in shrunk.left]
    lines = [
        "",
        f"BROKEN by seed {failed.seed}, commit {commit}",
        *(f"  {text}" for text in report.broken),
        f"The {len(left)} of {drawn} faults that it takes (found in {shrunk.attempts} runs):",
        *(f"  {text}" for text in left or ["nothing: it breaks by itself"]),
        f"Run it again: {again}",
    ]
    print("\n".join(lines), flush=True)
