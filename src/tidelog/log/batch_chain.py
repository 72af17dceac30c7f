"""Whether the batches that are about to be served follow each other, looked at as their bytes pass by.

A checksum does not cover where a batch starts, how long it is, or its magic. A reader cannot find out that these
rotted: librdkafka passes over the records of a batch whose base offset is too high, and says nothing. So whoever reads
a `LogSlice` from its start on is given no byte beyond a header that does not continue the one before.

Kafka: none; `FileRecords` are sent as they lie in the file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from tidelog.base.errors import CorruptLogError
from tidelog.base.ids import Offset
from tidelog.base.ports import Buffer
from tidelog.records._choose import kernel

Rotten = Callable[[int, Offset | None, str], object]
"""Told where in the file to believe nothing any more, the offset that is to come there, and what is wrong."""


class BatchChain:
    """Follows the headers of one slice.

    Args:
        path: of the file, for errors.
        position: in the file, where the first batch starts.
        next_offset: what it has to start with; None for whatever it says.
        end: where in the file the slice ends, and the base offset of the batch that comes there. That is None at the
            end of the segment: the next one may begin later, if one between them is lost. None where nothing is known.
        cleaned_end_offset: up to here offsets may be missing, since compaction removed their records (exclusive).
        on_rotten: told before the error is raised, on the thread that reads.
    """

    __slots__ = ("_before", "_cleaned_end_offset", "_end", "_next_offset", "_on_rotten", "_path", "_position", "_rest")

    def __init__(
        self,
        path: str,
        position: int,
        next_offset: int | None,
        *,
        end: tuple[int, Offset | None] | None,
        cleaned_end_offset: int,
        on_rotten: Rotten,
    ) -> None:
        self._path = path
        self._position = position
        self._next_offset = -1 if next_offset is None else next_offset
        self._end = end
        self._cleaned_end_offset = cleaned_end_offset
        self._on_rotten = on_rotten
        self._before: tuple[int, Offset] | None = None  # position and base offset of the last batch
        self._rest = b""  # of a header, where the bytes that were read end within it

    def anew(self, position: int) -> BatchChain:
        """Another one for a part of the slice, whose first batch is taken for what it says."""
        return BatchChain(
            self._path,
            position,
            None,
            end=None,
            cleaned_end_offset=self._cleaned_end_offset,
            on_rotten=self._on_rotten,
        )

    def follow(self, data: Buffer, start: int) -> None:
        """Look at what was read. What was looked at before is passed over, and so is what is not read in its order.

        Args:
            data: the bytes.
            start: where in the file they lie.

        Raises:
            CorruptLogError: a batch does not continue the one before.
        """
        if not data:
            return
        at = self._position - start
        if at < 0:
            rest = self._rest
            if at + len(rest):
                return
            header = rest + bytes(memoryview(data)[: kernel.FOLLOWED_BYTES - len(rest)])
            if len(header) < kernel.FOLLOWED_BYTES:
                self._rest = header
                return
            self._rest = b""
            at += self._advance(header, 0)
        if at < len(data):
            at = self._advance(data, at) + at
            if at < len(data):
                self._rest = bytes(memoryview(data)[at:])

    def end(self, position: int) -> NoReturn:
        """The file ends at `position`, before the slice does: somebody else cut it. What was read is followed already.

        Raises:
            CorruptLogError: always.
        """
        reason = f"the file ends at {position}"
        before = self._before
        if before is not None and self._position > position:  # in the midst of the last batch that was followed
            self._on_rotten(*before, reason)
        else:
            self._on_rotten(self._position, None if self._next_offset < 0 else Offset(self._next_offset), reason)
        raise CorruptLogError(f"{self._path}: {reason}")

    def _advance(self, data: Buffer, at: int) -> int:
        """Follow the headers from `at` on. Returns by how much the position moved."""
        position, next_offset, before, before_offset, is_right = kernel.follow_offsets(
            data, at, self._next_offset, self._cleaned_end_offset
        )
        if before >= 0:
            self._before = self._position + before - at, Offset(before_offset)
        moved = position - at
        self._position += moved
        self._next_offset = next_offset
        if not is_right or not self._may_end():
            expected = None if next_offset < 0 else Offset(next_offset)
            what = "a batch" if expected is None else f"the batch of offset {expected}"
            reason = f"no header of {what} is at position {self._position}"
            # It may be the length or the offset of the batch before that rotted.
            self._on_rotten(*(self._before or (self._position, expected)), reason)
            raise CorruptLogError(f"{self._path}: {reason}")
        return moved

    def _may_end(self) -> bool:
        """Whether the batches end where the slice does, if they have come so far."""
        if self._end is None or self._position < self._end[0]:
            return True
        next_offset, (end_position, end_offset) = self._next_offset, self._end
        return self._position == end_position and (
            end_offset is None or next_offset == end_offset or next_offset < end_offset <= self._cleaned_end_offset
        )
