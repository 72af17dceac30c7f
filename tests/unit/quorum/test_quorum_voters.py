"""Voters come, go and move: one at a time, and never so that nothing can be committed (KIP-853)."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from support.examples import examples
from support.worlds.quorum_node import OneNode, fetch, key, voter_set
from support.worlds.quorum_random import play
from support.worlds.quorum_world import QuorumWorld
from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import BrokerId, Offset
from tidelog.quorum import (
    ReplicaKey,
    Role,
    Voter,
    VoterSet,
    decide_add_voter,
    decide_remove_voter,
    decide_update_voter,
    decide_voters_in_log,
)

ONE_TWO_THREE = voter_set(1, 2, 3, version=1)


def leader() -> OneNode:
    """Node 1 leads in epoch 1; replica 2 has all there is, and so has observer 4."""
    one = OneNode(voters=ONE_TWO_THREE)
    one.lead()
    one.ask(fetch(2, 1, 1, 1))
    one.ask(fetch(4, 1, 1, 1))
    return one


def change(one: OneNode, voters: VoterSet) -> None:
    """What the leader decided is appended."""
    end = Offset(one.node.log.log_end_offset + 1)
    one.node.on_appended(end, one.now_ms)
    one.node.on_voters(voters, one.now_ms)
    one.node.on_synced(end, one.now_ms)
    one.take()


def refused(code: Code) -> pytest.RaisesExc[KafkaError]:
    return pytest.RaisesExc(KafkaError, check=lambda error: error.code is code)


def test_one_more_counts_as_soon_as_it_is_in_the_log() -> None:
    one = leader()
    change(one, decide_add_voter(one.node, Voter(key(4)), one.now_ms))
    assert one.node.voters.latest.ids == (1, 2, 3, 4)
    assert one.node.leading is not None
    assert 4 in {asked.target for asked in one.asked()} or one.node.leading.progress_of(key(4)) is not None
    one.ask(fetch(2, 1, 2, 1))
    assert one.node.high_watermark == 1, "two of four"
    assert one.node.voters.is_change_pending
    one.ask(fetch(4, 1, 2, 1))
    assert one.node.high_watermark == 2
    assert not one.node.voters.is_change_pending


def test_one_less_counts_at_once_as_well_and_a_leader_leaves_when_that_is_committed() -> None:
    one = leader()
    change(one, decide_remove_voter(one.node, key(1)))
    assert one.is_in(Role.LEADER)
    one.ask(fetch(2, 1, 2, 1))
    assert one.is_in(Role.LEADER), "its own log does not count any more"
    one.ask(fetch(3, 1, 2, 1))
    assert one.node.high_watermark == 2
    assert one.is_in(Role.RESIGNED)
    one.wait(100_000)
    assert one.is_in(Role.RESIGNED), "it is no voter"


def test_configured_voters_go_into_the_log_with_their_directories() -> None:
    """kraft.version 1 of a running quorum: the same nodes vote, each of them in the directory that it fetched with."""
    one = OneNode(directory_id=UUID(int=1))
    one.lead()
    one.ask(replace(fetch(2, 1, 1, 1), replica=ReplicaKey(BrokerId(2), UUID(int=2))))
    with pytest.raises(KafkaError, match="voter 3 has not fetched from the leader, node 1, since that leads") as error:
        decide_voters_in_log(one.node)
    assert error.value.code == Code.INVALID_UPDATE_VERSION
    with refused(Code.UNSUPPORTED_VERSION):
        decide_remove_voter(one.node, key(3))
    one.ask(replace(fetch(3, 1, 0, 0), replica=ReplicaKey(BrokerId(3), UUID(int=3))))
    voters = decide_voters_in_log(one.node)
    assert voters.version == 1
    assert [(voter.key.node_id, voter.key.directory_id) for voter in voters.voters] == [
        (number, UUID(int=number)) for number in (1, 2, 3)
    ]
    change(one, voters)
    assert one.node.voters.is_change_pending
    assert one.is_in(Role.LEADER)
    one.ask(replace(fetch(2, 1, 2, 1), replica=ReplicaKey(BrokerId(2), UUID(int=2))))
    assert one.node.high_watermark == 2, "what a voter had before counts on"
    assert decide_voters_in_log(one.node) == voters, "once"
    with refused(Code.VOTER_NOT_FOUND):
        decide_remove_voter(one.node, ReplicaKey(BrokerId(3), UUID(int=7)))
    assert decide_remove_voter(one.node, ReplicaKey(BrokerId(3), UUID(int=3))).ids == (1, 2)


def test_only_an_active_leader_puts_voters_into_the_log() -> None:
    with refused(Code.NOT_LEADER_OR_FOLLOWER):
        decide_voters_in_log(OneNode(directory_id=UUID(int=1)).node)


def test_a_voter_that_is_new_is_told_who_leads_at_once_and_the_others_are_not_told_again() -> None:
    one = OneNode(voters=ONE_TWO_THREE)
    one.lead()
    for other in (2, 3):
        one.ask(fetch(other, 1, 1, 1))
    one.append(2, is_synced=False)
    one.node.on_voters(voter_set(1, 2, 3, 4, version=1), one.now_ms)
    assert [asked.target for asked in one.take().requests] == [4]


def test_a_voter_that_fetched_as_an_observer_need_not_be_told_who_leads() -> None:
    one = leader()
    one.append(2, is_synced=False)
    one.node.on_voters(voter_set(1, 2, 3, 4, version=1), one.now_ms)
    assert not [asked for asked in one.take().requests if asked.target == 4]


def test_who_is_removed_is_told_no_more_who_leads() -> None:
    one = OneNode(voters=ONE_TWO_THREE)
    one.lead()
    one.fail(3)
    one.append(2, is_synced=False)
    one.node.on_voters(voter_set(1, 2, version=1), one.now_ms)
    one.wait(1_000)
    assert not [asked for asked in one.ready.requests if asked.target == 3]


def test_what_a_majority_of_the_smaller_set_has_is_committed_at_once() -> None:
    one = OneNode(voters=voter_set(1, 2, 3, 4, version=1))
    one.lead()
    one.append(4)
    one.ask(fetch(2, 1, 4, 1))
    assert one.node.high_watermark is None, "two of four"
    one.append(5, is_synced=False)
    one.node.on_voters(voter_set(1, 2, 3, version=1), one.now_ms)
    assert one.node.high_watermark == 4


def test_what_cannot_be_added() -> None:
    one = leader()
    with refused(Code.DUPLICATE_VOTER):
        decide_add_voter(one.node, Voter(ReplicaKey(BrokerId(3), UUID(int=7))), one.now_ms)
    with refused(Code.REQUEST_TIMED_OUT):
        decide_add_voter(one.node, Voter(key(5)), one.now_ms)  # nobody has heard of it
    one.append(9)
    one.now_ms += 2_001
    one.ask(fetch(2, 1, 9, 1))
    one.ask(fetch(4, 1, 5, 1))
    with refused(Code.REQUEST_TIMED_OUT):
        decide_add_voter(one.node, Voter(key(4)), one.now_ms)  # it is behind
    one.ask(fetch(4, 1, 9, 1))
    assert decide_add_voter(one.node, Voter(key(4)), one.now_ms).ids == (1, 2, 3, 4)


def test_whoever_was_at_the_end_two_seconds_ago_may_be_added() -> None:
    one = leader()
    one.append(9)
    one.ask(fetch(4, 1, 9, 1))
    one.now_ms += 2_000
    one.ask(fetch(2, 1, 9, 1))
    one.append(12)
    assert decide_add_voter(one.node, Voter(key(4)), one.now_ms).ids == (1, 2, 3, 4)
    with refused(Code.REQUEST_TIMED_OUT):
        decide_add_voter(one.node, Voter(key(4)), one.now_ms + 1)
    assert decide_add_voter(one.node, Voter(key(4)), one.now_ms + 1, caught_up_within_ms=2_001).ids == (1, 2, 3, 4)


def test_what_cannot_be_removed_or_moved() -> None:
    one = leader()
    with refused(Code.VOTER_NOT_FOUND):
        decide_remove_voter(one.node, key(4))
    with refused(Code.VOTER_NOT_FOUND):
        decide_update_voter(one.node, Voter(key(4)))
    alone = OneNode(voters=voter_set(1, version=1))
    alone.open()
    with refused(Code.INVALID_REQUEST):
        decide_remove_voter(alone.node, key(1))
    directories = VoterSet(tuple(Voter(ReplicaKey(BrokerId(one), UUID(int=one))) for one in (1, 2)), 1)
    with_directories = OneNode(voters=directories)
    with_directories.lead()
    with_directories.ask(fetch(2, 1, 1, 1))
    with refused(Code.VOTER_NOT_FOUND):
        decide_remove_voter(with_directories.node, ReplicaKey(BrokerId(2), UUID(int=9)))


def test_a_voter_that_moves_keeps_its_place() -> None:
    one = leader()
    moved = Voter(key(2), (("CONTROLLER", "elsewhere", 9093),))
    voters = decide_update_voter(one.node, moved)
    assert voters.ids == (1, 2, 3)
    assert voters.voter(BrokerId(2)) == moved
    change(one, voters)
    assert decide_update_pending(one) is Code.REQUEST_TIMED_OUT
    one.ask(fetch(2, 1, 2, 1))
    assert decide_update_voter(one.node, moved) is one.node.voters.latest


def test_a_voter_that_moves_without_naming_its_directory_keeps_it() -> None:
    own, other = (Voter(ReplicaKey(BrokerId(one), UUID(int=one))) for one in (1, 2))
    one = OneNode(voters=VoterSet((own, other), 1))
    one.lead()
    one.ask(fetch(2, 1, 1, 1))
    endpoints = (("CONTROLLER", "elsewhere", 9093),)
    assert decide_update_voter(one.node, Voter(key(2), endpoints)).voters == (own, Voter(other.key, endpoints))


def decide_update_pending(one: OneNode) -> Code:
    with pytest.raises(KafkaError) as error:
        decide_update_voter(one.node, Voter(key(3)))
    return error.value.code


def test_one_change_at_a_time_and_none_before_the_epoch_is_committed() -> None:
    one = OneNode(voters=ONE_TWO_THREE)
    with refused(Code.NOT_LEADER_OR_FOLLOWER):
        decide_remove_voter(one.node, key(3))
    one.lead()
    with refused(Code.REQUEST_TIMED_OUT):
        decide_remove_voter(one.node, key(3))
    one.ask(fetch(2, 1, 1, 1))
    change(one, decide_remove_voter(one.node, key(3)))
    with refused(Code.REQUEST_TIMED_OUT):
        decide_remove_voter(one.node, key(2))
    one.ask(fetch(2, 1, 2, 1))
    assert decide_remove_voter(one.node, key(2)).ids == (1,)


def test_nobody_is_added_while_another_change_is_not_committed() -> None:
    one = leader()
    one.ask(fetch(5, 1, 1, 1))
    change(one, decide_add_voter(one.node, Voter(key(4)), one.now_ms))
    one.ask(fetch(5, 1, 2, 1))
    with refused(Code.REQUEST_TIMED_OUT):
        decide_add_voter(one.node, Voter(key(5)), one.now_ms)


def test_who_does_not_lead_says_so_wherever_the_voters_come_from() -> None:
    with refused(Code.NOT_LEADER_OR_FOLLOWER):
        decide_remove_voter(OneNode().node, key(3))


def test_configured_voters_are_changed_in_the_configuration() -> None:
    one = OneNode()
    one.lead()
    with refused(Code.UNSUPPORTED_VERSION):
        decide_remove_voter(one.node, key(3))


def test_who_is_being_removed_may_lead_until_that_is_committed() -> None:
    """It may be the only one that has the change: without it the others could never elect anybody."""
    world = QuorumWorld(3, has_directories=True)
    world.start()
    world.run_until(lambda: world.active)
    leader = world.active
    assert leader is not None
    assert leader.node is not None
    others = [number for number in world.machines if number != leader.id]
    for other in others:
        world.conditions.cut.add((leader.id, other))  # it hears them; they do not hear it
    removal = leader.propose(decide_remove_voter(leader.node, leader.key))
    world.run(5)
    assert leader.synced_end > removal
    for number in world.machines:
        world.crash(number)
    world.heal()
    leader.start()
    world.machine(others[0]).start()  # of the two that vote by now, one; of the three before, two
    world.run(20_000)
    assert leader.node.standing.role is not Role.LEADER or not world.active, "the new set needs both"
    world.machine(others[1]).start()
    world.run_until(lambda: world.active not in (None, leader))


def test_a_voter_that_lost_its_disk_is_replaced_by_its_new_directory() -> None:
    world = QuorumWorld(3, has_directories=True)
    world.start()
    world.run_until(lambda: world.active)
    leader = world.active
    assert leader is not None
    lost = next(number for number in world.machines if number != leader.id)
    last = leader.propose("m1")
    world.run(50)
    old = world.machines[lost].key
    world.lose_disk(lost)
    fresh = world.machines[lost]
    world.run_until(lambda: fresh.high_watermark > last)
    assert fresh.node is not None
    assert not fresh.node.voters.has_us
    assert leader.node is not None
    removal = leader.propose(decide_remove_voter(leader.node, old))
    world.run_until(lambda: leader.high_watermark > removal)
    addition = leader.propose(decide_add_voter(leader.node, Voter(fresh.key), world.now_ms))
    world.run_until(lambda: fresh.high_watermark > addition)
    assert fresh.node.voters.has_us
    world.crash(leader.id)
    world.run_until(lambda: world.active not in (None, leader))


@pytest.mark.parametrize("seed", range(examples(40)))
def test_whatever_happens_while_voters_change_nothing_committed_is_lost(seed: int) -> None:
    play(seed, has_directories=True)


@pytest.mark.parametrize("seed", range(examples(40)))
def test_whatever_happens_while_voters_go_into_the_log_nothing_committed_is_lost(seed: int) -> None:
    play(seed, is_configured=True)


def test_they_do_go_there_in_such_lives() -> None:
    def version(seed: int) -> int:
        active = play(seed, is_configured=True).active
        assert active is not None
        assert active.node is not None
        return active.node.voters.latest.version

    assert sum(map(version, range(5))) >= 3
