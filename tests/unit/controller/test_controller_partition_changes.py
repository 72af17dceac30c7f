"""Who is eligible to lead, who is elected, and what moves the epochs, one partition at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import Code, InvariantBrokenError, KafkaError
from tidelog.base.ids import BrokerId, LeaderEpoch, PartitionEpoch, PartitionIndex, TopicId
from tidelog.controller.partition_changes import (
    arrived,
    change_record,
    elected,
    elected_preferred,
    elected_uncleanly,
    led_by,
    with_isr,
    with_replicas,
    without,
)
from tidelog.metadata import PartitionImage
from tidelog.metadata.draft import merge
from tidelog.metadata.records import PartitionChangeRecord, decode_record, encode_record

ONE, TWO, THREE, FOUR = (BrokerId(number) for number in range(1, 5))
ALL = (ONE, TWO, THREE)
TOPIC = TopicId(UUID(int=7))


def partition(
    isr: tuple[BrokerId, ...] = ALL, leader: BrokerId | None = ONE, *, eligible: tuple[BrokerId, ...] = ()
) -> PartitionImage:
    return PartitionImage(ALL, isr, leader, LeaderEpoch(3), PartitionEpoch(8), eligible_leader_replicas=eligible)


def alive(*brokers: BrokerId) -> Callable[[BrokerId], bool]:
    return lambda broker: broker in brokers


def leave(
    state: PartitionImage, broker: BrokerId, *others: BrokerId, min_insync: int = 2, is_lost: bool = False
) -> PartitionImage:
    left = without(state, broker, min_insync_replicas=min_insync, is_active=alive(*others), is_lost=is_lost)
    assert left is not None
    return left


def standing(state: PartitionImage) -> tuple[tuple[int, ...], ...]:
    return state.isr, state.eligible_leader_replicas, state.last_known_eligible_leader_replicas


def test_the_isr_may_become_empty_and_whoever_was_in_it_may_lead() -> None:
    first = leave(partition(), ONE, TWO, THREE)
    assert (first.leader, first.leader_epoch, first.partition_epoch) == (TWO, 4, 9)
    assert standing(first) == ((TWO, THREE), (), ())
    second = leave(first, TWO, THREE)
    assert (second.leader, standing(second)) == (THREE, ((THREE,), (TWO,), ()))
    third = leave(second, THREE)
    assert (third.leader, third.leader_epoch, third.partition_epoch) == (None, 6, 11)
    assert standing(third) == ((), (TWO, THREE), ())
    assert elected(third, min_insync_replicas=2, is_active=alive(ONE)) is None
    back = elected(third, min_insync_replicas=2, is_active=alive(ONE, TWO))
    assert back is not None
    assert (back.leader, back.leader_epoch, back.partition_epoch) == (TWO, 7, 12)
    assert standing(back) == ((TWO,), (THREE,), ())
    assert not back.is_recovering


def test_an_unclean_shutdown_costs_both_and_is_remembered() -> None:
    down = partition((), None, eligible=(TWO, THREE))
    one_left = leave(down, TWO, is_lost=True)
    assert (one_left.leader_epoch, standing(one_left)) == (3, ((), (THREE,), (TWO,)))
    nobody = leave(one_left, THREE, is_lost=True)
    assert standing(nobody) == ((), (), (TWO, THREE))
    assert elected(nobody, min_insync_replicas=2, is_active=alive(*ALL)) is None
    assert standing(leave(partition((ONE,)), ONE, is_lost=True)) == ((), (), (ONE,))


def test_where_one_in_sync_is_enough_the_last_one_stays_eligible_whatever_its_shutdown() -> None:
    down = leave(partition((ONE,)), ONE, min_insync=1, is_lost=True)
    assert (down.leader, down.leader_epoch, standing(down)) == (None, 4, ((), (ONE,), ()))
    sole = replace(partition((ONE,)), replicas=(ONE,))
    assert standing(leave(sole, ONE, min_insync=3, is_lost=True)) == ((), (ONE,), ())


def test_who_was_one_of_several_is_lost_though_fewer_are_enough_by_now() -> None:
    """What was committed while two had to be in sync may have survived the power loss of this one at the other."""
    down = replace(partition((), None, eligible=(TWO,)), last_known_eligible_leader_replicas=(ONE,))
    assert standing(leave(down, TWO, min_insync=1, is_lost=True)) == ((), (), (ONE, TWO))
    both = partition((), None, eligible=(ONE, TWO))
    assert standing(leave(both, TWO, min_insync=1, is_lost=True)) == ((), (ONE,), (TWO,))


def test_of_several_that_leave_those_that_hold_nothing_change_nothing() -> None:
    left = without(partition((ONE,)), TWO, ONE, min_insync_replicas=1, is_active=alive(THREE))
    assert left is not None
    assert (left.leader, left.leader_epoch, left.partition_epoch) == (None, 4, 9)
    assert standing(left) == ((), (ONE,), ())
    assert without(partition((ONE,)), TWO, THREE, min_insync_replicas=1, is_active=alive(ONE)) is None


def test_of_several_that_leave_at_once_the_next_to_lead_is_there() -> None:
    left = without(partition(), ONE, TWO, min_insync_replicas=1, is_active=alive())
    assert left is not None
    assert (left.leader, left.isr) == (None, (THREE,))
    led = without(partition(), ONE, TWO, min_insync_replicas=1, is_active=alive(THREE))
    assert led is not None
    assert (led.leader, led.leader_epoch, led.isr) == (THREE, 4, (THREE,))


def test_who_is_neither_in_sync_nor_eligible_is_never_elected_cleanly() -> None:
    with pytest.raises(InvariantBrokenError, match="broker 1 may not lead"):
        led_by(partition((TWO,), None, eligible=(THREE,)), ONE, min_insync_replicas=2)


def test_each_unclean_election_begins_an_epoch_that_may_lack_something_whatever_the_one_before_did() -> None:
    before = replace(partition((), None), unclean_epoch=LeaderEpoch(3))
    led = elected_uncleanly(before, min_insync_replicas=2, is_active=alive(TWO))
    assert (led.leader, led.leader_epoch, led.unclean_epoch) == (TWO, 4, 4)


@pytest.mark.parametrize("unclean_epoch", [None, LeaderEpoch(2)])
def test_a_change_that_loses_nothing_says_nothing_of_a_loss(unclean_epoch: LeaderEpoch | None) -> None:
    before = replace(partition(), unclean_epoch=unclean_epoch)
    moved = with_replicas(before, (TWO, FOUR), min_insync_replicas=1, is_active=alive(TWO, FOUR))
    assert (moved.leader, moved.leader_epoch, moved.unclean_epoch) == (TWO, 4, unclean_epoch)
    assert leave(before, ONE, TWO).unclean_epoch == unclean_epoch


@pytest.mark.parametrize(("noted", "after"), [(None, 4), (2, 4), (3, 3), (4, 4)])
def test_a_loss_is_noted_once_for_the_next_leader(noted: int | None, after: int) -> None:
    before = replace(partition((ONE,), None), unclean_epoch=None if noted is None else LeaderEpoch(noted))
    assert leave(before, ONE, min_insync=1, is_lost=True).unclean_epoch == after


def test_whose_log_is_gone_is_neither_eligible_nor_known_to_have_been() -> None:
    left = without(partition((ONE,)), ONE, min_insync_replicas=1, is_active=alive(TWO), is_gone=True)
    assert left is not None
    assert (left.leader, standing(left)) == (None, ((), (), ()))


def test_whose_log_is_gone_is_not_spared_for_another_that_was_eligible_once() -> None:
    before = replace(partition((ONE,)), last_known_eligible_leader_replicas=(THREE,))
    left = without(before, ONE, min_insync_replicas=1, is_active=alive(TWO), is_gone=True)
    assert left is not None
    assert standing(left) == ((), (), (THREE,))


def test_of_several_that_leave_at_once_none_is_elected_uncleanly() -> None:
    left = without(
        partition((TWO, THREE), TWO),
        TWO,
        THREE,
        min_insync_replicas=1,
        is_active=alive(TWO, THREE),
        is_unclean_allowed=True,
    )
    assert left is not None
    assert left.leader is None


def test_nobody_is_in_sync_who_holds_no_replica_any_more() -> None:
    moved = with_replicas(partition((ONE,)), (TWO, THREE), min_insync_replicas=None, is_active=alive(TWO, THREE))
    assert (moved.isr, moved.leader) == ((), None)


def test_a_reassignment_is_done_once_all_that_shall_hold_it_are_in_sync_and_one_of_them_leads() -> None:
    before = replace(partition(ALL, TWO), adding_replicas=(THREE,), removing_replicas=(ONE,))
    done = arrived(before, before)
    assert (done.replicas, done.isr, done.leader_epoch) == ((TWO, THREE), (TWO, THREE), 4)
    assert (done.adding_replicas, done.removing_replicas) == ((), ())
    for unfinished in (
        replace(before, isr=(ONE, TWO)),
        replace(before, leader=ONE),  # which is to go: an election comes first
        replace(before, is_recovering=True),
    ):
        assert arrived(before, unfinished) is unfinished


@pytest.mark.parametrize(
    ("leader", "leader_epoch", "partition_epoch"),
    [(TWO, 3, 9), (ONE, 5, 9), (ONE, 2, 9), (ONE, 3, 8), (ONE, 3, 10), (ONE, 4, 8)],
)
def test_a_record_moves_the_partition_epoch_by_one_and_the_leader_epoch_with_the_leader(
    leader: BrokerId, leader_epoch: int, partition_epoch: int
) -> None:
    after = replace(
        partition(ALL, leader), leader_epoch=LeaderEpoch(leader_epoch), partition_epoch=PartitionEpoch(partition_epoch)
    )
    with pytest.raises(InvariantBrokenError):
        change_record(TOPIC, PartitionIndex(0), partition(), after)


def test_nothing_is_decided_about_who_holds_nothing_that_counts() -> None:
    state = partition((ONE, TWO), eligible=())
    assert without(state, THREE, min_insync_replicas=2, is_active=alive(ONE, TWO), is_lost=True) is None
    down = partition((), None, eligible=(TWO,))
    assert without(down, TWO, min_insync_replicas=2, is_active=alive()) is None


def test_a_follower_that_leaves_moves_no_leader_epoch() -> None:
    left = leave(partition(), THREE, ONE, TWO)
    assert (left.leader, left.leader_epoch, left.partition_epoch) == (ONE, 3, 9)


def test_enough_in_sync_leave_nobody_else_eligible() -> None:
    state = replace(partition((ONE,), eligible=(TWO,)), last_known_eligible_leader_replicas=(THREE,))
    assert standing(with_isr(state, (ONE, THREE), min_insync_replicas=2)) == ((ONE, THREE), (), ())
    assert standing(with_isr(state, (ONE,), min_insync_replicas=1)) == ((ONE,), (), ())
    rejoined = replace(partition((THREE,), THREE, eligible=(TWO,)), last_known_eligible_leader_replicas=(ONE,))
    assert standing(with_isr(rejoined, (ONE,), min_insync_replicas=2)) == ((ONE,), (TWO, THREE), ())
    down = partition((), None, eligible=(ONE, TWO))
    assert standing(led_by(down, TWO, min_insync_replicas=1)) == ((TWO,), (), ()), "it commits alone from here on"


def test_the_preferred_leader_leads_again_if_it_is_in_sync() -> None:
    state = partition(leader=TWO)
    back = elected_preferred(state, min_insync_replicas=2, is_active=alive(*ALL))
    assert (back.leader, back.leader_epoch, back.partition_epoch, back.isr) == (ONE, 4, 9, ALL)
    for wrong, active, code in (
        (partition(), ALL, Code.ELECTION_NOT_NEEDED),
        (state, (TWO, THREE), Code.PREFERRED_LEADER_NOT_AVAILABLE),
        (partition((TWO, THREE), TWO), ALL, Code.PREFERRED_LEADER_NOT_AVAILABLE),
        (partition((TWO,), TWO, eligible=(ONE,)), ALL, Code.PREFERRED_LEADER_NOT_AVAILABLE),
    ):
        with pytest.raises(KafkaError) as refused:
            elected_preferred(wrong, min_insync_replicas=2, is_active=alive(*active))
        assert refused.value.code == code


def test_an_unclean_election_prefers_who_loses_least_and_says_that_it_was_one() -> None:
    down = replace(partition((), None, eligible=(THREE,)), last_known_eligible_leader_replicas=(TWO,))

    def elect(*active: BrokerId) -> PartitionImage:
        return elected_uncleanly(down, min_insync_replicas=2, is_active=alive(*active))

    assert (elect(*ALL).leader, elect(*ALL).is_recovering) == (THREE, False)
    assert (elect(ONE, TWO).leader, elect(ONE, TWO).is_recovering) == (TWO, True)
    last = elect(ONE)
    assert (last.leader, last.leader_epoch, last.partition_epoch, last.is_recovering) == (ONE, 4, 9, True)
    assert standing(last) == ((ONE,), (), ())
    with pytest.raises(KafkaError) as refused:
        elect()
    assert refused.value.code == Code.ELIGIBLE_LEADERS_NOT_AVAILABLE
    with pytest.raises(KafkaError) as refused:
        elected_uncleanly(partition(), min_insync_replicas=2, is_active=alive(*ALL))
    assert refused.value.code == Code.ELECTION_NOT_NEEDED


def applied(before: PartitionImage, after: PartitionImage) -> PartitionImage:
    """As whoever reads the metadata log has it."""
    record = change_record(TopicId(UUID(int=1)), PartitionIndex(0), before, after)
    read = decode_record(encode_record(record))
    assert isinstance(read, PartitionChangeRecord)
    return merge(before, read)


def test_the_metadata_says_from_which_epoch_on_a_leader_may_lack_what_was_committed() -> None:
    """An unclean election; and the last one standing that has lost power, where nobody was promised otherwise."""
    down = partition((), None)
    elected = elected_uncleanly(down, min_insync_replicas=2, is_active=alive(ONE))
    assert applied(down, elected).unclean_epoch == elected.leader_epoch == 4
    later = with_isr(elected, ALL, min_insync_replicas=2)
    assert applied(elected, later).unclean_epoch == 4, "until the next one"

    sole = partition((ONE,), ONE)
    spared = without(sole, ONE, min_insync_replicas=1, is_active=alive(), is_lost=True)
    assert spared is not None
    assert (standing(spared)[1], spared.leader_epoch) == ((ONE,), 4)
    assert applied(sole, spared).unclean_epoch == 4
    silent = without(sole, ONE, min_insync_replicas=1, is_active=alive())
    assert silent is not None
    assert applied(sole, silent).unclean_epoch is None, "a crash of its process loses nothing"
    back = without(silent, ONE, min_insync_replicas=1, is_active=alive(), is_lost=True)
    assert back is not None, "nothing else changes"
    assert (back.leader_epoch, applied(silent, back).unclean_epoch) == (4, 5), "whoever leads next"
    kept = without(sole, ONE, min_insync_replicas=None, is_active=alive(), is_lost=True)
    assert kept is not None
    assert (kept.isr, applied(sole, kept).unclean_epoch) == ((ONE,), 4)


def test_an_unclean_election_in_one_step_with_a_loss_names_its_own_epoch() -> None:
    before = partition((ONE,), ONE)
    after = without(before, ONE, min_insync_replicas=2, is_active=alive(TWO), is_gone=True, is_unclean_allowed=True)
    assert after is not None
    assert (after.leader, after.leader_epoch, applied(before, after).unclean_epoch) == (TWO, 4, 4)


def test_any_change_of_the_replicas_moves_the_leader_epoch_by_one() -> None:
    def change(replicas: tuple[BrokerId, ...], active: tuple[BrokerId, ...] = ALL) -> PartitionImage:
        return with_replicas(partition(), replicas, min_insync_replicas=2, is_active=alive(*active))

    added = change((*ALL, FOUR))
    assert (added.leader, added.leader_epoch, added.partition_epoch, added.isr) == (ONE, 4, 9, ALL)
    removed = change((ONE, TWO))
    assert (removed.leader, removed.leader_epoch, removed.partition_epoch, removed.isr) == (ONE, 4, 9, (ONE, TWO))
    moved = change((TWO, THREE, FOUR))
    assert (moved.leader, moved.leader_epoch, moved.partition_epoch) == (TWO, 4, 9)
    assert standing(moved) == ((TWO, THREE), (), ())
    nobody = change((FOUR,), (FOUR,))
    assert (nobody.leader, nobody.leader_epoch, standing(nobody)) == (None, 4, ((), (), ()))


SOME = st.lists(st.sampled_from((ONE, TWO, THREE, FOUR)), max_size=4, unique=True).map(tuple)


@given(
    st.builds(
        PartitionImage,
        replicas=SOME,
        isr=SOME,
        leader=st.sampled_from((None, ONE, TWO)),
        leader_epoch=st.just(LeaderEpoch(3)),
        partition_epoch=st.just(PartitionEpoch(8)),
        is_recovering=st.booleans(),
        adding_replicas=SOME,
        removing_replicas=SOME,
        directories=st.sampled_from(((), (UUID(int=1),))),
        eligible_leader_replicas=SOME,
        last_known_eligible_leader_replicas=SOME,
    ),
    st.data(),
)
def test_a_record_says_all_that_changed(before: PartitionImage, data: st.DataObject) -> None:
    fields: dict[str, st.SearchStrategy[Any]] = {
        "replicas": SOME,
        "isr": SOME,
        "is_recovering": st.booleans(),
        "adding_replicas": SOME,
        "removing_replicas": SOME,
        "directories": st.sampled_from(((), (UUID(int=2),))),
        "eligible_leader_replicas": SOME,
        "last_known_eligible_leader_replicas": SOME,
    }
    changed: dict[str, Any] = data.draw(st.fixed_dictionaries({}, optional=fields))
    after = replace(before, partition_epoch=PartitionEpoch(9), **changed)
    if data.draw(st.booleans()):
        after = replace(after, leader=data.draw(st.sampled_from((None, ONE, TWO))), leader_epoch=LeaderEpoch(4))
    record = decode_record(encode_record(change_record(TOPIC, PartitionIndex(0), before, after)))
    assert isinstance(record, PartitionChangeRecord)
    assert merge(before, record) == after
    for name in ("replicas", "isr", "directories", "eligible_leader_replicas"):
        assert (getattr(record, name) is None) == (getattr(before, name) == getattr(after, name))
