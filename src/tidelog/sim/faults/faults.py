"""What goes wrong in a run: drawn from its seed before it begins, so that parts of it can be left out.

Each run is bad in its own way: of all kinds most are left out of most runs. What is left comes often, for faults that
are rare and everywhere hide each other. Which kinds there are is a matter of what they happen to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidelog.base.ids import BrokerId
from tidelog.sim.world.rng import SeededRng

MS_PER_MINUTE = 60_000
RATE_SHARE = 0.4
"""In how many runs each of the rates is more than none, where its kind says nothing else."""
FIRST_BROKER = BrokerId(1)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        kind: one of the rates or of the steps of its `Kinds`.
        at_ms: of virtual time, after all was started; None for a rate, which is there from the beginning to the
            healing.
        amount: how bad it is; what that means is the kind's.
        lasts_ms: until it is over, or until what it ended is started again.
        broker: whom it meets, where it meets one.
    """

    kind: str
    at_ms: int | None = None
    amount: float = 0.0
    lasts_ms: int = 0
    broker: BrokerId = FIRST_BROKER


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One kind of fault.

    Attributes:
        words: what a fault of it says; `{amount}`, `{seconds}` that it lasts, and `{broker}` may occur.
        weight: how often it is among those of a run, beside the others.
        amount: draws how bad one is.
        lasts_ms_max: how long one lasts.
        share: in how many runs it is, if it is a rate.
    """

    words: str
    weight: int = 1
    amount: Callable[[SeededRng], float] = lambda _: 0.0
    lasts_ms_max: int = 1_000
    share: float = RATE_SHARE


@dataclass(frozen=True, slots=True)
class Kinds:
    """All that can go wrong with something.

    Attributes:
        rates: from the beginning to the healing.
        steps: once each time.
        at_once_max: of so many kinds are the steps of one run.
        gap_ms_max: the longest usual time between two of them.
    """

    rates: Mapping[str, FaultKind]
    steps: Mapping[str, FaultKind]
    at_once_max: int
    gap_ms_max: int

    def draw(self, rng: SeededRng, minutes: float, nodes: int = 1) -> list[Fault]:
        """What goes wrong in one run, the rates first, the steps by time.

        Args:
            rng: drawn from for nothing else.
            minutes: of virtual time, in which steps may begin.
            nodes: whom they may meet.
        """
        faults = [
            Fault(kind, amount=each.amount(rng)) for kind, each in self.rates.items() if rng.random() < each.share
        ]
        weighted = [kind for kind, each in self.steps.items() for _ in range(each.weight)]
        kinds = [weighted[rng.randrange(0, len(weighted))] for _ in range(rng.randrange(1, self.at_once_max + 1))]
        gap_ms_max = 500 + rng.random() * self.gap_ms_max
        at_ms = round(rng.random() * gap_ms_max)
        while at_ms < minutes * MS_PER_MINUTE:
            kind = kinds[rng.randrange(0, len(kinds))]  # one that was drawn twice comes more often
            each = self.steps[kind]
            broker = BrokerId(1 + rng.randrange(0, nodes)) if nodes > 1 else FIRST_BROKER
            faults.append(Fault(kind, at_ms, each.amount(rng), round(rng.random() * each.lasts_ms_max), broker))
            at_ms += 1 + round(rng.random() * gap_ms_max)
        return faults

    def words_of(self, fault: Fault) -> str:
        """To be read by people. Raises KeyError if there is no such kind."""
        if fault.at_ms is None:
            return f"all along: {self.rates[fault.kind].words.format(amount=fault.amount)}"
        words = self.steps[fault.kind].words
        text = words.format(amount=fault.amount, seconds=fault.lasts_ms / 1000, broker=fault.broker)
        return f"at {fault.at_ms / 1000:.3f} s: {text}"
