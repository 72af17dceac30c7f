"""The voter set that counts for one node, and whether the node is about to leave it."""

from __future__ import annotations

from tidelog.base.ids import BrokerId, Offset
from tidelog.quorum import ReplicaKey, Voter, VoterSet
from tidelog.quorum.voters_in_force import START, VotersInForce


def key(number: int) -> ReplicaKey:
    return ReplicaKey(BrokerId(number))


def set_of(*numbers: int) -> VoterSet:
    return VoterSet(tuple(Voter(key(number), ()) for number in numbers))


def test_voters_of_the_configuration_are_nothing_that_waits_to_be_committed() -> None:
    voters = VotersInForce(key(1), set_of(1, 2, 3), START, None)
    assert (voters.has_us, voters.others, voters.is_change_pending, voters.is_leaving) == (True, (2, 3), False, False)
    observer = VotersInForce(key(4), set_of(1, 2), START, None)
    assert (observer.has_us, observer.others) == (False, (1, 2))


def test_a_set_counts_at_once_and_is_pending_until_its_record_is_committed() -> None:
    voters = VotersInForce(key(1), set_of(1, 2), START, None)
    voters.on_voters(set_of(1, 2, 3), Offset(10))
    assert (voters.others, voters.end_offset, voters.is_change_pending) == ((2, 3), 10, True)
    assert not voters.is_leaving, "it stays"
    voters.on_committed(Offset(9))
    assert voters.is_change_pending
    voters.on_committed(Offset(10))
    assert not voters.is_change_pending


def test_who_is_removed_is_leaving_until_that_is_committed() -> None:
    voters = VotersInForce(key(1), set_of(1, 2), START, None)
    voters.on_voters(set_of(2), Offset(10))
    before = voters.clone()
    assert (voters.has_us, voters.is_leaving) == (False, True)
    voters.on_committed(Offset(10))
    assert not voters.is_leaving
    assert before.is_leaving
    assert before.canonical_key() != voters.canonical_key()


def test_who_is_removed_and_back_since_that_was_truncated_away_is_not_leaving() -> None:
    voters = VotersInForce(key(1), set_of(1, 2), START, None)
    voters.on_voters(set_of(2), Offset(10))
    voters.on_voters(set_of(1, 2), START)
    assert (voters.has_us, voters.is_leaving, voters.is_change_pending) == (True, False, False)


def test_who_starts_on_the_set_that_removes_it_is_leaving() -> None:
    assert VotersInForce(key(1), set_of(2), Offset(10), set_of(1, 2)).is_leaving
    assert not VotersInForce(key(1), set_of(2), START, set_of(1, 2)).is_leaving, "it was never in the log"
    assert not VotersInForce(key(3), set_of(2), Offset(10), set_of(1, 2)).is_leaving, "it never voted"
    assert not VotersInForce(key(1), set_of(2), Offset(10), None).is_leaving
