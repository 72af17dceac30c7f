"""A journal that makes do with one state: the speculative one, which is never cloned and never applied to twice."""

from __future__ import annotations

from typing import NoReturn

import pytest

from tidelog.base.errors import Code, InvariantBrokenError, KafkaError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.journal import Decision, Journal


class Words:
    """A state that nobody may copy."""

    def __init__(self) -> None:
        self.words: list[object] = []

    def apply(self, record: object) -> None:
        self.words.append(record)

    def clone(self) -> NoReturn:
        raise AssertionError("nobody asked for a copy")


def active() -> Journal[Words]:
    journal = Journal(Words(), not_active=Code.NOT_COORDINATOR, keeps_committed=False)
    journal.replay("a", Offset(0))
    journal.become_active(LeaderEpoch(1), Offset(2))
    return journal


def test_what_is_committed_was_applied_once() -> None:
    journal = active()
    journal.submit(Decision(("b", "c"), "done"))
    assert journal.speculative.words == ["a", "b", "c"]
    assert not journal.take_ready().replies
    journal.on_committed(Offset(4))
    ready = journal.take_ready()
    assert [reply.outcome for reply in ready.replies] == ["done"]
    assert ready.committed == ()
    assert journal.speculative.words == ["a", "b", "c"]


def test_it_keeps_nothing_of_what_it_replays() -> None:
    assert active().take_ready().committed == ()


def test_once_resigned_it_is_spent() -> None:
    journal = active()
    journal.submit(Decision(("b",), "done"))
    journal.resign()
    (reply,) = journal.take_ready().replies
    assert isinstance(reply.outcome, KafkaError)
    assert reply.outcome.code == Code.NOT_COORDINATOR
    with pytest.raises(InvariantBrokenError, match="speculation"):
        journal.replay("b", Offset(2))
    with pytest.raises(InvariantBrokenError, match="speculation"):
        journal.become_active(LeaderEpoch(2), Offset(3))


def test_replay_goes_forward_only() -> None:
    journal = Journal(Words(), not_active=Code.NOT_COORDINATOR, keeps_committed=False)
    journal.replay("a", Offset(3))
    with pytest.raises(InvariantBrokenError, match="after 4"):
        journal.replay("b", Offset(3))
