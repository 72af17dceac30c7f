"""Answers of which a part is still on disk."""

from __future__ import annotations

from typing import Protocol

from tidelog.base.ports import Buffer


class StoredBytes(Protocol):
    """Part of an answer that still lies on disk; read when the peer is ready for it."""

    def __len__(self) -> int: ...

    def read(self, position: int, size: int) -> Buffer: ...

    def read_cached(self, position: int, size: int) -> Buffer | None:
        """As `read` if that need not wait for the disk; None if it might."""
        ...
