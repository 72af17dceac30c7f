"""What goes wrong in a run: drawn from its seed before it begins, so that parts of it can be left out.

Each run is bad in its own way: of all kinds most are left out of most runs. What is left comes often, for faults that
are rare and everywhere hide each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidelog.sim.rng import SeededRng

MS_PER_MINUTE = 60_000
KINDS_MAX = 3
GAP_MS_MAX = 8_000
"""The longest usual time between two faults."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        kind: one of `RATES` (from the beginning to the healing) or of `STEPS` (once).
        at_ms: of virtual time, after the node was started; 0 for rates.
        amount: how bad it is; what that means is the kind's.
        lasts_ms: until it is over, or until the node is started again.
    """

    kind: str
    at_ms: int = 0
    amount: float = 0.0
    lasts_ms: int = 0

    @property
    def is_step(self) -> bool:
        """Whether it happens once, and not all along."""
        return self.kind in STEPS

    def __str__(self) -> str:
        if not self.is_step:
            return f"all along: {RATES[self.kind].words.format(amount=self.amount)}"
        words = STEPS[self.kind].words.format(amount=round(self.amount), seconds=self.lasts_ms / 1000)
        return f"at {self.at_ms / 1000:.3f} s: {words}"


@dataclass(frozen=True, slots=True)
class _Kind:
    words: str
    amount: Callable[[SeededRng], float] = lambda _: 0.0
    lasts_ms_max: int = 1_000


RATES = {
    "network reset": _Kind(
        "{amount:.2%} of what is written to the network resets its stream", lambda r: 0.005 * r.random()
    ),
    "network straggle": _Kind("{amount:.0%} of what is sent takes ten times as long", lambda r: 0.2 * r.random()),
    "network cut": _Kind("{amount:.0%} of what is sent arrives in two parts", lambda r: r.random()),
    "disk stall": _Kind("{amount:.2%} of what waits for the disk waits for seconds", lambda r: 0.01 * r.random()),
    "disk slow": _Kind("what waits for the disk waits for up to {amount:.0f} ms", lambda r: 5 + 45 * r.random()),
    "disk cold": _Kind("{amount:.0%} of what is read is not in memory", lambda r: r.random()),
}
"""From the beginning to the healing, with what is drawn for each."""

STEPS = {
    "kill": _Kind("kill the node; start it {seconds:.3f} s later"),
    "kill in step": _Kind(
        "kill the node in place of the disk's change {amount} from then; start it {seconds:.3f} s later",
        lambda r: r.randrange(0, 30),
    ),
    "power loss": _Kind("the node loses power; start it {seconds:.3f} s later"),
    "power loss in step": _Kind(
        "the node loses power in place of the disk's change {amount} from then; start it {seconds:.3f} s later",
        lambda r: r.randrange(0, 30),
    ),
    "kill while starting": _Kind(
        "kill the node, and again in place of change {amount} of the disk after that; start it {seconds:.3f} s later",
        lambda r: r.randrange(0, 60),
    ),
    "stop": _Kind("stop the node cleanly; start it {seconds:.3f} s later"),
    "partition": _Kind("nothing gets through, either way, for {seconds:.3f} s", lasts_ms_max=12_000),
    "partition to node": _Kind("nothing gets through to the node for {seconds:.3f} s", lasts_ms_max=12_000),
    "partition from node": _Kind("nothing gets through from the node for {seconds:.3f} s", lasts_ms_max=12_000),
    "disk full": _Kind(
        "the disk takes {amount} more bytes, for {seconds:.3f} s", lambda r: r.randrange(0, 20_000), lasts_ms_max=8_000
    ),
    "clock jump": _Kind("the node's wall clock jumps by {amount} ms", lambda r: r.randrange(-3_600_000, 3_600_000)),
    "bit rot": _Kind(
        "kill the node, flip a bit {amount} parts in a million into a log of records; start it {seconds:.3f} s later",
        lambda r: r.randrange(0, 1_000_000),
    ),
}
"""Once each time, with what is drawn for each."""

RATE_SHARE = 0.4
"""In how many runs each of the rates is more than none."""
STEP_WEIGHTS = {
    "kill": 4,
    "kill in step": 4,
    "power loss": 4,
    "power loss in step": 4,
    "kill while starting": 2,
    "stop": 2,
    "partition": 2,
    "partition to node": 1,
    "partition from node": 1,
    "disk full": 1,
    "clock jump": 1,
    "bit rot": 1,
}
"""How often each kind of step is among those of a run, beside the others."""


def draw_faults(rng: SeededRng, minutes: float) -> list[Fault]:
    """What goes wrong in one run, the rates first, the steps by time.

    Args:
        rng: drawn from for nothing else.
        minutes: of virtual time, in which steps may begin.
    """
    faults = [Fault(kind, amount=each.amount(rng)) for kind, each in RATES.items() if rng.random() < RATE_SHARE]
    kinds = _draw_kinds(rng)
    gap_ms_max = 500 + rng.random() * GAP_MS_MAX
    at_ms = round(rng.random() * gap_ms_max)
    while kinds and at_ms < minutes * MS_PER_MINUTE:
        kind = kinds[rng.randrange(0, len(kinds))]
        each = STEPS[kind]
        faults.append(Fault(kind, at_ms, each.amount(rng), round(rng.random() * each.lasts_ms_max)))
        at_ms += 1 + round(rng.random() * gap_ms_max)
    return faults


def _draw_kinds(rng: SeededRng) -> list[str]:
    """One to a few kinds, by weight; a kind that comes twice comes more often."""
    weighted = [kind for kind, weight in STEP_WEIGHTS.items() for _ in range(weight)]
    return [weighted[rng.randrange(0, len(weighted))] for _ in range(rng.randrange(1, KINDS_MAX + 1))]
