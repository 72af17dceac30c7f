"""What a loop of consume, transform and produce is told of its transactions, held against what became of them.

One transaction copies records of one partition into others, and commits how far it has read, all or nothing:

    source      [ r0 r1 r2 r3 r4 ]      transaction 7: r2 and r3 ──► copies, offset 4
    copies      [ 6:r0 6:r1 C 7:r2 7:r3 C ]
    its group   [ 4 ]

A copy names its transaction and its record, so that each log says by itself what became of a transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from tidelog.base.ids import TopicPartition
from tidelog.sim.checkers.views import Broken

KEYS = 3
"""Under which each transactional id leaves its last transactions in a compacted topic."""


class Fate(Enum):
    """What a producer knows of a transaction."""

    OPEN = auto()
    """Nobody has asked for its commit: it can only be aborted."""
    ASKED = auto()
    """A commit was asked for, and not answered."""
    COMMITTED = auto()
    """A commit was answered."""
    ABORTED = auto()
    """An abort was answered, or a commit was refused before it could have been done."""


@dataclass(slots=True, eq=False)
class CopyTransaction:
    """One of them.

    Attributes:
        number: no other transaction has it. Of two that one transactional id committed, the later has the larger.
        begin_offset: of the first record that it copies.
        next_offset: that it commits for its group, exclusive.
        copies: by partition, as they are produced.
        fate: what its producer was told.
        known_elections: unclean ones that every broker knew of when the commit was asked for: it may not overlook them.
    """

    number: int
    transactional_id: str
    source: TopicPartition
    begin_offset: int
    next_offset: int
    copies: Mapping[TopicPartition, list[bytes]]
    fate: Fate = Fate.OPEN
    known_elections: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"transaction {self.number} of {self.transactional_id}"


def copy_of(number: int, source: TopicPartition, offset: int, value: bytes) -> bytes:
    """The transformed record."""
    return b"%d %s@%d %s" % (number, str(source).encode(), offset, value)


def parse_copy(copy: bytes) -> tuple[int, bytes]:
    """The number of its transaction, and which record it is a copy of."""
    number, _, rest = copy.partition(b" ")
    return int(number), rest


def latest_key(one: CopyTransaction) -> bytes:
    """Under which a transaction leaves a record in a compacted topic."""
    return f"{one.transactional_id}/{one.number % KEYS}".encode()


class TransactionOutcomes:
    """AllOrNothing, AnsweredCommitsAreCommitted, AnsweredAbortsAreAborted: each transaction ends as it was answered.

    Each name is that of the same invariant in the exhaustive small worlds.
    """

    all_or_nothing = "AllOrNothing"
    commits = "AnsweredCommitsAreCommitted"
    aborts = "AnsweredAbortsAreAborted"
    names = (all_or_nothing, commits, aborts)

    def check(
        self,
        transactions: Iterable[CopyTransaction],
        committed: Mapping[TopicPartition, Collection[bytes]],
        has_lost: Mapping[TopicPartition, int],
    ) -> Iterator[Broken]:
        """All is over.

        Args:
            committed: what the logs have of copies whose transaction they say is committed. Other partitions that a
                transaction wrote to are not looked at.
            has_lost: partitions that may lack what was committed there, with how many unclean elections they had.
        """
        for one in transactions:
            there = {each: _visible(one, each, committed) for each in one.copies if each in committed}
            missing = [
                partition
                for partition, copies in there.items()
                if len(copies) < len(one.copies[partition])
                and has_lost.get(partition, 0) <= one.known_elections.get(partition, 0)
            ]
            visible = [partition for partition, copies in there.items() if copies]
            if one.fate in (Fate.OPEN, Fate.ABORTED):
                why = "was aborted" if one.fate is Fate.ABORTED else "was never to be committed"
                if visible:
                    yield Broken(self.aborts, f"{one.name} {why}, and is committed in {_names(visible)}")
            elif one.fate is Fate.COMMITTED:
                if missing:
                    yield Broken(self.commits, f"{one.name} was committed, and is not whole in {_names(missing)}")
            elif visible and missing:
                what = f"{one.name} is committed in {_names(visible)}, and not whole in {_names(missing)}"
                yield Broken(self.all_or_nothing, what)


def _visible(
    one: CopyTransaction, partition: TopicPartition, committed: Mapping[TopicPartition, Collection[bytes]]
) -> list[bytes]:
    return [copy for copy in one.copies[partition] if copy in committed[partition]]


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions)))


class CopiedOnce:
    """Each record of a source has one committed copy."""

    name = "CopiedOnce"

    def check(
        self, source: TopicPartition, records: Iterable[bytes], copies: Iterable[tuple[int, bytes]]
    ) -> Iterator[Broken]:
        """All is copied.

        Args:
            records: of the source, as `parse_copy` names them.
            copies: all that are committed, of whatever source.
        """
        prefix = b"%s@" % str(source).encode()
        numbers: dict[bytes, list[int]] = {}
        for number, record in copies:
            if record.startswith(prefix):
                numbers.setdefault(record, []).append(number)
        wanted = Counter(records)
        for record in (*wanted, *(numbers.keys() - wanted.keys())):
            found = numbers.get(record, [])
            if len(found) != wanted[record]:
                times = f"{len(found)} times (by transactions {found})" if found else "never"
                what = f"{record.decode(errors='replace')} is there {wanted[record]} times, and is copied {times}"
                yield Broken(self.name, what)
                return


class OffsetsFollowTransactions:
    """What a group has committed is what its last committed transaction says."""

    name = "OffsetsFollowTransactions"

    def check(self, transactions: Iterable[CopyTransaction], offset: int | None, known_number: int) -> Iterator[Broken]:
        """A stable offset was asked for, and answered.

        Args:
            transactions: of this group.
            offset: that was answered; None for none.
            known_number: a transaction whose commit had been answered before the offset was asked for, the last; 0
                for none.
        """
        possible = {
            one.next_offset
            for one in transactions
            if one.fate in (Fate.ASKED, Fate.COMMITTED) and one.number >= known_number
        }
        if known_number == 0:
            possible.add(0)
        if (offset or 0) not in possible:
            yield Broken(self.name, f"a group has committed one of {sorted(possible)}, and is told {offset}")


class NoAbortedRead:
    """Who reads what is committed is given nothing of a transaction that is not."""

    name = "NoAbortedRead"

    def check(self, reader: str, one: CopyTransaction | None, copy: bytes) -> Iterator[Broken]:
        """A copy was read.

        Args:
            one: its transaction.
        """
        if one is None or one.fate in (Fate.OPEN, Fate.ABORTED):
            why = "nobody's" if one is None else "aborted" if one.fate is Fate.ABORTED else "not to be committed"
            yield Broken(self.name, f"{reader} was given {copy.decode(errors='replace')}, which is {why}")


class CommittedIsRead:
    """Who read to the end has what the log has: of committed transactions alone, or of all."""

    name = "CommittedIsRead"

    def check(
        self, reader: str, has: Mapping[int, bytes], there: Mapping[int, bytes], end_offset: int | None = None
    ) -> Iterator[Broken]:
        """By offset.

        Args:
            there: from where the reader began.
            end_offset: up to which it may be given anything, exclusive; None for the end of the log.
        """
        for offset in sorted(has.keys() | there.keys()):
            is_to_be_read = end_offset is None or offset < end_offset
            if has.get(offset) != (there.get(offset) if is_to_be_read else None):
                what = f"{reader} has {has.get(offset)!r} at offset={offset}, the log has {there.get(offset)!r}"
                yield Broken(self.name, what)
                return


class LastOfEachKey:
    """A compacted topic has the last committed value of each key."""

    name = "LastOfEachKey"

    def check(self, has: Mapping[bytes, bytes], wanted: Mapping[bytes, int]) -> Iterator[Broken]:
        """It was read from its start to its end.

        Args:
            has: the last value of each key.
            wanted: the number of the last committed transaction that wrote each key.
        """
        for key in sorted(has.keys() | wanted.keys()):
            number = parse_copy(has[key])[0] if key in has else None
            if number != wanted.get(key):
                what = f"{key.decode()} is of transaction {number}, the last committed is {wanted.get(key)}"
                yield Broken(self.name, what)
                return
