"""What a leader's machine consists of, each part alone: the followers, their silence, and the producers that wait."""

from __future__ import annotations

from support.fixtures.led_replica import LEADER, SILENCE_MS_MAX, THREE, TWO, state_of
from tidelog.base.errors import Code
from tidelog.base.ids import BrokerEpoch, BrokerId, CorrelationId, Offset
from tidelog.replica import AcceptedFetch
from tidelog.replica.followers import Followers
from tidelog.replica.isr import InSyncReplicas
from tidelog.replica.produce_waits import ProduceWaits
from tidelog.replica.progress import FollowerProgress
from tidelog.replica.silence import Silence

# The followers.


def test_who_fetches_at_the_end_is_caught_up_then_and_who_never_fetched_is_silent_from_the_first() -> None:
    progress = FollowerProgress(-5)
    assert progress.silent_since_ms(Offset(10)) == 0
    progress.on_fetch(AcceptedFetch(TWO, Offset(10), BrokerEpoch(1), 50), Offset(10))
    assert progress.caught_up_ms == 50


def followers_of(**ends: int) -> Followers:
    """Brokers 2 and 3, which have fetched at these offsets of a log that ends at 10."""
    followers = Followers(LEADER, (LEADER, TWO, THREE), 0)
    for broker, end in ((TWO, ends.get("two")), (THREE, ends.get("three"))):
        if end is not None:
            fetch = AcceptedFetch(broker, Offset(end), BrokerEpoch(1), 0)
            followers.progress[broker].on_fetch(fetch, Offset(10))
    return followers


def test_the_leader_is_none_of_its_followers() -> None:
    assert len(Followers(LEADER, (LEADER,), 0)) == 0
    followers = followers_of()
    assert (len(followers), TWO in followers, LEADER in followers) == (2, True, False)


def test_the_active_ones_are_those_of_the_brokers_that_are_active() -> None:
    followers = followers_of()
    assert followers.active == frozenset()
    followers.active_brokers = {LEADER: BrokerEpoch(1), TWO: BrokerEpoch(20)}
    assert followers.active == {TWO}


def test_what_the_slowest_lacks_that_has_fetched() -> None:
    assert followers_of().lag_max(Offset(10)) == 0, "nobody has said anything yet"
    assert followers_of(two=9).lag_max(Offset(10)) == 1
    assert followers_of(two=9, three=4).lag_max(Offset(10)) == 6


def test_who_of_some_has_all_below_an_offset() -> None:
    assert followers_of().ends_from(0, {TWO}) == {}, "nobody has said anything yet"
    followers = followers_of(two=9, three=9)
    assert followers.ends_from(9, {LEADER, TWO}) == {TWO: 9}
    assert followers.ends_from(10, {LEADER, TWO}) == {}


def test_who_of_some_has_been_behind_for_long() -> None:
    followers = followers_of(two=10, three=9)
    assert followers.lagging({LEADER, TWO, THREE}, Offset(10), since_ms=1) == {THREE}
    assert followers.lagging({LEADER, TWO, THREE}, Offset(10), since_ms=0) == set()
    assert followers.lagging({LEADER, TWO}, Offset(10), since_ms=1) == set()


def test_whoever_stays_is_known_and_whoever_comes_or_comes_back_is_not() -> None:
    followers = followers_of(two=10, three=9)
    before = followers.clone()
    followers.on_replicas((LEADER, TWO))
    followers.on_replicas((LEADER, TWO, THREE))
    assert followers.ends_from(0, {TWO, THREE}) == {TWO: 10}
    assert before.ends_from(0, {TWO, THREE}) == {TWO: 10, THREE: 9}
    assert before.canonical_key() == followers_of(two=10, three=9).canonical_key() != followers.canonical_key()


# Their silence.


def silence_of(followers: Followers, min_insync: int = 2) -> Silence:
    return Silence(InSyncReplicas(state_of(), min_insync), followers, SILENCE_MS_MAX)


def test_a_leader_that_needs_nobody_is_never_cut_off() -> None:
    silence = silence_of(followers_of(), min_insync=1)
    assert silence.cut_off_from_ms(Offset(10)) is None
    silence.look(Offset(10), 1 << 40)
    assert not silence.is_cut_off


def test_it_is_cut_off_once_too_few_have_fetched_for_so_long() -> None:
    silence = silence_of(followers_of())
    assert silence.cut_off_from_ms(Offset(10)) == SILENCE_MS_MAX + 1
    silence.look(Offset(10), SILENCE_MS_MAX)
    assert not silence.is_cut_off
    silence.look(Offset(10), SILENCE_MS_MAX + 1)
    silence.look(Offset(10), SILENCE_MS_MAX + 9)
    assert silence.cut_off_ms == SILENCE_MS_MAX + 1, "it is known since then"
    silence.silence_ms_max += 1
    silence.look_again(Offset(10))
    assert not silence.is_cut_off, "by the new setting it was not, when that was found out"
    silence.look_again(Offset(10))
    assert not silence.is_cut_off


