"""What a connection has still to send: pieces of answers, in memory or on disk, of which the first may be half out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import cast

from tidelog.base.ports import Buffer
from tidelog.server.transport.stored_bytes import StoredBytes
from tidelog.wire import Piece


class Outbox:
    """Of one connection. False when it is empty.

    Attributes:
        pieces: to be asked whether there are any, as often as a connection does.
    """

    __slots__ = ("_position", "pieces")

    def __init__(self) -> None:
        self.pieces: deque[Piece] = deque()
        self._position = 0  # of the first piece: what is out of it

    def __bool__(self) -> bool:
        return bool(self.pieces)

    def extend(self, pieces: Iterable[Piece]) -> None:
        """Send these, too."""
        self.pieces.extend(pieces)

    def clear(self) -> None:
        """Send nothing more."""
        self.pieces.clear()
        self._position = 0

    @property
    def bytes_in_memory(self) -> int:
        """Of pieces that do not lie on disk."""
        return sum(len(piece) for piece in self.pieces if isinstance(piece, (bytes, bytearray, memoryview)))

    def next_chunk(self, size_bytes_max: int) -> Buffer | None:
        """What comes next; None if it has to be read from the disk (`chunk_on_disk`). It stays until `advance`."""
        piece, position = self.pieces[0], self._position
        size = min(len(piece) - position, size_bytes_max)
        if isinstance(piece, (bytes, bytearray, memoryview)):
            return piece if size == len(piece) else memoryview(piece)[position : position + size]
        return cast(StoredBytes, piece).read_cached(position, size)

    def chunk_on_disk(self, size_bytes_max: int) -> Callable[[], Buffer]:
        """Reads what comes next, on a thread. It raises TidelogError: that cannot be read any more."""
        stored, position = cast(StoredBytes, self.pieces[0]), self._position
        return partial(stored.read, position, min(len(stored) - position, size_bytes_max))

    def advance(self, size_bytes: int) -> None:
        """So much more of the first piece is out."""
        self._position += size_bytes
        if self._position >= len(self.pieces[0]):
            self.pieces.popleft()
            self._position = 0
