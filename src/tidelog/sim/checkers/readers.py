"""NoSilentLoss: a reader that read a record, or stood past it, is told when it is lost.

What a reader has been given and was not told to undo is a history. As every record has one record before it, wherever
it is, that history is the log's as long as each record given follows the one that came before it in the log as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tidelog.base.ids import LeaderEpoch
from tidelog.sim.checkers.views import Broken, Record, text_of

RecordBefore = Callable[[LeaderEpoch, int], Record | None]
"""Given the leader epoch and the offset of a record: the one before it in every log; None where that is not known."""


class ReaderBook:
    """What one reader has of one partition: given, and not taken back.

    Attributes:
        records: by offset.
        next_offset: of the record that comes next; None where it is to be found anew.
        begins_at: what lies below is none of its business.
    """

    __slots__ = ("begins_at", "next_offset", "records")

    def __init__(self, begins_at: int = 0) -> None:
        self.records: dict[int, Record] = {}
        self.next_offset: int | None = begins_at
        self.begins_at = begins_at


class NoSilentLoss:
    """The readers of one partition.

    Args:
        before: which record lies before another, as the logs had it.
    """

    name = "NoSilentLoss"

    def __init__(self, before: RecordBefore) -> None:
        self.books: dict[str, ReaderBook] = {}
        self._before = before

    def on_given(self, reader: str, offset: int, record: Record) -> Iterator[Broken]:
        """A record came. It is broken if one is left out, or if the last one is none of this one's log."""
        book = self.books.setdefault(reader, ReaderBook())
        expected, last = book.next_offset, book.records.get(offset - 1)
        if expected is not None and offset != expected:
            what = f"{reader} was given {text_of(record)} at offset={offset} after offset={expected - 1}"
            yield Broken(self.name, f"{what}, and was told of nothing")
        before = self._before(record[0], offset)
        if last is not None and before is not None and last != before:
            what = f"{reader} was given {text_of(record)} after {text_of(last)} at offset={offset - 1}"
            yield Broken(self.name, f"{what}, where that log has {text_of(before)}, and was told of nothing")
        if expected is None:
            book.begins_at = max(book.begins_at, offset) if not book.records else book.begins_at
        book.records[offset] = record
        book.next_offset = offset + 1

    def on_told(self, reader: str, divergent_offset: int | None, next_offset: int | None) -> None:
        """It was told that records are gone.

        Args:
            divergent_offset: what was read from there on is undone; None where that cannot be told: all may be.
            next_offset: where it goes on; None while that is looked up.
        """
        book = self.books.setdefault(reader, ReaderBook())
        kept = divergent_offset if divergent_offset is not None else (next_offset or 0)
        book.records = {offset: record for offset, record in book.records.items() if offset < kept}
        if divergent_offset is None:
            book.records.clear()
            book.begins_at = next_offset or 0
        book.next_offset = next_offset

    def on_sought(self, reader: str, offset: int) -> None:
        """It goes on somewhere of its own accord: what it had before is its own business."""
        self.books[reader] = ReaderBook(offset)

    def on_left(self, reader: str) -> None:
        """It reads no more, and cannot be told."""
        self.books.pop(reader, None)

    def check_settled(self, log_start_offset: int, records: Sequence[Record]) -> Iterator[Broken]:
        """All is healed, and read to its end: whoever was told of nothing has what the log has, and all of it.

        Args:
            log_start_offset: what lies below was deleted by right.
            records: the log, from there on.
        """
        end_offset = log_start_offset + len(records)
        for reader, book in self.books.items():
            ends_at = max([end_offset, *(offset + 1 for offset in book.records)])
            for offset in range(max(book.begins_at, log_start_offset), ends_at):
                has = book.records.get(offset)
                there = records[offset - log_start_offset] if offset < end_offset else None
                if has != there:
                    what = f"{reader} has {text_of(has)} at offset={offset}, the log has {text_of(there)}"
                    yield Broken(self.name, f"{what}, and it was told of nothing")
                    break
