"""Bugs planted on purpose, one or more for each rule of replication, and how many seeds it takes until one is found.

As a program it prints the table: `PYTHONPATH=tests python tests/support/old_rules/planted_bugs.py`, in some minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import process_time

from support.old_rules.replica_rules import OLD_RULES
from support.worlds.random_replicas import RandomReplicas
from support.worlds.replica_values import Rules

SEEDS_MAX = 20_000
TRIES = 5
TRY_STRIDE = 1_000_000
RULE_NUMBERS = {
    "epoch-file-as-it-was": "1",
    "high-watermark": "2",
    "kip-101-alone": "2",
    "kip-279-alone": "2, 3",
    "unfenced-truncation": "2",
    "kip-320-first-try": "3",
    "diverging-fetch-counts": "3",
    "checkpoint-stays": "4",
    "commits-alone": "4",
    "grows-unasked": "4",
    "shrinks-unasked": "4",
    "trusts-its-log": "4",
    "acks-of-who-is-left": "4",
    "forgotten-proposals": "4",
    "joins-at-the-high-watermark": "5",
    "joins-as-its-predecessor": "5",
    "keeps-its-seat": "6",
    "returns-in-its-epoch": "6",
    "last-one-keeps-its-seat": "7",
    "serves-at-once": "9",
    "unsynced-truncation": "10",
}
"""Of shared/kips/README.md, by the name of the old rule that breaks it."""


Found = tuple[int, Sequence[str]]
"""How many seeds it took, and what was said then."""


@dataclass(frozen=True)
class PlantedBug:
    """One bug.

    Attributes:
        number: of the rule that it breaks.
        words: what is done wrong.
    """

    number: str
    words: str
    rules: Rules


def planted_bugs() -> Mapping[str, PlantedBug]:
    """All of them, by name."""
    bugs = {
        name: PlantedBug(number, OLD_RULES[name].says, OLD_RULES[name].rules) for name, number in RULE_NUMBERS.items()
    }
    return dict(sorted(bugs.items(), key=lambda item: (int(item[1].number.split(",")[0]), item[0])))


def seeds_until_found(rules: Rules, first_seed: int, seeds_max: int) -> Found | None:
    """How many seeds in a row it takes, and what is said then; None where so many do not find it."""
    for count in range(1, seeds_max + 1):
        broken = RandomReplicas(first_seed + count - 1, rules).run()
        if broken:
            return count, broken
    return None


def print_table(
    bugs: Mapping[str, tuple[str, str, Callable[[int, int], Found | None]]], *, seeds_max: int, tries: int, stride: int
) -> None:
    """A row for each bug that the command line names, or for all, as it is known.

    Args:
        bugs: by name, the number and the words of each, and what seeks it: given the first seed, and how many to try.
        tries: how often to seek each, from a seed that is `stride` after the last.
    """
    print("| rule | planted | what is done wrong | seeds, median | seeds, at worst | CPU-seconds, median | found by |")
    print("|---|---|---|---|---|---|---|")
    for name, (number, words, seek) in bugs.items():
        if sys.argv[1:] and name not in sys.argv:
            continue
        found, seconds = [], []
        for each in range(tries):
            began = process_time()
            found.append(seek(each * stride, seeds_max))
            seconds.append(process_time() - began)
        counts = [seeds_max + 1 if one is None else one[0] for one in found]
        shown = [f"{n:,}" if n <= seeds_max else f"not in {seeds_max:,}" for n in (median(counts), max(counts))]
        names = {one[1][0].partition(":")[0] for one in found if one is not None}
        cells = (number, f"`{name}`", words, *shown, f"{median(seconds):.1f}", ", ".join(sorted(names)))
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    print_table(
        {name: (bug.number, bug.words, partial(seeds_until_found, bug.rules)) for name, bug in planted_bugs().items()},
        seeds_max=SEEDS_MAX,
        tries=TRIES,
        stride=TRY_STRIDE,
    )
