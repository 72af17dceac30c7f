"""What goes wrong in a run of several nodes: drawn from its seed before it begins, so that parts can be left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidelog.base.ids import BrokerId
from tidelog.sim.rng import SeededRng

MS_PER_MINUTE = 60_000
NOBODY = BrokerId(0)
RATE_SHARE = 0.4
KINDS_MAX = 6
GAP_MS_MAX = 6_000


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        kind: one of `RATES` (all along) or of `STEPS` (once).
        at_ms: of virtual time, after the topics were made.
        broker: whom it meets, where it meets one.
        amount: how bad it is; what that means is the kind's.
        lasts_ms: until it is over.
    """

    kind: str
    at_ms: int = 0
    broker: BrokerId = NOBODY
    amount: float = 0.0
    lasts_ms: int = 0

    def __str__(self) -> str:
        if self.kind in RATES:
            return f"all along: {RATES[self.kind].words.format(amount=self.amount)}"
        words = STEPS[self.kind].words
        text = words.format(amount=self.amount, broker=self.broker, seconds=self.lasts_ms / 1000)
        return f"at {self.at_ms / 1000:.3f} s: {text}"


@dataclass(frozen=True, slots=True)
class _Kind:
    words: str
    weight: int = 1
    amount: Callable[[SeededRng], float] = lambda r: r.random()
    lasts_ms_max: int = 1_500


RATES = {
    "message dropped": _Kind("{amount:.1%} of all messages are lost", amount=lambda r: 0.1 * r.random()),
    "message repeated": _Kind("{amount:.1%} of all messages arrive twice", amount=lambda r: 0.2 * r.random()),
    "message delayed": _Kind("{amount:.1%} of all messages are late", amount=lambda r: 0.1 * r.random()),
    "network slow": _Kind("messages take up to {amount:.0f} ms", amount=lambda r: 5 + 75 * r.random()),
    "disk slow": _Kind("what waits for a disk waits for up to {amount:.0f} ms", amount=lambda r: 5 + 200 * r.random()),
}
"""From the beginning to the healing."""

STEPS = {
    "kill": _Kind("kill broker {broker}; start it {seconds:.3f} s later", weight=4, lasts_ms_max=4_000),
    "kill in step": _Kind(
        "kill broker {broker} in place of its disk's change {amount:.0f} from then; start it {seconds:.3f} s later",
        weight=4,
        amount=lambda r: r.randrange(0, 40),
    ),
    "power loss": _Kind("broker {broker} loses power; start it {seconds:.3f} s later", weight=4, lasts_ms_max=4_000),
    "power loss in step": _Kind(
        "broker {broker} loses power in place of its disk's change {amount:.0f} from then; start it {seconds:.3f} s "
        "later",
        weight=4,
        amount=lambda r: r.randrange(0, 40),
    ),
    "disk lost": _Kind("broker {broker} loses power and all it had; start it {seconds:.3f} s later"),
    "bit rot": _Kind(
        "kill broker {broker}, flip a bit of a log, have all of it looked at; start it {seconds:.3f} s later"
    ),
    "stop": _Kind("stop broker {broker} cleanly; start it {seconds:.3f} s later", weight=2),
    "disk full": _Kind(
        "the disk of broker {broker} takes {amount:.0f} more bytes, for {seconds:.3f} s",
        amount=lambda r: r.randrange(0, 8_000),
        lasts_ms_max=5_000,
    ),
    "partition": _Kind(
        "broker {broker} is cut off from another, either way, for {seconds:.3f} s", 3, lasts_ms_max=8_000
    ),
    "isolation": _Kind("nothing passes from or to broker {broker} for {seconds:.3f} s", 2, lasts_ms_max=8_000),
    "deafness": _Kind("nothing passes to broker {broker} for {seconds:.3f} s", 2, lasts_ms_max=8_000),
    "muteness": _Kind("nothing passes from broker {broker} for {seconds:.3f} s", 2, lasts_ms_max=8_000),
    "lost controller": _Kind(
        "broker {broker} and the controller are parted for {seconds:.3f} s", 3, lasts_ms_max=8_000
    ),
    "swizzle": _Kind(
        "cut all brokers off, one after the other, within {seconds:.3f} s; bring them back in another order",
        lasts_ms_max=6_000,
    ),
    "session expiry": _Kind("the controller takes the session of broker {broker} for over", 3),
    "preferred election": _Kind("elect the preferred leaders", 2),
    "reassignment": _Kind("move a replica from one broker to another, and back after {seconds:.3f} s", 2),
    "topic recreated": _Kind("delete a topic, and make one of the same name after {seconds:.3f} s"),
    "clock jump": _Kind(
        "the wall clock of broker {broker} jumps by {amount:.0f} ms",
        amount=lambda r: r.randrange(-3_000_000, 3_000_000),
    ),
}
"""Once each time."""


def draw_faults(rng: SeededRng, nodes: int, minutes: float) -> list[Fault]:
    """What goes wrong in one run, the rates first, the steps by time: a few kinds of all that there are, and often."""
    faults = [Fault(kind, amount=each.amount(rng)) for kind, each in RATES.items() if rng.random() < RATE_SHARE]
    weighted = [kind for kind, each in STEPS.items() for _ in range(each.weight)]
    kinds = [weighted[rng.randrange(0, len(weighted))] for _ in range(rng.randrange(1, KINDS_MAX + 1))]
    gap_ms_max = 500 + rng.random() * GAP_MS_MAX
    at_ms = round(rng.random() * gap_ms_max)
    while at_ms < minutes * MS_PER_MINUTE:
        kind = kinds[rng.randrange(0, len(kinds))]
        each = STEPS[kind]
        broker = BrokerId(1 + rng.randrange(0, nodes))
        faults.append(Fault(kind, at_ms, broker, each.amount(rng), round(rng.random() * each.lasts_ms_max)))
        at_ms += 1 + round(rng.random() * gap_ms_max)
    return faults