def test_as_many_have_to_fetch_as_it_needs_and_the_last_of_them_to_fetch_counts() -> None:
    followers = followers_of(two=10)
    assert silence_of(followers, min_insync=2).cut_off_from_ms(Offset(10)) is None
    assert silence_of(followers, min_insync=3).cut_off_from_ms(Offset(10)) == SILENCE_MS_MAX + 1
    followers = followers_of()
    followers.progress[TWO].fetched_ms = 7
    assert silence_of(followers, min_insync=2).cut_off_from_ms(Offset(10)) == 7 + SILENCE_MS_MAX + 1
    assert silence_of(followers, min_insync=3).cut_off_from_ms(Offset(10)) == SILENCE_MS_MAX + 1


def test_one_that_may_be_in_sync_and_is_silent_may_lead_by_now_however_few_are_needed() -> None:
    in_sync = InSyncReplicas(state_of(), 1)
    silence = Silence(in_sync, followers_of(two=10, three=10), SILENCE_MS_MAX)
    assert not silence.may_be_succeeded
    silence.on_silent(TWO)
    silence.look(Offset(10), 0)
    assert silence.may_be_succeeded
    assert not silence.is_cut_off
    silence.on_contact(TWO)
    assert not silence.may_be_succeeded
    silence.on_silent(BrokerId(9))
    assert not silence.may_be_succeeded, "it is not in sync, so nobody elects it"


def test_who_fetches_nothing_at_all_is_silent_though_it_has_everything() -> None:
    followers = followers_of(two=10, three=10)
    silence = silence_of(followers)
    assert silence.cut_off_from_ms(Offset(10)) is None
    silence.on_silent(TWO)
    assert silence.cut_off_from_ms(Offset(10)) is None, "one is enough"
    silence.on_silent(THREE)
    silence.look(Offset(10), 0)
    assert silence.is_cut_off
    copy = silence.clone(InSyncReplicas(state_of(), 2), followers.clone())
    assert copy.canonical_key() == silence.canonical_key()
    silence.on_contact(THREE)
    silence.look(Offset(10), 1)
    assert not silence.is_cut_off
    assert copy.is_cut_off


# The producers that wait.


def test_producers_are_told_once_what_they_wait_for_is_committed() -> None:
    waits = ProduceWaits()
    for number, end in ((1, 12), (2, 11), (3, 13)):
        waits.add(CorrelationId(number), Offset(end), 100 * number)
    assert sorted(waits.deadlines_ms) == [100, 200, 300]
    assert waits.take_acks(Offset(10), Code.NONE) == ()
    assert [(ack.correlation_id, ack.code) for ack in waits.take_acks(Offset(12), Code.NONE)] == [
        (2, Code.NONE),
        (1, Code.NONE),
    ]
    assert waits.deadlines_ms == [300]


def test_who_waits_too_long_is_told_and_waits_no_more() -> None:
    waits = ProduceWaits()
    waits.add(CorrelationId(1), Offset(11), 100)
    waits.add(CorrelationId(2), Offset(12), 101)
    copy = waits.clone()
    waits.expire(100)
    assert [(ack.correlation_id, ack.code) for ack in waits.take_acks(Offset(10), Code.NONE)] == [
        (1, Code.REQUEST_TIMED_OUT)
    ]
    assert [ack.correlation_id for ack in waits.take_acks(Offset(12), Code.NONE)] == [2]
    assert [ack.correlation_id for ack in copy.take_acks(Offset(12), Code.NONE)] == [1, 2]
    assert waits.canonical_key() == copy.canonical_key()


def test_all_are_refused_and_what_they_are_told_goes_out_once() -> None:
    waits = ProduceWaits()
    for number in (1, 2):
        waits.add(CorrelationId(number), Offset(11), 100)
    before = waits.canonical_key()
    waits.refuse(Code.NOT_LEADER_OR_FOLLOWER)
    assert waits.canonical_key() != before
    told = waits.take_acks(Offset(20), Code.NONE)
    assert [(ack.correlation_id, ack.code) for ack in told] == [
        (1, Code.NOT_LEADER_OR_FOLLOWER),
        (2, Code.NOT_LEADER_OR_FOLLOWER),
    ]
    assert waits.take_acks(Offset(20), Code.NONE) == ()
