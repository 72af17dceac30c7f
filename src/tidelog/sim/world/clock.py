"""A clock that shows virtual time."""

from __future__ import annotations

from tidelog.sim.world.loop import SimulatedLoop

WALL_START_MS = 1_750_000_000_000
"""When every simulation begins: a day of June 2025."""


class SimulatedClock:
    """The `Clock` of one machine.

    Args:
        loop: whose time it shows.

    Attributes:
        wall_offset_ms: how far the wall clock is off; may jump at any time, either way.
    """

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self.wall_offset_ms = 0

    def now_ms(self) -> int:
        """Whole milliseconds since the simulation began, and a little."""
        return self._loop.now_us // 1000

    def wall_ms(self) -> int:
        """Whole milliseconds since 1970, as this machine believes."""
        return WALL_START_MS + self.now_ms() + self.wall_offset_ms
