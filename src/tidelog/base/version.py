"""The version of this package, apart from what the package exports: everything may name it."""

from __future__ import annotations

__version__ = "0.1.0"
