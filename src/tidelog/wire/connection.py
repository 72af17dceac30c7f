"""Frames out of a stream of bytes. Pure, and the same for clients and servers."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from struct import Struct

from tidelog.base.errors import MalformedMessageError

BUFFER_SIZE_BYTES_MIN = 16 * 1024
"""What a connection holds that is in use. An idle one holds nothing: ten thousand of them would take 160 MiB."""

_SIZE = Struct(">i")
_SIZE_BYTES = _SIZE.size
_START = Struct(">ih")
_START_BYTES = _START.size
_SMALL_SIZE_BYTES = 64 << 10
"""What is smaller is within every limit of an API."""
_GROWTH = 4
_LARGE_SIZE_BYTES = 1 << 20
"""A buffer of this size grows by as much at a time, in memory that the system provides as it is written."""
_NOTHING = memoryview(bytearray())

_STRANGERS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"HTTP", b"PRI ")


class FrameReceiver:
    """Collects bytes and hands out whole frames, without copying them out.

        buffer  | handed out ... | frame so far ......... | free .... |
                0              start                     end      capacity

    The buffer starts at 16 KiB, when the first bytes come. For a larger frame it grows by a factor of four at a time,
    from 1 MiB on by 1 MiB at a time, so that a peer that only *announces* a large frame gets no memory for it; after
    the frame it shrinks again, unless more bytes wait already. Whoever counts memory looks at `needs_bytes` before the
    next `get_buffer`, which takes them, and calls `trim` when the frames that came are done with.

    Args:
        frame_size_bytes_max: the largest frame accepted, without its size (`socket.request.max.bytes` at a broker).
        size_bytes_max_of: for requests, the largest of an API by its key, which is the first that a request says; None
            for no other limit.

    Attributes:
        capacity_bytes: of memory, which the buffer takes now.
        needs_bytes: of memory, by which the buffer has to grow before more of the frame that has begun can come.
    """

    __slots__ = (
        "_end",
        "_largest_seen",
        "_size_bytes_max_of",
        "_start",
        "_view",
        "capacity_bytes",
        "frame_size_bytes_max",
        "needs_bytes",
    )

    def __init__(self, frame_size_bytes_max: int, size_bytes_max_of: Callable[[int], int | None] | None = None) -> None:
        self.frame_size_bytes_max = frame_size_bytes_max
        self._size_bytes_max_of = size_bytes_max_of
        self.capacity_bytes = 0
        self.needs_bytes = 0
        self._view = _NOTHING
        self._start = 0
        self._end = 0
        self._largest_seen = 0  # a peer that sent a large frame gets room for the next one at once, up to 1 MiB

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
            if self.capacity_bytes != BUFFER_SIZE_BYTES_MIN:
                self._replace(BUFFER_SIZE_BYTES_MIN)
            return self._view
        if self.needs_bytes:
            self._grow(self.capacity_bytes + self.needs_bytes)
        elif held == self.capacity_bytes:  # whole frames that nobody took
            self._grow(2 * held)
        else:
            self.trim()
        if self._start:
            self._view[:held] = self._view[self._start : self._end]  # a memmove: they may overlap
            self._start, self._end = 0, held
        return self._view[self._end : self.capacity_bytes]

    def trim(self) -> None:
        """Give back what the bytes that are held do not need. Frames that were handed out stay as they are.

        The buffer of an idle connection is given back by `release`.
        """
        held = self._end - self._start
        if not held:
            if self.capacity_bytes > BUFFER_SIZE_BYTES_MIN:
                self.release()
            return
        size = int.from_bytes(self._view[self._start : self._start + _SIZE_BYTES], signed=True) if held >= 4 else 0
        wanted = max(BUFFER_SIZE_BYTES_MIN, 2 * held, size if size <= self._largest_seen else 0)
        if self.capacity_bytes > _GROWTH * wanted:
            self._replace(wanted)

    def release(self) -> None:
        """Give the buffer back if it holds nothing; the next bytes get another. Frames handed out stay as they are."""
        if self._end == self._start and self.capacity_bytes:
            self._view, self.capacity_bytes = _NOTHING, 0
            self._start = self._end = 0

    def drop(self) -> None:
        """Nothing more comes: give the buffer back with what it holds. Frames handed out stay as they are."""
        self._start = self._end
        self.release()

    def on_bytes(self, size_bytes: int) -> None:
        """`size_bytes` were put at the start of what `get_buffer` gave last."""
        self._end += size_bytes

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its size, or None until more bytes have come.

        Returns:
            A writable view of the buffer, valid until the next `get_buffer`; the caller may patch it in place.

        Raises:
            MalformedMessageError: the size is negative or above a limit. The stream cannot be read any further: close
                the connection.
        """
        start = self._start
        held = self._end - start
        if held < _SIZE_BYTES:
            return None
        view = self._view
        (size,) = _SIZE.unpack_from(view, start)
        if not 0 <= size <= self.frame_size_bytes_max:
            raise self._refused(size, bytes(view[start : start + _SIZE_BYTES]))
        if size > _SMALL_SIZE_BYTES and held >= _START_BYTES and self._size_bytes_max_of is not None:
            self._check_size_of_api(size, _START.unpack_from(view, start)[1])
        first = start + _SIZE_BYTES
        end = first + size
        if end > self._end:
            self.needs_bytes = self._step(size, held)
            return None
        self._start = end
        if self._largest_seen < size <= _LARGE_SIZE_BYTES:
            self._largest_seen = size
        return view[first:end]

    def hand_over(self, frame: memoryview) -> memoryview:
        """The frame that was handed out last, for good: without a copy if nothing came behind it."""
        if self._end != self._start or self.capacity_bytes <= BUFFER_SIZE_BYTES_MIN:
            return memoryview(bytearray(frame))
        self.release()
        return frame

    def _check_size_of_api(self, size: int, api_key: int) -> None:
        assert self._size_bytes_max_of is not None
        limit = self._size_bytes_max_of(api_key)
        if limit is not None and size > limit:
            raise MalformedMessageError(
                f"a request of API {api_key} has {size} bytes; {limit} are the most that is read of it"
            )

    def _step(self, size: int, held: int) -> int:
        """By how much the buffer has to grow for a frame of `size`, with room for the start of the one behind it."""
        whole = size + _SIZE_BYTES
        capacity = self.capacity_bytes
        if whole <= capacity:
            return 0
        if size <= self._largest_seen:
            return whole + BUFFER_SIZE_BYTES_MIN - capacity
        if held < capacity:  # grow once what there is has been filled; until then it is enough
            return 0
        if capacity < _LARGE_SIZE_BYTES:
            return min(whole + BUFFER_SIZE_BYTES_MIN, capacity * _GROWTH) - capacity
        return min(whole - capacity, _LARGE_SIZE_BYTES)

    def _grow(self, capacity: int) -> None:
        """Let the buffer have so many bytes. A large one has room for its whole frame from then on, and is not copied
        again.
        """
        self.needs_bytes = 0
        if capacity <= len(self._view):
            self.capacity_bytes = capacity
        elif self.capacity_bytes < _LARGE_SIZE_BYTES:
            self._replace(capacity)
        else:
            size = int.from_bytes(self._view[self._start : self._start + _SIZE_BYTES], signed=True)
            self._move_to(_lazily_backed(max(capacity, size + _SIZE_BYTES)), capacity)

    def _replace(self, capacity: int) -> None:
        self._move_to(memoryview(bytearray(capacity)), capacity)

    def _move_to(self, view: memoryview, capacity: int) -> None:
        held = self._end - self._start
        view[:held] = self._view[self._start : self._end]
        self._view, self.capacity_bytes = view, capacity
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


def _lazily_backed(size_bytes: int) -> memoryview:
    """Memory of which only what is written is taken from the system."""
    if hasattr(mmap, "MAP_PRIVATE"):
        return memoryview(mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    return memoryview(mmap.mmap(-1, size_bytes))
