"""Indexes that mislead: whoever notices builds them anew, once, before a reader is told that the log is damaged.

An index may be whole, sorted, and yet not of this log: a file that was restored from elsewhere, a disk that forgot.
What is found by it is compared with the batch that is there; so it can lead nowhere, but not to a wrong answer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from tidelog.base.errors import CorruptLogError
from tidelog.log.lookup import NotCachedError, may_wait, waiting

if TYPE_CHECKING:
    from tidelog.log.segment import Segment

T = TypeVar("T")


class IndexRepair:
    """Looks up places in one segment, and rebuilds its indexes where they are damaged.

    On an event loop the headers are read by a thread first, as `NotCachedError.fetch`; building the indexes then takes
    no disk, though it takes its time.
    """

    __slots__ = ("_is_rebuilt", "_is_scanned")

    def __init__(self) -> None:
        self._is_scanned = False  # the segment is passed in: one that is dropped must give its file back at once
        self._is_rebuilt = False

    def look_up(self, segment: Segment, look_up: Callable[[], T]) -> T:
        """What `look_up` finds; where the indexes mislead it, what it finds once they are built anew.

        Raises:
            NotCachedError: all headers have to be read, and whoever looks up may not wait.
            CorruptLogError: the log itself is damaged: then the indexes are not to blame, and left as they are.
        """
        try:
            return look_up()
        except CorruptLogError:
            if self._is_rebuilt:
                raise
        self.await_scan(segment)
        self._is_rebuilt = True
        waiting(partial(self._scan, segment))
        waiting(segment.rebuild_indexes)
        return look_up()

    def await_scan(self, segment: Segment) -> None:
        """Return if all headers may be read now: by one who may wait, or because a thread has read them before."""
        if not self._is_scanned and not may_wait():
            raise ScanAwaitedError(segment, partial(self._scan, segment))

    def _scan(self, segment: Segment) -> None:
        """Read all headers. Raises CorruptLogError. May run on another thread."""
        try:
            for _ in segment.headers():
                pass
        finally:
            self._is_scanned = True


class ScanAwaitedError(NotCachedError):
    """A look-up would have to read through a whole segment. `fetch` does that with `scan`."""

    def __init__(self, segment: Segment, scan: Callable[[], None]) -> None:
        super().__init__(segment.file, 0, segment.size_bytes)
        self._scan = scan

    def fetch(self) -> None:
        waiting(self._scan)
