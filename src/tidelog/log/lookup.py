"""Reads that look for a place in the log: indexes, headers. On an event loop they must not wait for the disk.

Who looks up `without_waiting` gets `NotCachedError` where the page cache does not have what is needed. It names what
that is: let a thread read it, then look up again. Nothing was changed. Everybody else waits, as ever.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

from tidelog.base.errors import TidelogError
from tidelog.base.ports import Buffer, File

T = TypeVar("T")

READ_AHEAD_BYTES = 1 << 20
"""What `NotCachedError.fetch` reads at least: what is looked at next lies behind what was missing, as a rule."""

_may_wait: ContextVar[bool] = ContextVar("_may_wait", default=True)  # of its thread alone


class NotCachedError(TidelogError):
    """A look-up would have to wait for the disk."""

    def __init__(self, file: File, position: int, size: int) -> None:
        super().__init__(f"{file.path}: {size} bytes at {position} are not in memory")
        self._file = file
        self._position = position
        self._size = size

    def fetch(self) -> None:
        """Bring what is missing into the page cache. On another thread, that is what it is for. Raises DiskError."""
        self._file.read_at(self._position, max(self._size, READ_AHEAD_BYTES))


def may_wait() -> bool:
    """Whether whoever looks up here and now may wait for the disk."""
    return _may_wait.get()


def without_waiting(look_up: Callable[[], T]) -> T:
    """What `look_up` returns or raises; NotCachedError if it would have to wait."""
    token = _may_wait.set(False)
    try:
        return look_up()
    finally:
        _may_wait.reset(token)


def waiting(look_up: Callable[[], T]) -> T:
    """What `look_up` returns or raises, however long it takes; for what must not stop half way."""
    token = _may_wait.set(True)
    try:
        return look_up()
    finally:
        _may_wait.reset(token)


def read_place(file: File, position: int, size: int) -> Buffer:
    """As `file.read_at`. Raises NotCachedError where that would wait and must not."""
    if _may_wait.get():
        return file.read_at(position, size)
    data = file.read_cached_at(position, size)
    if data is None:
        raise NotCachedError(file, position, size)
    return data
