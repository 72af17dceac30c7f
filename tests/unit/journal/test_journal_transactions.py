"""Transactions of one log: nothing of them counts before their end, and nothing at all after an abort (KIP-868)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import Code, InvariantBrokenError, KafkaError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.journal import Boundary, Decision, Journal, LogTransactions

BEGIN, END, ABORT = Boundary.BEGIN, Boundary.END, Boundary.ABORT


@dataclass
class Names:
    """A state that remembers names, and notes for others how many it was told since they looked."""

    names: list[str] = field(default_factory=list)
    noted: int = 0

    def apply(self, record: object) -> None:
        if isinstance(record, str):
            self.names.append(record)
            self.noted += 1

    def clone(self) -> Names:
        return Names(list(self.names))

    def adopt(self, before: Names) -> None:
        self.noted += before.noted


RULES: LogTransactions[Names] = LogTransactions(
    boundary_of=lambda record: record if isinstance(record, Boundary) else None, fork=Names.clone, adopt=Names.adopt
)


def standing_by(*records: object) -> Journal[Names]:
    journal = Journal(Names(), not_active=Code.NOT_CONTROLLER, transactions=RULES)
    for offset, record in enumerate(records):
        journal.replay(record, Offset(offset))
    return journal


def active(*records: object) -> Journal[Names]:
    journal = standing_by(*records)
    journal.become_active(LeaderEpoch(3), Offset(len(records) + 1))
    return journal


def submit(journal: Journal[Names], *records: object) -> None:
    journal.submit(Decision(records, records))
    journal.take_ready()


def test_nothing_counts_before_the_end() -> None:
    journal = standing_by("a", BEGIN, "b", "c")
    journal.on_committed(Offset(5))  # behind a control record
    assert (journal.committed.names, journal.committed_end_offset, journal.next_offset) == (["a"], 1, 5)
    assert journal.is_in_transaction
    assert journal.take_ready().committed == ("a",)
    journal.replay(END, Offset(5))
    assert (journal.committed.names, journal.committed_end_offset, journal.next_offset) == (["a", "b", "c"], 6, 6)
    assert journal.take_ready().committed == ("b", "c")
    assert not journal.is_in_transaction
    assert journal.committed.noted == 3


def test_nothing_ever_counts_of_what_is_aborted() -> None:
    journal = standing_by("a", BEGIN, "b", ABORT, "c")
    assert (journal.committed.names, journal.committed_end_offset) == (["a", "c"], 5)
    assert journal.take_ready().committed == ("a", "c")


def test_who_decides_sees_it_at_once_and_answers_at_its_end() -> None:
    journal = active()
    submit(journal, BEGIN, "a")
    submit(journal, "b")
    assert journal.speculative.names == ["a", "b"]
    journal.on_committed(journal.next_offset)
    assert (journal.committed.names, journal.take_ready().replies) == ([], ())
    submit(journal, "c", END)
    journal.on_committed(journal.next_offset)
    assert journal.committed.names == ["a", "b", "c"]
    replies = journal.take_ready().replies
    assert [reply.outcome for reply in replies] == [(BEGIN, "a"), ("b",), ("c", END)]


def test_who_leads_next_aborts_it() -> None:
    journal = active("a")
    submit(journal, BEGIN, "b")
    journal.on_committed(journal.next_offset)
    journal.resign()
    (reply,) = journal.take_ready().replies
    assert isinstance(reply.outcome, KafkaError)
    assert journal.next_offset == 4, "what is committed is not replayed twice"
    journal.become_active(LeaderEpoch(4), Offset(5))
    assert journal.is_in_transaction
    assert journal.speculative.names == ["a"]
    assert journal.committed_end_offset == 2
    submit(journal, ABORT)
    submit(journal, "c")
    journal.on_committed(journal.next_offset)
    assert (journal.committed.names, journal.committed_end_offset) == (["a", "c"], 7)
    assert not journal.is_in_transaction


def test_a_snapshot_ends_what_was_open() -> None:
    journal = standing_by("a", BEGIN, "b")
    journal.load(["b", "c"], Offset(9))
    assert (journal.committed.names, journal.committed_end_offset) == (["a", "b", "c"], 9)
    assert not journal.is_in_transaction


@pytest.mark.parametrize("records", [(END,), (ABORT,), (BEGIN, "a", BEGIN)])
def test_a_boundary_out_of_place_is_a_bug_of_whoever_wrote_it(records: tuple[object, ...]) -> None:
    with pytest.raises(InvariantBrokenError):
        standing_by(*records)


PARTS = st.lists(
    st.one_of(
        st.integers(0, 9).map(lambda number: [f"n{number}"]),
        st.tuples(st.integers(0, 3), st.sampled_from([END, ABORT])).map(
            lambda part: [BEGIN, *(f"t{number}" for number in range(part[0])), part[1]]
        ),
    ),
    max_size=8,
)


@given(PARTS, st.integers(0, 40), st.data())
def test_what_counts_is_what_ended(parts: list[list[object]], count: int, data: st.DataObject) -> None:
    log = [record for part in parts for record in part][:count]
    expected: list[object] = []
    stable = 0
    for part in parts:
        end = stable + len(part)
        if end > len(log):
            is_open = part[0] is BEGIN and stable < len(log)
            break
        expected += [] if part[-1] is ABORT else [record for record in part if isinstance(record, str)]
        stable = end
    else:
        is_open = False
    journal = standing_by()
    published: list[object] = []
    offset = 0
    while offset < len(log):
        if data.draw(st.booleans()):
            journal.replay(log[offset], Offset(offset))
            offset += 1
        else:
            size = data.draw(st.integers(1, 3))
            journal.become_active(LeaderEpoch(1), Offset(offset))
            submit(journal, *log[offset : offset + size])
            offset = min(offset + size, len(log))
            journal.on_committed(Offset(offset))
            journal.resign()
        published += journal.take_ready().committed
    assert (journal.committed.names, journal.is_in_transaction) == (expected, is_open)
    assert (journal.committed_end_offset, journal.next_offset) == (stable if is_open else len(log), len(log))
