"""Frames out of a stream of bytes. Pure, and the same for clients and servers."""

from __future__ import annotations

from struct import Struct

from tidelog.base.errors import MalformedMessageError

BUFFER_SIZE_BYTES_MIN = 16 * 1024
"""What a connection holds that is in use. An idle one holds nothing: ten thousand of them would take 160 MiB."""

_SIZE = Struct(">i")
_SIZE_BYTES = _SIZE.size
_GROWTH = 4
_NOTHING = memoryview(bytearray())

_STRANGERS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"HTTP", b"PRI ")


class FrameReceiver:
    """Collects bytes and hands out whole frames, without copying them out.

        buffer  | handed out ... | frame so far ......... | free .... |
                0              start                     end      capacity

    The buffer starts at 16 KiB, when the first bytes come. For a larger frame it grows by a factor of four at a time,
    so that a peer that only *announces* a large frame gets no memory for it; after the frame it shrinks again, unless
    more bytes wait already.

    Args:
        frame_size_bytes_max: the largest frame accepted, without its size (`socket.request.max.bytes` at a broker).
    """

    def __init__(self, frame_size_bytes_max: int) -> None:
        self.frame_size_bytes_max = frame_size_bytes_max
        self._view = _NOTHING
        self._capacity = 0
        self._start = 0
        self._end = 0
        self._largest_seen = 0  # a peer that sent a large frame gets room for the next one at once

    @property
    def capacity_bytes(self) -> int:
        """Bytes of memory that the buffer takes now."""
        return self._capacity

    @property
    def pending_bytes(self) -> int:
        """Bytes received that were not handed out in a frame yet."""
        return self._end - self._start

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """Where to put the next bytes; never empty. Ends the life of every frame handed out before.

        Args:
            size_hint: what the event loop would like; not needed.
        """
        held = self._end - self._start
        if held == 0:
            self._start = self._end = 0
            if self._capacity != BUFFER_SIZE_BYTES_MIN:
                self._replace(BUFFER_SIZE_BYTES_MIN)
            return self._view
        wanted = self._wanted_bytes(held)
        if not wanted <= self._capacity <= wanted * _GROWTH:
            self._replace(wanted)
        elif self._start:
            self._view[:held] = self._view[self._start : self._end]  # a memmove: they may overlap
            self._start, self._end = 0, held
        return self._view[self._end :]

    def release(self) -> None:
        """Give the buffer back if it holds nothing; the next bytes get another. Ends the life of frames likewise."""
        if self._end == self._start and self._capacity:
            self._view, self._capacity = _NOTHING, 0
            self._start = self._end = 0

    def on_bytes(self, size_bytes: int) -> None:
        """`size_bytes` were put at the start of what `get_buffer` gave last."""
        self._end += size_bytes

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its size, or None until more bytes have come.

        Returns:
            A writable view of the buffer, valid until the next `get_buffer`; the caller may patch it in place.

        Raises:
            MalformedMessageError: the size is negative or above the limit. The stream cannot be read any further:
                close the connection.
        """
        start = self._start
        held = self._end - start
        if held < _SIZE_BYTES:
            return None
        view = self._view
        (size,) = _SIZE.unpack_from(view, start)
        if not 0 <= size <= self.frame_size_bytes_max:
            raise self._refused(size, bytes(view[start : start + _SIZE_BYTES]))
        if held - _SIZE_BYTES < size:
            return None
        first = start + _SIZE_BYTES
        self._start = first + size
        self._largest_seen = max(self._largest_seen, size)
        return view[first : first + size]

    def _wanted_bytes(self, held: int) -> int:
        """The capacity for the frame that has begun, with room for the start of the one behind it; above `held`."""
        size = 0
        if held >= _SIZE_BYTES:
            size = int.from_bytes(self._view[self._start : self._start + _SIZE_BYTES], signed=True)
        whole = max(size, held) + BUFFER_SIZE_BYTES_MIN
        if size + _SIZE_BYTES <= BUFFER_SIZE_BYTES_MIN:
            return max(BUFFER_SIZE_BYTES_MIN, 2 * held)
        if size <= self._largest_seen:
            return whole
        # Grow once what there is has been filled; until then it is enough.
        earned = held * _GROWTH if held >= self._capacity else max(self._capacity, BUFFER_SIZE_BYTES_MIN)
        return min(whole, earned)

    def _replace(self, capacity: int) -> None:
        held = self._end - self._start
        view = memoryview(bytearray(capacity))
        view[:held] = self._view[self._start : self._end]
        self._view, self._capacity = view, capacity
        self._start, self._end = 0, held

    def _refused(self, size: int, raw: bytes) -> MalformedMessageError:
        if raw in _STRANGERS:
            guess = f" These bytes ({raw.decode()!r}) look like HTTP."
        elif raw[:2] == b"\x16\x03":
            guess = " These bytes look like the start of TLS; this is a plain-text port."
        else:
            guess = ""
        if size < 0:
            return MalformedMessageError(f"a frame's size is {size}, which is negative.{guess}")
        return MalformedMessageError(
            f"a frame's size is {size} bytes, above the limit of {self.frame_size_bytes_max}.{guess}"
        )
