"""A run of whole batches that still lies in its file: what a read returns, and what a response carries.

Kafka: `FileRecords`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct

from tidelog.base.errors import DiskError, TidelogError
from tidelog.base.ids import Offset
from tidelog.base.ports import Buffer, File
from tidelog.log.batch_chain import BatchChain
from tidelog.log.lookup import read_place
from tidelog.log.unreadable import is_unreadable

OnUnreadable = Callable[[DiskError], object]

PIECE_SIZE_BYTES_MAX = 1024 * 1024

_BASE_OFFSET = Struct(">q")


class StaleSliceError(TidelogError):
    """The log was truncated below the end of this slice: its bytes are not those that were asked for. Read again.

    If a part of it was sent, nothing helps but to close the connection.
    """


class LogSlice:
    """`len()` bytes of one segment, read when asked for, from any thread.

    It holds whole batches, the first of which contains the offset asked for or is the first one above it. The
    segment may meanwhile be closed, or deleted by retention: the slice reads on. Only truncation spoils it.
    """

    __slots__ = (
        "_chain",
        "_end_of_offsets",
        "_file",
        "_on_unreadable",
        "_truncations",
        "_truncations_seen",
        "position",
        "size_bytes",
    )

    def __init__(
        self,
        file: File,
        position: int,
        size_bytes: int,
        truncations: list[int],
        end_of_offsets: Callable[[int], Offset],
        *,
        chain: BatchChain | None = None,
        on_unreadable: OnUnreadable | None = None,
    ) -> None:
        """Made by a segment.

        Args:
            file: of the segment.
            position: where the first batch starts.
            size_bytes: up to the end of the last batch.
            truncations: the segment's own list of the sizes to which it was truncated; it grows.
            end_of_offsets: tells, for a position where a batch ends, the offset that follows it.
            chain: looks at each header that is read; None where nothing can have rotted.
            on_unreadable: told where the disk cannot read some place of it, on the thread that reads.
        """
        self._file = file
        self.position = position
        self.size_bytes = size_bytes
        self._truncations = truncations
        self._truncations_seen = len(truncations)
        self._end_of_offsets = end_of_offsets
        self._chain = chain
        self._on_unreadable = on_unreadable

    def __len__(self) -> int:
        return self.size_bytes

    @property
    def path(self) -> str:
        """The file that it lies in."""
        return self._file.path

    @property
    def first_offset(self) -> Offset:
        """The base offset of the first batch (read from the file). An empty slice has none: ValueError."""
        if not self.size_bytes:
            raise ValueError("an empty slice has no first offset")
        data = read_place(self._file, self.position, _BASE_OFFSET.size)
        self._check(len(data), _BASE_OFFSET.size)
        return Offset(_BASE_OFFSET.unpack(data)[0])

    @property
    def next_offset(self) -> Offset:
        """Where to read on (looked up in the file). For an empty slice: the offset that follows what lies below it."""
        return self._end_of_offsets(self.position + self.size_bytes)

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position` within the slice; fewer only at its end.

        Raises:
            StaleSliceError: the log was truncated below the end of the slice.
            CorruptLogError: a batch among the bytes does not continue the one before, or the file was cut by others.
            DiskError: the disk refused.
        """
        size = min(size, self.size_bytes - position)
        if size <= 0:
            return b""
        try:
            data = self._file.read_at(self.position + position, size)
        except DiskError as error:
            self._note_unreadable(error)
            raise
        self._check_truncations()
        if self._chain is not None:
            self._chain.follow(data, self.position + position)
            if len(data) < size:
                self._chain.end(self.position + position + len(data))
        self._check(len(data), size)
        return data

    def read_cached(self, position: int, size: int) -> Buffer | None:
        """As `read` if that need not wait for the disk; None if it might. The caller owns the buffer."""
        size = min(size, self.size_bytes - position)
        if size <= 0:
            return b""
        try:
            data = self._file.read_cached_at(self.position + position, size)
        except DiskError as error:
            self._note_unreadable(error)
            raise
        if data is not None:
            self._check(len(data), size)
            if self._chain is not None:
                self._chain.follow(data, self.position + position)
        return data

    def look_up(self, position: int, size: int) -> Buffer:
        """As `read`, of what one looks at to find a place in the slice: see `lookup`. Raises NotCachedError too."""
        size = min(size, self.size_bytes - position)
        data = read_place(self._file, self.position + position, size)
        self._check(len(data), size)
        if self._chain is not None:
            self._chain.follow(data, self.position + position)
        return data

    def part(self, position: int, size_bytes: int) -> LogSlice:
        """A part of this slice, of whole batches: the caller knows where they begin and end."""
        start = self.position + position
        chain = None if self._chain is None else self._chain.anew(start)
        part = LogSlice(
            self._file,
            start,
            size_bytes,
            self._truncations,
            self._end_of_offsets,
            chain=chain,
            on_unreadable=self._on_unreadable,
        )
        part._truncations_seen = self._truncations_seen
        return part

    def _note_unreadable(self, error: DiskError) -> None:
        if self._on_unreadable is not None and is_unreadable(error):
            self._on_unreadable(error)

    def _check(self, read_size: int, size: int) -> None:
        self._check_truncations()
        if read_size != size:
            raise StaleSliceError(f"{self._file.path}: ends within a slice of it: read again")

    def _check_truncations(self) -> None:
        # Checked afterwards: whoever truncates says so before it cuts, and before others may write there again.
        truncations = self._truncations
        if (
            len(truncations) > self._truncations_seen
            and min(truncations[self._truncations_seen :]) < self.position + self.size_bytes
        ):
            raise StaleSliceError(
                f"{self._file.path}: truncated to {min(truncations[self._truncations_seen :])} bytes "
                f"below the end of a slice at {self.position + self.size_bytes}: read again"
            )

    def pieces(self, size_max: int = PIECE_SIZE_BYTES_MAX) -> Iterator[bytes]:
        """All of it, in order, at most `size_max` bytes at a time. Raises as `read`."""
        for position in range(0, self.size_bytes, size_max):
            yield self.read(position, size_max)

    def read_all(self) -> bytes:
        """All of it at once, for those who read little. Raises as `read`."""
        return self.read(0, self.size_bytes)
