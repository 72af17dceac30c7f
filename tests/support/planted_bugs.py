"""Bugs planted on purpose, one or more for each rule of replication, and how many seeds it takes until one is found.

As a program it prints the table: `PYTHONPATH=tests python tests/support/planted_bugs.py`, in some minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from support.old_rules import OLD_RULES
from support.random_replicas import RandomReplicas
from support.replica_values import Rules
from tidelog.replica import LeaderReplica, Ready

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


class TrustingLeader(LeaderReplica):
    """What a new leader has is committed."""

    def take_ready(self) -> Ready:
        self.high_watermark = max(self.high_watermark, self.epoch_start)
        return super().take_ready()


class HastyLeader(LeaderReplica):
    """Who is proposed to leave need not hold what is committed from then on."""

    def take_ready(self) -> Ready:
        proposal = self._isr._to_send
        if proposal is not None:
            self._isr.maximal = proposal.isr
        return super().take_ready()


class ForgettingLeader(LeaderReplica):
    """Who is proposed to join need not hold what is committed before it is known to have."""

    def take_ready(self) -> Ready:
        self._isr.maximal = self._isr.committed
        return super().take_ready()


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
    bugs["trusts-its-log"] = PlantedBug("4", "What a new leader has is committed.", Rules(leader=TrustingLeader))
    bugs["shrinks-unasked"] = PlantedBug(
        "4", "Who is proposed to leave the ISR is not waited for.", Rules(leader=HastyLeader)
    )
    bugs["grows-unasked"] = PlantedBug(
        "4", "Who is proposed to join the ISR is not waited for.", Rules(leader=ForgettingLeader)
    )
    return dict(sorted(bugs.items(), key=lambda item: (int(item[1].number.split(",")[0]), item[0])))


def seeds_until_found(rules: Rules, first_seed: int, seeds_max: int) -> tuple[int, list[str]] | None:
    """How many seeds in a row it takes, and what is said then; None where so many do not find it."""
    for count in range(1, seeds_max + 1):
        broken = RandomReplicas(first_seed + count - 1, rules).run()
        if broken:
            return count, broken
    return None


def _row(name: str, bug: PlantedBug) -> str:
    counts, names = [], set()
    for each in range(TRIES):
        found = seeds_until_found(bug.rules, each * TRY_STRIDE, SEEDS_MAX)
        counts.append(SEEDS_MAX if found is None else found[0])
        names |= set() if found is None else {found[1][0].partition(":")[0]}
    shown = [f"{count:,}" if count < SEEDS_MAX else f"not in {SEEDS_MAX:,}" for count in (median(counts), max(counts))]
    return f"| {bug.number} | `{name}` | {bug.words} | {' | '.join(shown)} | {', '.join(sorted(names))} |"


if __name__ == "__main__":
    wanted = sys.argv[1:]
    print("| rule | planted | what is done wrong | seeds, median | seeds, at worst | found by |")
    print("|---|---|---|---|---|---|")
    for bug_name, planted in planted_bugs().items():
        if not wanted or bug_name in wanted:
            print(_row(bug_name, planted), flush=True)
