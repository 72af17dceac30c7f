"""How many examples a test takes: its own number in `make test-all`, and as many more or fewer as the profile says."""

from __future__ import annotations

from hypothesis import settings

STANDARD = 100
"""Of a test that names no number, with the profile of `make test-all`."""


def examples(count: int) -> int:
    """Of examples or of seeds; `count` with the profile of `make test-all`."""
    return max(1, count * settings().max_examples // STANDARD)
