"""The machine's own randomness."""

from __future__ import annotations

from os import urandom
from uuid import UUID


class SystemRng:
    """The `Rng` of a real node: the operating system's, so that two nodes never draw alike."""

    def random(self) -> float:
        """A number in [0, 1): every multiple of 2^-53 is as likely as any other."""
        return (int.from_bytes(urandom(7)) >> 3) * 2.0**-53

    def randrange(self, start: int, stop: int) -> int:
        """A whole number in [start, stop), each as likely. Raises ValueError if there is none."""
        width = stop - start
        if width <= 0:
            raise ValueError(f"there is no number in [{start}, {stop})")
        bits = width.bit_length()
        while True:  # half the draws hit, at least
            drawn = int.from_bytes(urandom((bits + 7) // 8)) >> (-bits % 8)
            if drawn < width:
                return start + drawn

    def uuid(self) -> UUID:
        """A random (version 4) id."""
        return UUID(bytes=urandom(16), version=4)
