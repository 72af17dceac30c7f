"""How long to wait before trying again: longer each time, and never in step with the others."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.base.ports import Rng

_JITTER = 0.2


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off with jitter of a fifth either way.

    Args:
        first_ms: before the second attempt.
        longest_ms: no wait is longer than this, plus jitter.
        rng: for the jitter.
    """

    first_ms: int
    longest_ms: int
    rng: Rng

    def delay_ms(self, failures: int) -> int:
        """The wait after `failures` attempts in a row have failed; 0 after none."""
        if failures <= 0:
            return 0
        delay = min(self.first_ms << min(failures - 1, 30), self.longest_ms)
        return round(delay * (1 - _JITTER + 2 * _JITTER * self.rng.random()))
