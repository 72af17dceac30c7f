"""Randomness that a seed reproduces, for each part of the world its own."""

from __future__ import annotations

from random import Random
from uuid import UUID


class SeededRng:
    """The `Rng` of a simulation.

    Args:
        seed: whatever has a `str`: the same text gives the same numbers, in every process.

    Attributes:
        random_source: draws from the same stream, for code that wants a `random.Random`.
    """

    def __init__(self, seed: object) -> None:
        self._seed = str(seed)
        self.random_source = Random(self._seed)  # noqa: S311  # to be reproduced is what it is for

    def random(self) -> float:
        """A number in [0, 1)."""
        return self.random_source.random()

    def randrange(self, start: int, stop: int) -> int:
        """A whole number in [start, stop). Raises ValueError if there is none."""
        return self.random_source.randrange(start, stop)

    def uuid(self) -> UUID:
        """A random (version 4) id."""
        return UUID(int=self.random_source.getrandbits(128), version=4)

    def stream(self, name: str) -> SeededRng:
        """Another stream, which does not move when somebody draws more from this one."""
        return SeededRng(f"{self._seed}/{name}")
