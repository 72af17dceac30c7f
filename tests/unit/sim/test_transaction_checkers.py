"""The checkers of transactions: what breaks each, and what does not."""

from __future__ import annotations

import pytest

from tidelog.base.ids import BrokerId, Offset, PartitionIndex, ProducerId, TopicPartition
from tidelog.sim.checkers.copies import (
    CommittedIsRead,
    CopiedOnce,
    CopyTransaction,
    Fate,
    LastOfEachKey,
    NoAbortedRead,
    OffsetsFollowTransactions,
    TransactionOutcomes,
    copy_of,
    parse_copy,
)
from tidelog.sim.checkers.transactional_logs import (
    LastStableOffsetIsStable,
    TransactionalBatch,
    TransactionalView,
    decided,
    first_undecided,
)

SOURCE, A, B = (TopicPartition(topic, PartitionIndex(0)) for topic in ("source", "a", "b"))
COPY_A, COPY_B = copy_of(7, SOURCE, 0, b"x"), copy_of(7, SOURCE, 1, b"y")


def transaction(fate: Fate, number: int = 7, next_offset: int = 2) -> CopyTransaction:
    copies = {A: [copy_of(number, SOURCE, 0, b"x")], B: [copy_of(number, SOURCE, 1, b"y")]}
    return CopyTransaction(number, "t", SOURCE, 0, next_offset, copies, fate)


def batches(text: str) -> list[TransactionalBatch]:
    """`a` is a batch of producer a, `A+` the commit of its transaction, `A-` its abort."""
    found = []
    for offset, word in enumerate(text.split()):
        commits = None if len(word) == 1 else word[1] == "+"
        producer_id = ProducerId(ord(word[0].lower()))
        found.append(TransactionalBatch(Offset(offset), Offset(offset + 1), producer_id, commits))
    return found


def stable(text: str, high_watermark: int, last_stable_offset: int) -> list[str]:
    view = TransactionalView(BrokerId(1), batches(text), 1, Offset(high_watermark), Offset(last_stable_offset))
    return [one.what for one in LastStableOffsetIsStable().check(view)]


# Logs.


def test_what_became_of_each_batch() -> None:
    found = {each.batch.base_offset: each.commits for each in decided(batches("a b a A- a B+"))}
    assert found == {0: False, 1: True, 2: False, 4: None}


def test_where_the_first_transaction_begins_that_is_open() -> None:
    assert first_undecided(batches("a A+ b a A- b")) == 2
    assert first_undecided(batches("a b B+ A-")) is None


@pytest.mark.parametrize(
    ("text", "high_watermark", "last_stable_offset"),
    [("a A+ b", 3, 2), ("a A+ b", 2, 2), ("a b A+", 3, 1), ("a A+", 1, 0), ("a A+ b B-", 4, 4)],
)
def test_a_last_stable_offset_that_passes_nothing(text: str, high_watermark: int, last_stable_offset: int) -> None:
    assert stable(text, high_watermark, last_stable_offset) == []


@pytest.mark.parametrize(
    ("text", "high_watermark", "last_stable_offset", "told"),
    [
        ("a b A+", 3, 2, "broker 1 has last stable offset 2, and a transaction is open from offset=1 on"),
        ("a A+", 1, 1, "broker 1 has last stable offset 1, and a transaction is open from offset=0 on"),
        ("a A+", 1, 2, "broker 1 has last stable offset 2 above high watermark 1"),
    ],
)
def test_a_last_stable_offset_that_passes_something(
    text: str, high_watermark: int, last_stable_offset: int, told: str
) -> None:
    assert stable(text, high_watermark, last_stable_offset) == [told]


def test_a_log_that_grows_is_looked_at_where_it_grew_and_one_that_was_truncated_anew() -> None:
    checker = LastStableOffsetIsStable()

    def first_open(text: str, reading: int, high_watermark: int) -> int | None:
        return checker.first_open(
            TransactionalView(BrokerId(1), batches(text), reading, Offset(high_watermark), Offset(0))
        )

    assert first_open("a b A+", 1, 2) == 0
    assert first_open("a b A+", 1, 3) == 1
    assert first_open("a b A+ B-", 1, 4) is None
    assert first_open("a b", 2, 2) == 0
    assert first_open("a b", 2, 1) == 0


# What became of transactions.


def outcome(one: CopyTransaction, a: set[bytes], b: set[bytes], lost: dict[TopicPartition, int] | None = None) -> str:
    found = list(TransactionOutcomes().check([one], {A: a, B: b}, lost or {}))
    return ", ".join(each.invariant for each in found)


