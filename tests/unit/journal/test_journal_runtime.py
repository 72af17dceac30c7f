"""The runtime of a replayed state: what is applied when, and which replies may leave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import Code, InvariantBrokenError, KafkaError, refusal
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.journal import Decision, Journal, Ready, Ticket


@dataclass
class Names:
    """A state that remembers names, each at most once."""

    names: list[str] = field(default_factory=list)

    def apply(self, record: object) -> None:
        assert isinstance(record, str)
        self.names.append(record)

    def clone(self) -> Self:
        return type(self)(list(self.names))

    def decide_add(self, names: tuple[str, ...]) -> Decision[object]:
        for name in names:
            if name in self.names:
                raise refusal(Code.DUPLICATE_RESOURCE, name)
        return Decision(names, f"added {' '.join(names)}")


def active(journal: Journal[Names] | None = None, next_offset: int = 1) -> Journal[Names]:
    journal = journal or Journal(Names(), not_active=Code.NOT_CONTROLLER)
    journal.become_active(LeaderEpoch(3), Offset(next_offset))
    return journal


def propose(journal: Journal[Names], decide: Callable[[Names], Decision[object]]) -> Ticket:
    return journal.submit(Decision.over(journal.speculative, decide))


def outcomes(ready: Ready) -> list[object]:
    return [reply.outcome for reply in ready.replies]


def test_a_reply_waits_for_its_batch() -> None:
    journal = active()
    ticket = propose(
        journal,
        lambda state: state.decide_add(
            (
                "a",
                "b",
            )
        ),
    )

    ready = journal.take_ready()
    (batch,) = ready.batches
    assert (batch.base_offset, batch.end_offset, batch.leader_epoch) == (1, 3, 3)
    assert batch.records == ("a", "b")
    assert not ready.replies
    assert not ready.committed
    assert journal.committed.names == []
    assert journal.speculative.names == ["a", "b"]

    journal.on_committed(Offset(3))
    ready = journal.take_ready()
    assert ready.committed == ("a", "b")
    assert journal.committed.names == ["a", "b"]
    (reply,) = ready.replies
    assert (reply.ticket, reply.outcome, reply.end_offset) == (ticket, "added a b", 3)
    assert not journal.take_ready()


def test_a_refusal_waits_for_what_it_saw() -> None:
    journal = active()
    propose(journal, lambda state: state.decide_add(("a",)))
    propose(journal, lambda state: state.decide_add(("a",)))
    assert not journal.take_ready().replies

    journal.on_committed(Offset(2))
    added, refused = journal.take_ready().replies
    assert added.outcome == "added a"
    assert isinstance(refused.outcome, KafkaError)
    assert refused.outcome.code == Code.DUPLICATE_RESOURCE
    assert refused.end_offset == 2


def test_a_refusal_that_depends_on_nothing_pending_leaves_at_once() -> None:
    journal = active()
    propose(journal, lambda state: state.decide_add(("a",)))
    journal.on_committed(Offset(2))
    journal.take_ready()
    propose(journal, lambda state: state.decide_add(("a",)))
    assert len(journal.take_ready().replies) == 1


def test_the_token_of_a_reply_is_the_end_of_its_own_batch() -> None:
    journal = active()
    propose(journal, lambda state: state.decide_add(("a",)))
    propose(journal, lambda state: state.decide_add(("b",)))
    journal.on_committed(Offset(3))
    assert [reply.end_offset for reply in journal.take_ready().replies] == [2, 3]


def test_half_a_batch_is_not_committed() -> None:
    journal = active()
    propose(journal, lambda state: state.decide_add(("a",)))
    propose(
        journal,
        lambda state: state.decide_add(
            (
                "b",
                "c",
            )
        ),
    )
    journal.on_committed(Offset(3))
    assert journal.committed.names == ["a"]
    assert journal.committed_end_offset == 2
    assert outcomes(journal.take_ready()) == ["added a"]


def test_resigning_throws_speculation_away() -> None:
    journal = active()
    propose(journal, lambda state: state.decide_add(("a",)))
    propose(journal, lambda state: state.decide_add(("b",)))
    journal.on_committed(Offset(2))
    journal.resign()

    ready = journal.take_ready()
    assert ready.batches == ()
    assert ready.replies[0].outcome == "added a"
    assert isinstance(ready.replies[1].outcome, KafkaError)
    assert ready.replies[1].outcome.code == Code.NOT_CONTROLLER
    assert journal.committed.names == ["a"]
    assert journal.next_offset == 2
    with pytest.raises(KafkaError):
        propose(journal, lambda state: state.decide_add(("c",)))

    journal.replay("b", Offset(2))  # another leader committed what was pending here
    journal.on_committed(Offset(4))
    assert journal.committed.names == ["a", "b"]
    active(journal, next_offset=4)
    assert journal.speculative.names == ["a", "b"]


def test_the_name_of_the_refusal_is_the_journals() -> None:
    journal = Journal(Names(), not_active=Code.NOT_COORDINATOR)
    with pytest.raises(KafkaError) as refused:
        propose(journal, lambda state: state.decide_add(("a",)))
    assert refused.value.code == Code.NOT_COORDINATOR


def test_control_records_move_the_end() -> None:
    journal = Journal(Names(), not_active=Code.NOT_CONTROLLER)
    journal.replay("a", Offset(1))
    journal.on_committed(Offset(5))
    assert journal.committed_end_offset == 5
    active(journal, next_offset=6)
    propose(journal, lambda state: state.decide_add(("b",)))
    assert journal.take_ready().batches[0].base_offset == 6


def test_replay_is_for_those_who_stand_by() -> None:
    journal = active()
    with pytest.raises(InvariantBrokenError):
        journal.replay("a", Offset(1))
    journal.resign()
    with pytest.raises(InvariantBrokenError):
        journal.replay("a", Offset(0))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("propose"), st.integers(0, 9)),
        st.tuples(st.just("commit"), st.integers(0, 40)),
        st.tuples(st.just("resign"), st.just(0)),
        st.tuples(st.just("lead"), st.just(0)),
    ),
    max_size=40,
)


@given(STEPS)
def test_no_reply_leaves_before_what_it_depends_on(steps: list[tuple[str, int]]) -> None:
    journal = Journal(Names(), not_active=Code.NOT_CONTROLLER)
    durable: list[str | None] = []  # the log as a majority has it; None is a control record
    appended: list[str | None] = []
    needs: dict[int, list[str]] = {}  # per ticket: all that its decision saw
    answered: set[int] = set()
    epoch = 0

    def drive() -> None:
        ready = journal.take_ready()
        for batch in ready.batches:
            assert batch.base_offset == len(appended)
            appended.extend(str(record) for record in batch.records)
        for reply in ready.replies:
            assert reply.ticket not in answered
            answered.add(reply.ticket)
            if not (isinstance(reply.outcome, KafkaError) and reply.outcome.code == Code.NOT_CONTROLLER):
                assert set(needs[reply.ticket]) <= set(durable[: reply.end_offset])

    for step, number in steps:
        if step == "propose" and journal.is_active:
            before = list(journal.speculative.names)
            name = f"n{number}"
            ticket = propose(journal, partial(Names.decide_add, names=(name,)))
            needs[ticket] = [*before, name]
        elif step == "commit" and journal.is_active:
            drive()
            durable.extend(appended[len(durable) : max(len(durable), min(number, len(appended)))])
            journal.on_committed(Offset(len(durable)))
        elif step == "resign" and journal.is_active:
            journal.resign()
            drive()
            del appended[len(durable) :]
            assert len(answered) == len(needs)
        elif step == "lead" and not journal.is_active:
            epoch += 1
            durable.append(None)
            appended[:] = durable
            journal.become_active(LeaderEpoch(epoch), Offset(len(durable)))
        drive()
        assert journal.committed.names == [name for name in durable if name is not None]
        assert len(set(journal.committed.names)) == len(journal.committed.names)


def test_a_snapshot_takes_the_place_of_what_was_not_seen() -> None:
    journal = Journal(Names(), not_active=Code.NOT_CONTROLLER)
    journal.replay("a", Offset(0))
    journal.take_ready()
    journal.load(["b", "c"], Offset(40))
    assert (journal.committed.names, journal.take_ready().committed) == (["a", "b", "c"], ("b", "c"))
    journal.replay("d", Offset(40))
    with pytest.raises(InvariantBrokenError):
        journal.load([], Offset(40))
    with pytest.raises(InvariantBrokenError):
        active().load([], Offset(90))


def test_decisions_go_on_behind_what_the_driver_appends_itself() -> None:
    journal = active()
    propose(journal, lambda state: state.decide_add(("a",)))
    with pytest.raises(InvariantBrokenError):
        journal.skip_to(Offset(3))  # a batch is to lie where that would
    journal.take_ready()
    journal.skip_to(Offset(3))
    propose(journal, lambda state: state.decide_add(("b",)))
    (batch,) = journal.take_ready().batches
    assert batch.base_offset == 3
    journal.on_committed(Offset(3))
    assert (journal.committed.names, journal.committed_end_offset) == (["a"], 3)
    journal.on_committed(Offset(4))
    assert journal.committed.names == ["a", "b"]
