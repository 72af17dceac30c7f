"""Change a package in one place at a time, and see if a test fails: `run_mutants.py [TARGET] [--sample N] [FILE ...]`.

The package is `replica/`, unless another of `TARGETS` is named. Each mutant meets the tests of that package in a
process of its own, the fastest first. Ends with 1 when fewer than 95 % are caught, or one that changes a named rule is
not. With `--sample` only so many of them are tried, drawn by `--seed`: an estimate, where all would take hours. The
`known` file says which functions hold a rule, and which mutants change nothing; those are tried all the same, since one
that is caught was not without effect.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from mutants.known import Known, StaleError, load_known
from mutants.mutations import Mutant, mutants_of
from mutants.trial import LOADS_NOT, TIME_LIMIT, Bench, Running, with_collected

ROOT = Path(__file__).parents[2]
KINDS = {"tests/unit": "a unit test", "tests/scenarios": "a story"}
"""What tests are called in the table."""
CAUGHT_PERCENT_MIN = 95
JOBS = os.cpu_count() or 1


class Target(NamedTuple):
    """What is changed.

    Attributes:
        package: below `tidelog`.
        tests: that are run: folders, or patterns of files.
        known: the file beside this one that says what is known of its mutants.
    """

    package: str
    tests: tuple[str, ...]
    known: str

    @property
    def sources(self) -> Path:
        return ROOT / "src" / "tidelog" / Path(*self.package.split("."))

    @property
    def paths(self) -> list[str]:
        """Of the tests."""
        return [str(path) for pattern in self.tests for path in sorted(ROOT.glob(pattern))]


TARGETS = {
    "replica": Target("replica", ("tests/unit/replica", "tests/scenarios"), "known.toml"),
    "transactions": Target(
        "coordinator.transactions", ("tests/unit/coordinator/test_transaction_*.py",), "known_transactions.toml"
    ),
    "quorum": Target("quorum", ("tests/unit/quorum",), "known_quorum.toml"),
    "controller": Target("controller", ("tests/unit/controller",), "known_controller.toml"),
    "groups": Target(
        "coordinator.groups",
        (
            "tests/unit/coordinator/test_group_*.py",
            "tests/unit/coordinator/test_newer_group_records.py",
            "tests/unit/coordinator/test_mixed_group_model.py",
            "tests/unit/coordinator/test_consumer_group_conversion.py",
            "tests/unit/coordinator/test_consumer_group_members.py",
            "tests/unit/coordinator/test_consumer_group_offsets.py",
            "tests/unit/coordinator/test_share_group_members.py",
            "tests/unit/coordinator/test_share_group_states.py",
        ),
        "known_groups.toml",
    ),
    "consumer-groups": Target(
        "coordinator.groups.consumer",
        (
            "tests/unit/coordinator/test_consumer_*.py",
            "tests/unit/coordinator/test_mixed_group_model.py",
        ),
        "known_consumer_groups.toml",
    ),
    "share-groups": Target(
        "coordinator.groups.share",
        ("tests/unit/coordinator/test_share_group_*.py", "tests/unit/coordinator/test_share_assignor.py"),
        "known_share_groups.toml",
    ),
    "share-states": Target(
        "coordinator.share",
        (
            "tests/unit/coordinator/test_share_batches.py",
            "tests/unit/coordinator/test_share_coordinator.py",
            "tests/unit/coordinator/test_share_model.py",
        ),
        "known_share_states.toml",
    ),
    "share": Target("share", ("tests/unit/share",), "known_share.toml"),
}


class Outcome(NamedTuple):
    """What came of one mutant: `caught_by` is a test, or what else stopped it; empty if it survived."""

    mutant: Mutant
    caught_by: str

    @property
    def kind(self) -> str:
        """What caught it, for the table."""
        if not self.caught_by:
            return "nothing"
        return next((kind for path, kind in KINDS.items() if self.caught_by.startswith(path)), "another way")


def main(arguments: Sequence[str]) -> int:
    """Try every mutant of these files; of all, when none are named. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="run_mutants.py")
    parser.add_argument("--sample", type=int, metavar="N", help="try so many of the mutants (default: all)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the sample (default: another)")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"a target ({', '.join(TARGETS)}), then its files")
    options = parser.parse_args(arguments)
    files = options.names
    target = TARGETS["replica"]
    if files and files[0] in TARGETS:
        target, files = TARGETS[files[0]], files[1:]
    sources = {path.name: path.read_text() for path in sorted(target.sources.glob("*.py"))}
    strange = [name for name in files if name not in sources]
    if strange:
        print(f"error: {target.sources} has no {', '.join(strange)}; it has {', '.join(sources)}", file=sys.stderr)
        return 1
    os.chdir(ROOT)
    mutants = [mutant for name, source in sources.items() for mutant in mutants_of(name, source)]
    try:
        known = load_known(Path(__file__).with_name(target.known), ROOT / "docs" / "kips.md", mutants)
    except StaleError as stale:
        print(f"error: {stale}", file=sys.stderr)
        return 1
    tried = [mutant for mutant in mutants if not files or mutant.file in files]
    if options.sample is not None and options.sample < len(tried):
        print(f"{options.sample} of {len(tried)} mutants, drawn by seed {options.seed}")
        drawn = set(random.Random(options.seed).sample(range(len(tried)), options.sample))
        tried = [mutant for index, mutant in enumerate(tried) if index in drawn]
    outcomes: list[Outcome] = []
    began = time.monotonic()
    package = f"tidelog.{target.package}"
    with_collected(target.paths, package, lambda bench: outcomes.extend(_try(tried, bench)))
    if not outcomes:
        return 1
    print(f"\n{len(outcomes)} mutants tried in {time.monotonic() - began:.0f} s")
    return _report(target, sources, known, outcomes)


