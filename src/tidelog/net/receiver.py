"""Responses out of a stream, each in memory of its own: a reader may keep what a Fetch brought, without a copy."""

from __future__ import annotations

import sys

from tidelog.base.errors import MalformedMessageError

SMALL_SIZE_BYTES = 16 * 1024
"""Frames up to this size are read together, and copied out."""

_UNEARNED_SIZE_BYTES_MAX = 4 * 1024 * 1024
_GROWTH = 4
_SIZE_BYTES = 4
_KEPT_MAX = 2
"""Large frames whose memory is used again: one is received while the reader is at the one before."""
_UNUSED_REFERENCES = 2
"""What `sys.getrefcount` says of memory that only the receiver holds: its list, and the call itself."""


class ResponseReceiver:
    """Collects bytes and hands out whole frames that stay valid for good.

        small frames      [ size frame size frame si... ]     one buffer, copied out of
        a large frame     its head is moved to a buffer of its own size, the rest is received right into it

    A frame of more than 4 MiB gets its memory bit by bit as it arrives, unless the peer sent such large ones before:
    announcing one costs nothing.

    As long as one large frame follows another, the memory of those that nobody holds any more is used again: fresh
    memory costs about as much as receiving into it.

    Args:
        frame_size_bytes_max: the largest frame accepted, without its size.
    """

    def __init__(self, frame_size_bytes_max: int) -> None:
        self.frame_size_bytes_max = frame_size_bytes_max
        self._small = bytearray(SMALL_SIZE_BYTES)
        self._small_view = memoryview(self._small)
        self._start = 0
        self._end = 0
        self._large: memoryview | None = None
        self._kept: list[bytearray] = []
        self._large_size = 0
        self._filled = 0
        self._largest_seen = 0

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """Where to put the next bytes; never empty."""
        if self._large is not None:
            if self._filled == len(self._large):
                grown = memoryview(bytearray(min(self._large_size, self._filled * _GROWTH)))
                grown[: self._filled] = self._large
                self._large = grown
            return self._large[self._filled :]
        if self._start:
            held = self._end - self._start
            self._small[:held] = self._small[self._start : self._end]
            self._start, self._end = 0, held
        return self._small_view[self._end :]

    def on_bytes(self, size_bytes: int) -> None:
        """`size_bytes` were put at the start of what `get_buffer` gave last."""
        if self._large is not None:
            self._filled += size_bytes
        else:
            self._end += size_bytes

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its size, or None until more bytes have come. The frame is the caller's to keep.

        Raises:
            MalformedMessageError: the size is negative or above the limit: close the connection.
        """
        if self._large is not None:
            if self._filled < self._large_size:
                return None
            frame, self._large = self._large, None
            return frame
        held = self._end - self._start
        if held < _SIZE_BYTES:
            return None
        first = self._start + _SIZE_BYTES
        size = int.from_bytes(self._small_view[self._start : first], "big", signed=True)
        if not 0 <= size <= self.frame_size_bytes_max:
            raise MalformedMessageError(
                f"a response of {size} bytes is announced; at most {self.frame_size_bytes_max} are accepted"
                f" (the bytes are {bytes(self._small_view[self._start : first])!r}: is this a Kafka port?)"
            )
        if held - _SIZE_BYTES >= size:
            self._start = first + size
            self._kept.clear()
            return memoryview(bytes(self._small_view[first : first + size]))
        if size + _SIZE_BYTES > SMALL_SIZE_BYTES:
            self._start_large(size, first, held - _SIZE_BYTES)
        return None

    def start_of_frame(self) -> bytes:
        """The first bytes, its size included, of a frame that has not come as a whole, or cannot be: to tell them."""
        if self._large is not None:
            return self._large_size.to_bytes(_SIZE_BYTES) + bytes(self._large[: min(self._filled, _SIZE_BYTES)])
        return bytes(self._small_view[self._start : min(self._end, self._start + 2 * _SIZE_BYTES)])

    def _start_large(self, size: int, first: int, held: int) -> None:
        at_once = max(self._largest_seen, _UNEARNED_SIZE_BYTES_MAX)
        self._large = self._memory(min(size, at_once))
        self._large[:held] = self._small_view[first : first + held]
        self._large_size = size
        self._filled = held
        self._largest_seen = max(self._largest_seen, size)
        self._start = self._end = 0

    def _memory(self, size: int) -> memoryview:
        """Memory that was received into before, if it is unused, and at most twice as large."""
        kept = self._kept
        for at in range(len(kept)):
            if sys.getrefcount(kept[at]) == _UNUSED_REFERENCES and size <= len(kept[at]) <= 2 * size:
                kept.append(kept.pop(at))
                return memoryview(kept[-1])[:size]
        made = bytearray(size)
        kept.append(made)
        del kept[:-_KEPT_MAX]
        return memoryview(made)
