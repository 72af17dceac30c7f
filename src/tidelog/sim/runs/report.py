"""What a run came to: plain values, which pass between processes and are the same whenever a run is repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """See the module.

    Attributes:
        seed: with the commit, what decides the run.
        nodes: how many there were.
        minutes: of virtual time, in which faults were let loose; healing comes after that.
        virtual_seconds: how long it took in all.
        events: steps that somebody took.
        faults: injected, by kind.
        checks: made, by the name of the invariant.
        digest: of the trace: two runs are the same if theirs are.
        broken: what did not hold; each begins with the name of the invariant.
        schedule: everything that was drawn to go wrong, in words, in order. `run_seed(only=…)` takes places in it.
    """

    seed: int
    nodes: int
    minutes: float
    virtual_seconds: float
    events: int
    faults: Mapping[str, int]
    checks: Mapping[str, int]
    digest: str
    broken: tuple[str, ...] = ()
    schedule: tuple[str, ...] = ()

    @property
    def broken_names(self) -> frozenset[str]:
        """The invariants that did not hold."""
        return frozenset(text.partition(":")[0] for text in self.broken)


@dataclass(slots=True)
class RunTotals:
    """Many runs together."""

    runs: int = 0
    virtual_seconds: float = 0.0
    events: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)

    def add(self, report: Report) -> None:
        """One run more."""
        self.runs += 1
        self.virtual_seconds += report.virtual_seconds
        self.events += report.events
        self.faults.update(report.faults)
        self.checks.update(report.checks)

    @classmethod
    def of(cls, reports: Iterable[Report]) -> RunTotals:
        """What they come to."""
        totals = cls()
        for report in reports:
            totals.add(report)
        return totals