def _try(mutants: Sequence[Mutant], bench: Bench) -> Iterator[Outcome]:
    print("first the tests on the code as it is", flush=True)
    baseline = bench.measure()
    if baseline.failed:
        print(f"error: without any mutant this fails: {baseline.failed}", file=sys.stderr)
        return
    once = baseline.cpu_seconds
    print(f"{baseline.test_count} tests, {once:.1f} s; {len(mutants)} mutants, {JOBS} at a time", flush=True)
    cpu_seconds = int(2 * once) + 5
    waiting = list(reversed(mutants))
    running: dict[int, tuple[Mutant, Running]] = {}
    began = shown = time.monotonic()
    done = survived = 0
    while waiting or running:
        while waiting and len(running) < JOBS:
            mutant = waiting.pop()
            trial = bench.attempt(mutant, cpu_seconds=cpu_seconds)
            running[trial.pid] = mutant, trial
        pid, _ = os.wait()
        mutant, trial = running.pop(pid)
        told = trial.take_result()
        outcome = Outcome(mutant, TIME_LIMIT if told is None else told)
        done += 1
        if not outcome.caught_by:
            survived += 1
            print(f"  {mutant.file}:{mutant.line}: nothing catches {mutant.before!r} -> {mutant.after!r}", flush=True)
        if time.monotonic() - shown >= 5 or done == len(mutants):
            shown = time.monotonic()
            print(
                f"  {done:4} of {len(mutants)}, {survived} not caught, {done / (shown - began):.1f}/s, {mutant.file}",
                flush=True,
            )
        yield outcome


def _report(target: Target, sources: Mapping[str, str], known: Known, outcomes: Sequence[Outcome]) -> int:
    """The table, and all that nothing caught; returns the exit status."""
    counted = [one for one in outcomes if one.mutant.key not in known.equivalents and one.caught_by != LOADS_NOT]
    print(f"\n{'file':22}{'mutants':>8}{'caught':>8}{'%':>7}  caught by")
    for name in (*sorted({one.mutant.file for one in counted}), "all"):
        of_file = [one for one in counted if name in ("all", one.mutant.file)]
        caught = sum(1 for one in of_file if one.caught_by)
        kinds = Counter(one.kind for one in of_file if one.caught_by)
        print(
            f"{name:22}{len(of_file):8}{caught:8}{100 * caught / len(of_file):7.1f}  "
            + ", ".join(f"{kind} {number}" for kind, number in kinds.most_common())
        )
    equivalent = [one for one in outcomes if one.mutant.key in known.equivalents]
    print(f"Left out: {len(equivalent)} that change no behaviour ({target.known} says why), ", end="")
    print(f"{sum(one.caught_by == LOADS_NOT for one in outcomes)} that cannot be loaded.")
    survivors = [one.mutant for one in counted if not one.caught_by]
    for mutant in survivors:
        rules = known.rules_of(mutant)
        print(f"\nNOT CAUGHT {target.sources.name}/{mutant.file}:{mutant.line} in {mutant.place}", end="")
        print(f", which holds rule {', '.join(rules)}" if rules else "")
        _print_diff(sources[mutant.file], mutant.source)
    wrong = [one for one in equivalent if one.caught_by not in ("", LOADS_NOT)]
    for one in wrong:
        print(f"\nNOT EQUIVALENT {one.mutant.key}: {one.caught_by} tells them apart")
    percent = 100 * (len(counted) - len(survivors)) / len(counted) if counted else 100.0
    of_rules = [mutant for mutant in survivors if known.rules_of(mutant)]
    print(f"\n{percent:.1f} % caught; {len(survivors)} survive, {len(of_rules)} of them mutants of a named rule.")
    return int(percent < CAUGHT_PERCENT_MIN or bool(of_rules) or bool(wrong))


def _print_diff(before: str, after: str) -> None:
    lines = list(unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm=""))
    for line in lines[3:]:
        print(f"  {line[0]} {line[1:].strip()}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
