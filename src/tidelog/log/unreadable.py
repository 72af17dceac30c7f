"""Reads a file of which the disk cannot give every page, as where sectors went bad.

A read of many pages fails for one of them. So it is tried page by page, and what cannot be read is filled: no checksum
holds over a batch with filler in it. A page that failed is not asked for again, since a disk may try for seconds.

Kafka: none. It takes the whole log directory offline.
"""

from __future__ import annotations

import errno

from tidelog.base.errors import DiskError
from tidelog.base.ports import Disk, File

PAGE_BYTES = 4096
"""What a page cache reads at once, at least."""
PAGES_MAX = 1024
"""Of one file. If more fail, the disk does."""
FILLER = b"\xbd"


def is_unreadable(error: DiskError) -> bool:
    """Whether the disk could not read some place, which says nothing of the others."""
    return error.errno == errno.EIO


def can_read(disk: Disk, path: str, position: int, size: int) -> bool:
    """Whether the disk gives these bytes of a file; asked anew. Raises DiskError: it refuses for another reason."""
    file = disk.open(path)
    try:
        file.read_at(position, size)
    except DiskError as error:
        if not is_unreadable(error):
            raise
        return False
    finally:
        file.close()
    return True


class PatientReads:
    """Of one open file.

    Attributes:
        pages: that could not be read, by number.
    """

    def __init__(self, file: File) -> None:
        self.pages: set[int] = set()
        self._file = file

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`, with filler where the disk has none; fewer only at the end of the file.

        Raises:
            DiskError: the disk refuses for another reason, or at more than `PAGES_MAX` pages.
        """
        if not self.is_unreadable(position, position + size):
            try:
                return self._file.read_at(position, size)
            except DiskError as error:
                if not is_unreadable(error):
                    raise
        end = min(position + size, self._file.size())
        pieces = []
        while position < end:
            page = position // PAGE_BYTES
            stop = min((page + 1) * PAGE_BYTES, end)
            pieces.append(self._read_in_page(page, position, stop - position))
            position = stop
        return b"".join(pieces)

    def _read_in_page(self, page: int, position: int, size: int) -> bytes:
        if page not in self.pages:
            try:
                return self._file.read_at(position, size)
            except DiskError as error:
                if not is_unreadable(error) or len(self.pages) >= PAGES_MAX:
                    raise
            self.pages.add(page)
        return FILLER * size

    def is_unreadable(self, start: int, end: int) -> bool:
        """Whether a page with any of these bytes could not be read so far."""
        return bool(self.pages) and any(
            start < (page + 1) * PAGE_BYTES and page * PAGE_BYTES < end for page in self.pages
        )

    def close(self) -> None:
        self._file.close()
