"""What members of a share group are told, held against what is done: see the names of the checkers.

A record is named by its partition, its offset and the leader epoch that wrote it: an offset alone may be used again.

    member a   acquires 5@2 ──── accepts it ──── told that it is kept
    member b                                                           from here on 5@2 is never acquired again;
                                                                       5@3 is another record, and is acquired

A tick counts what clients send and are told: of two ticks the later is the larger.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.base.ids import TopicPartition
from tidelog.sim.checkers.views import Broken, Record, text_of


@dataclass(slots=True, eq=False)
class Acquisition:
    """A member was told that a record is its own for a while.

    Attributes:
        delivery_count: as it was told.
        asked_at: the tick of the request.
        until_ms: so long it is the member's at the least, by the clock of the run.
        source: which share partition gave it, of those that there were one after the other; None if that is not known.
        session: in which the member was given it, as its leader has it.
        is_open: whether the member said nothing of it yet, in a session that goes on.
    """

    member_id: str
    partition: TopicPartition
    offset: int
    record: Record
    delivery_count: int
    asked_at: int
    until_ms: int
    source: object = None
    session: object = None
    is_open: bool = True

    @property
    def name(self) -> str:
        return f"{text_of(self.record)} at offset={self.offset} of {self.partition}"


class OneMemberAtATime:
    """No two members have a record at once.

    That holds for what one share partition gives: a leader that was deposed and does not know it delivers on, and so
    does the next one.
    """

    name = "OneMemberAtATime"

    def __init__(self) -> None:
        self._open: dict[tuple[TopicPartition, int], list[Acquisition]] = defaultdict(list)

    def others(self, one: Acquisition, now_ms: int) -> list[Acquisition]:
        """Who else has the record, as far as other members know."""
        key = one.partition, one.offset
        self._open[key] = known = [each for each in self._open[key] if each.is_open and each.until_ms > now_ms]
        return [each for each in known if each.member_id != one.member_id]

    def on_acquired(self, one: Acquisition, others: Sequence[Acquisition], now_ms: int) -> Iterator[Broken]:
        """A member was given a record.

        Args:
            others: whose sessions go on, of those that `others` tells of.
        """
        self._open[one.partition, one.offset].append(one)
        for other in others:
            if one.source is not None and one.source is other.source and one.until_ms > now_ms:
                left = other.until_ms - now_ms
                what = f"{one.name} was given to {one.member_id}, and {other.member_id} has it for {left} ms more"
                yield Broken(self.name, what)


class AcceptedOnce:
    """A record is delivered to nobody any more once its member was told that its acceptance, or rejection, is kept.

    What is kept may be forgotten where the log lost records since, and that is told.
    """

    name = "AcceptedOnce"

    def __init__(self) -> None:
        self._done: dict[tuple[TopicPartition, int, Record], tuple[str, int]] = {}

    def on_done(self, one: Acquisition, tick: int) -> None:
        """A member was told that what became of a record is kept."""
        self._done.setdefault((one.partition, one.offset, one.record), (one.member_id, tick))

    def check(self, one: Acquisition, forgotten_at: int) -> Iterator[Broken]:
        """A member was given a record, by whoever led the partition all along.

        Args:
            forgotten_at: the tick at which a leader last said that it forgets what a group has done; 0: never.
        """
        done_by, done_at = self._done.get((one.partition, one.offset, one.record), ("", one.asked_at))
        if done_at < one.asked_at and forgotten_at < done_at:
            what = f"{one.name} was done, as {done_by} was told, and was given to {one.member_id} since"
            yield Broken(self.name, what)


class _Known(NamedTuple):
    """What members know of a record."""

    delivery_count: int
    may_be_done: bool


class NoRecordSkipped:
    """Once a group has come to the end of a log, each record was delivered, and is done or was delivered too often.

    Where another record had an offset before, and was delivered, it is `NewRecordsAreDelivered` that is broken: what a
    group has done with a record that was taken back does not hide the one that is there now.

    Args:
        delivery_count_max: a record that was delivered so often is archived.
    """

    name = "NoRecordSkipped"
    name_of_new = "NewRecordsAreDelivered"

    def __init__(self, delivery_count_max: int) -> None:
        self._delivery_count_max = delivery_count_max
        self._known: dict[tuple[TopicPartition, int], dict[Record, _Known]] = defaultdict(dict)
        self._untold: dict[TopicPartition, list[int]] = defaultdict(list)

    def on_acquired(self, one: Acquisition) -> None:
        """A member was given a record."""
        of_offset = self._known[one.partition, one.offset]
        count, may_be_done = of_offset.get(one.record, _Known(0, may_be_done=False))
        of_offset[one.record] = _Known(max(count, one.delivery_count), may_be_done)

    def on_untold(self, partition: TopicPartition, end_offset: int) -> None:
        """A fetch had no answer: any record below `end_offset` may have been delivered to nobody's knowledge."""
        self._untold[partition].append(end_offset)

    def on_may_be_done(self, one: Acquisition) -> None:
        """A member accepted a record, or rejected it, and was not told that this does not count."""
        of_offset = self._known[one.partition, one.offset]
        of_offset[one.record] = _Known(of_offset[one.record].delivery_count, may_be_done=True)

    def check_settled(self, partition: TopicPartition, records: Sequence[Record | None]) -> Iterator[Broken]:
        """The group has come to the end of a log.

        Args:
            records: that readers are shown, by offset; None where there is none.
        """
        for offset, record in enumerate(records):
            if record is None:
                continue
            of_offset = self._known[partition, offset]
            count, may_be_done = of_offset.get(record, _Known(0, may_be_done=False))
            count += sum(end_offset > offset for end_offset in self._untold[partition])
            if may_be_done or count >= self._delivery_count_max:
                continue
            what = f"{text_of(record)} at offset={offset} of {partition} was delivered at most {count} times"
            if record in of_offset or not of_offset:
                yield Broken(self.name, f"{what}, and nobody accepted or rejected it")
            else:
                others = ", ".join(map(text_of, of_offset))
                yield Broken(self.name_of_new, f"{what}; what was delivered from that offset is {others}")
            return
