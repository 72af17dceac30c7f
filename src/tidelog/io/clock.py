"""The machine's own clocks."""

from __future__ import annotations

from time import monotonic_ns, time_ns

NS_PER_MS = 1_000_000


class SystemClock:
    """The `Clock` of a real node."""

    def now_ms(self) -> int:
        """Whole milliseconds of a clock that never goes back; its zero means nothing."""
        return monotonic_ns() // NS_PER_MS

    def wall_ms(self) -> int:
        """Whole milliseconds since 1970, UTC. Jumps when somebody sets the clock."""
        return time_ns() // NS_PER_MS