def test_a_transaction_is_whole_or_not_there_as_it_was_answered() -> None:
    whole, nothing, half = ({COPY_A}, {COPY_B}), (set[bytes](), set[bytes]()), ({COPY_A}, set[bytes]())
    assert outcome(transaction(Fate.COMMITTED), *whole) == ""
    assert outcome(transaction(Fate.COMMITTED), *half) == "AnsweredCommitsAreCommitted"
    assert outcome(transaction(Fate.COMMITTED), *nothing) == "AnsweredCommitsAreCommitted"
    assert outcome(transaction(Fate.ABORTED), *nothing) == ""
    assert outcome(transaction(Fate.ABORTED), *half) == "AnsweredAbortsAreAborted"
    assert outcome(transaction(Fate.OPEN), *half) == "AnsweredAbortsAreAborted"
    assert outcome(transaction(Fate.ASKED), *whole) == outcome(transaction(Fate.ASKED), *nothing) == ""
    assert outcome(transaction(Fate.ASKED), *half) == "AllOrNothing"


def test_an_unclean_election_excuses_what_is_missing_unless_it_was_known_when_the_commit_was_asked_for() -> None:
    one = transaction(Fate.COMMITTED)
    assert outcome(one, {COPY_A}, set(), {B: 1}) == ""
    assert outcome(one, set(), {COPY_B}, {B: 1}) == "AnsweredCommitsAreCommitted"
    one.known_elections = {B: 1}
    assert outcome(one, {COPY_A}, set(), {B: 1}) == "AnsweredCommitsAreCommitted"
    assert outcome(one, {COPY_A}, set(), {B: 2}) == ""


def test_a_record_has_one_copy() -> None:
    records = [parse_copy(COPY_A)[1], parse_copy(COPY_B)[1]]
    checker, both = CopiedOnce(), [parse_copy(COPY_A), parse_copy(COPY_B)]
    assert list(checker.check(SOURCE, records, both)) == []
    for wrong in (both[:1], [*both, parse_copy(copy_of(8, SOURCE, 0, b"x"))]):
        (broken,) = checker.check(SOURCE, records, wrong)
        assert broken.invariant == "CopiedOnce"
    (broken,) = checker.check(SOURCE, records[:1], both)
    assert broken.what == "source-0@1 y is there 0 times, and is copied 1 times (by transactions [7])"
    assert list(checker.check(A, [], both)) == []  # of another source


def test_an_offset_is_that_of_a_transaction_that_may_be_committed() -> None:
    ones = [
        transaction(Fate.COMMITTED, 1, 10),
        transaction(Fate.ABORTED, 2, 20),
        transaction(Fate.COMMITTED, 3, 30),
        transaction(Fate.ASKED, 4, 40),
        transaction(Fate.OPEN, 5, 50),
    ]

    def holds(offset: int | None, known_number: int) -> bool:
        return not list(OffsetsFollowTransactions().check(ones, offset, known_number))

    assert [offset for offset in (None, 10, 20, 30, 40, 50) if holds(offset, 3)] == [30, 40]
    assert [offset for offset in (None, 10, 20, 30, 40, 50) if holds(offset, 0)] == [None, 10, 30, 40]


# Readers.


def test_nothing_of_an_aborted_transaction_is_read() -> None:
    def told(one: CopyTransaction | None) -> list[str]:
        return [each.what for each in NoAbortedRead().check("R", one, COPY_A)]

    assert told(transaction(Fate.COMMITTED)) == told(transaction(Fate.ASKED)) == []
    assert told(transaction(Fate.ABORTED)) == ["R was given 7 source-0@0 x, which is aborted"]
    assert told(transaction(Fate.OPEN)) == ["R was given 7 source-0@0 x, which is not to be committed"]
    assert told(None) == ["R was given 7 source-0@0 x, which is nobody's"]


def test_who_read_to_the_end_has_what_is_there() -> None:
    checker = CommittedIsRead()
    assert list(checker.check("R", {0: b"x", 2: b"y"}, {0: b"x", 2: b"y"})) == []
    for has in ({0: b"x"}, {0: b"x", 1: b"z", 2: b"y"}, {0: b"x", 2: b"z"}):
        assert len(list(checker.check("R", has, {0: b"x", 2: b"y"}))) == 1


def test_who_reads_what_is_committed_has_nothing_beyond_a_transaction_that_is_open() -> None:
    checker, there = CommittedIsRead(), {0: b"x", 2: b"y"}
    assert list(checker.check("R", {0: b"x"}, there, 1)) == []
    assert len(list(checker.check("R", {}, there, 1))) == 1
    assert len(list(checker.check("R", there, there, 1))) == 1


def test_a_compacted_topic_has_the_last_of_each_key() -> None:
    checker = LastOfEachKey()
    assert list(checker.check({b"k": COPY_A}, {b"k": 7})) == []
    for wanted in ({}, {b"k": 6}, {b"k": 7, b"l": 1}):
        assert len(list(checker.check({b"k": COPY_A}, wanted))) == 1
