"""What was checked, and what of it did not hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from tidelog.sim.checkers.views import Broken


class Findings:
    """Of whoever looks at a run from outside.

    Attributes:
        checks: made, by the name of the invariant.
        broken: what does not hold, in the order in which it was seen; of each invariant the first.
    """

    def __init__(self) -> None:
        self.checks: Counter[str] = Counter()
        self.broken: list[Broken] = []

    def expect(self, holds: bool, invariant: str, what: str | Callable[[], str]) -> None:
        """A check is made; where it fails, the run ends with this step."""
        self.checks[invariant] += 1
        if not holds:
            self._add(Broken(invariant, what if isinstance(what, str) else what()))

    def note(self, invariants: Iterable[str], found: Iterable[Broken]) -> None:
        """Checks that somebody else made, and what they found."""
        self.checks.update(invariants)
        for broken in found:
            self._add(broken)

    def after_step(self) -> None:
        """Somebody took a step: look, if anything may have changed."""

    def _add(self, broken: Broken) -> None:
        if all(known.invariant != broken.invariant for known in self.broken):
            self.broken.append(broken)
