"""Each invariant of a partition: a picture that breaks it and is seen to, and the closest one that does not."""

from __future__ import annotations

import pytest

from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionEpoch
from tidelog.metadata import PartitionImage
from tidelog.records.lineage import EpochEntry, LeaderEpochLineage
from tidelog.sim.checkers.history import PartitionHistory
from tidelog.sim.checkers.partition import PartitionCheckers, broken_now
from tidelog.sim.checkers.promises import what_is_wrong_with_acknowledged
from tidelog.sim.checkers.views import PartitionView, ReplicaView

A, B, C = BrokerId(1), BrokerId(2), BrokerId(3)


def replica(
    broker: BrokerId,
    log: str,
    *,
    epoch: int | None = 0,
    isr: tuple[BrokerId, ...] = (),
    serves: bool | None = None,
    lineage: tuple[tuple[int, int], ...] | None = None,
    start: int = 0,
) -> ReplicaView:
    """A replica whose log is drawn as in stories: `m1@0 | m2@0`. With an `isr` it leads; an epoch of None: down."""
    tokens = log.split()
    words = [token.partition("@") for token in tokens if token != "|"]
    records = [(LeaderEpoch(int(leader_epoch)), value) for value, _, leader_epoch in words]
    own = LeaderEpochLineage()
    for at, (leader_epoch, _) in enumerate(records):
        own.assign(leader_epoch, Offset(start + at))
    told = own.entries if lineage is None else tuple(EpochEntry(LeaderEpoch(e), Offset(o)) for e, o in lineage)
    return ReplicaView(
        broker,
        is_up=epoch is not None,
        leads=bool(isr),
        leader_epoch=None if epoch is None else LeaderEpoch(epoch),
        log_start_offset=Offset(start),
        records=records,
        lineage=told,
        high_watermark=Offset(start + tokens.index("|")),
        isr=frozenset(isr),
        serves_consumers=bool(isr) if serves is None else serves,
        name="?ABC"[broker],
    )


def view(
    *replicas: ReplicaView,
    leader: BrokerId | None = A,
    isr: tuple[BrokerId, ...] = (A, B),
    epoch: int = 0,
    eligible: tuple[BrokerId, ...] = (),
) -> PartitionView:
    state = PartitionImage(
        (A, B, C), isr, leader, LeaderEpoch(epoch), PartitionEpoch(0), eligible_leader_replicas=eligible
    )
    return PartitionView(state, {one.broker_id: one for one in replicas})


def broken(*views: PartitionView, history: PartitionHistory | None = None) -> list[str]:
    """What is found by looking at one after the other; a look at the last alone never finds more."""
    checkers = PartitionCheckers(history)
    found = [str(one) for each in views for one in checkers.check(each)]
    again = broken_now(views[-1], checkers.history.clone())
    assert {one.invariant for one in again} <= set(checkers.broken)
    return found


HEALTHY = view(replica(A, "m1@0 m2@0 |", isr=(A, B)), replica(B, "m1@0 | m2@0"), replica(C, "m1@0 |"))


def test_a_healthy_partition_breaks_nothing_and_every_invariant_is_counted() -> None:
    checkers = PartitionCheckers()
    assert checkers.check(HEALTHY) == []
    assert set(checkers.made) == {
        "AckedRecordsSurvive",
        "LeaderInIsr",
        "WeakIsr",
        "StrongIsr",
        "DeliveredStaysDeliverable",
        "EpochOffsetUnique",
        "LogsArePrefixes",
        "LineageTellsTheLog",
    }


def test_only_what_is_new_is_told() -> None:
    checkers = PartitionCheckers()
    wrong = view(replica(A, "|", isr=(A,)), isr=(B,))
    assert [one.invariant for one in checkers.check(wrong)] == ["LeaderInIsr"]
    assert checkers.check(wrong) == []
    assert list(checkers.broken) == ["LeaderInIsr"]


# LeaderInIsr


def test_a_leader_that_is_not_in_sync() -> None:
    assert broken(view(leader=C)) == ["LeaderInIsr: broker 3 leads, in sync: broker 1, broker 2"]
    assert broken(view(leader=C, isr=())) == ["LeaderInIsr: broker 3 leads, in sync: nobody"]


def test_nobody_has_to_lead() -> None:
    assert broken(view(leader=None, isr=())) == []


# WeakIsr


def test_whom_a_leader_presumes_in_sync_has_what_it_committed() -> None:
    others = replica(B, "m1@0 | m2@0"), replica(C, "m1@0 |")
    wrong = view(replica(A, "m1@0 m2@0 |", isr=(A, B, C)), *others)
    assert broken(wrong) == ["WeakIsr: A leads epoch 0 and presumes C in sync: at offset=1 they have m2@0 and nothing"]
    assert broken(view(replica(A, "m1@0 | m2@0", isr=(A, B, C)), *others)) == [], "that is not committed"


def test_a_leader_left_behind_by_an_unclean_election_presumes_what_it_likes() -> None:
    behind = replica(A, "m1@0 m2@0 |", isr=(A, B))
    next_one = replica(B, "m1@0 | m3@1", epoch=1, isr=(B,))
    after = view(behind, next_one, leader=B, isr=(B,), epoch=1)
    assert "WeakIsr" in "".join(broken(HEALTHY, after))
    history = PartitionHistory()
    history.on_unclean_election(LeaderEpoch(1))
    assert broken(after, history=history) == []


# StrongIsr


@pytest.mark.parametrize(("eligible", "part"), [((), "which is in sync"), ((C,), "which may be elected")])
def test_whoever_may_be_elected_has_what_was_committed(eligible: tuple[BrokerId, ...], part: str) -> None:
    replicas = replica(A, "m1@0 m2@0 |", isr=(A, B)), replica(B, "m1@0 | m2@0"), replica(C, "m1@0 |")
    wrong = view(*replicas, isr=(A, B) if eligible else (A, B, C), eligible=eligible)
    assert broken(wrong) == [f"StrongIsr: m2@0 offset=1 is missing from C, {part}"]
    assert broken(view(*replicas)) == [], "who is out of sync may lack it"


def test_what_was_committed_is_remembered_when_its_leader_is_gone() -> None:
    gone = view(replica(A, "m1@0 m2@0 |", epoch=None), replica(C, "m1@0 |"), leader=None, isr=(C,))
    assert broken(HEALTHY, gone) == ["StrongIsr: m2@0 offset=1 is missing from C, which is in sync"]
    assert broken(gone) == [], "nobody committed it"


def test_who_lost_power_is_given_until_it_is_back() -> None:
    leader = replica(A, "m1@0 m2@0 |", isr=(A, B))
    down, up = replica(B, "m1@0 |", epoch=None), replica(B, "m1@0 |")
    for back, is_broken in ((down, False), (up, True)):
        history = PartitionHistory(power_losses_max=1)
        checkers = PartitionCheckers(history)
        checkers.check(HEALTHY)
        history.on_power_lost(B)
        names = [one.invariant for one in checkers.check(view(leader, back))]
        assert names == (["StrongIsr"] if is_broken else [])


# AckedRecordsSurvive


LOST = view(replica(A, "m1@0 m2@0 |", epoch=None), replica(B, "m1@0 |", epoch=1, isr=(B,)), leader=B, isr=(B,), epoch=1)


def test_what_was_committed_is_missing_from_the_next_leader() -> None:
    assert broken(HEALTHY, LOST)[0] == "AckedRecordsSurvive: m2@0 offset=1 is missing from leader B"


def test_what_was_only_written_may_be_lost() -> None:
    only_written = view(replica(A, "m1@0 | m2@0", isr=(A, B)), replica(B, "m1@0 |"))
    assert broken(only_written, LOST) == [], "that is what acks=1 is"


def test_it_survives_so_many_losses_of_power_and_no_more() -> None:
    for losses, is_broken in (([A], True), ([A, A], True), ([A, C], False)):
        history = PartitionHistory(power_losses_max=1)
        checkers = PartitionCheckers(history)
        checkers.check(HEALTHY)
        for broker in losses:
            history.on_power_lost(broker)
        names = [one.invariant for one in checkers.check(LOST)]
        assert ("AckedRecordsSurvive" in names) is is_broken, losses


def test_where_all_is_synced_no_loss_of_power_excuses() -> None:
    history = PartitionHistory(power_losses_max=None)
    checkers = PartitionCheckers(history)
    checkers.check(HEALTHY)
    for broker in (A, B, C):
        history.on_power_lost(broker)
    assert "AckedRecordsSurvive" in [one.invariant for one in checkers.check(LOST)]


def test_a_loss_of_power_no_longer_counts_once_the_seat_is_won_back() -> None:
    history = PartitionHistory(power_losses_max=1)
    checkers = PartitionCheckers(history)
    checkers.check(HEALTHY)
    history.on_power_lost(B)
    replicas = HEALTHY.replicas.values()
    checkers.check(view(*replicas, isr=(A,)))
    checkers.check(view(*replicas, isr=(A, B)))
    history.on_power_lost(A)
    assert "AckedRecordsSurvive" in [one.invariant for one in checkers.check(LOST)]


def test_what_was_committed_after_the_losses_is_promised_again() -> None:
    history = PartitionHistory(power_losses_max=0)
    checkers = PartitionCheckers(history)
    checkers.check(HEALTHY)
    history.on_power_lost(A)
    more = replica(B, "m1@0 m3@1 |", epoch=1, isr=(B,))
    assert checkers.check(view(more, leader=B, isr=(B,), epoch=1)) == []
    names = [one.invariant for one in checkers.check(LOST)]
    assert names == ["AckedRecordsSurvive", "DeliveredStaysDeliverable"]


def test_what_was_acknowledged_just_before_too_many_lost_power_is_excused() -> None:
    m2 = LeaderEpoch(0), "m2"
    for losses_max, is_broken in ((0, False), (1, True)):
        history = PartitionHistory(power_losses_max=losses_max)
        checkers = PartitionCheckers(history)
        alone = replica(A, "m1@0 |", isr=(A,))
        assert checkers.check(view(alone, replica(B, "m1@0 |"), isr=(A,))) == []
        history.on_power_lost(A)
        assert what_is_wrong_with_acknowledged(history, 1, "m2", tuple, lambda: [(B, (LeaderEpoch(0), "m3"))])
        assert what_is_wrong_with_acknowledged(history, 1, "m2", tuple, lambda: [(A, m2)]) is None
        names = [one.invariant for one in checkers.check(view(alone, replica(B, "m1@0 |"), isr=(A,)))]
        assert ("AckedRecordsSurvive" in names) is is_broken


def test_an_unclean_election_ends_promises() -> None:
    history = PartitionHistory()
    checkers = PartitionCheckers(history)
    checkers.check(HEALTHY)
    history.on_unclean_election(LeaderEpoch(1))
    assert checkers.check(LOST) == []


def test_what_outlives_an_unclean_election_and_is_held_by_enough_is_promised_anew() -> None:
    for isr, is_broken in (((B,), False), ((A, B), True)):
        history = PartitionHistory(power_losses_max=1)
        checkers = PartitionCheckers(history)
        checkers.check(HEALTHY)
        history.on_unclean_election(LeaderEpoch(1))
        leader = replica(B, "m1@0 m2@0 |", epoch=1, isr=isr)
        healed = view(leader, replica(A, "m1@0 m2@0 |", epoch=1), leader=B, isr=isr, epoch=1)
        assert checkers.check(healed) == []
        lost = replica(A, "m1@0 |", epoch=2, isr=(A,))
        names = [one.invariant for one in checkers.check(view(lost, leader=A, isr=(A,), epoch=2))]
        assert names == (["AckedRecordsSurvive", "DeliveredStaysDeliverable"] if is_broken else []), isr


def test_what_outlives_losses_of_power_is_promised_anew_once_enough_without_doubt_hold_it() -> None:
    replicas = replica(B, "m1@0 m2@0 |", epoch=1, isr=(B, A)), replica(A, "m1@0 m2@0 |", epoch=1)
    for has_won_its_seat, is_broken in ((False, False), (True, True)):
        history = PartitionHistory(power_losses_max=1)
        checkers = PartitionCheckers(history)
        checkers.check(HEALTHY)
        for broker in (C, A):
            history.on_power_lost(broker)
        if has_won_its_seat:
            assert checkers.check(view(*replicas, leader=B, isr=(B,), epoch=1)) == []
        assert checkers.check(view(*replicas, leader=B, isr=(B, A), epoch=1)) == []
        lost = replica(A, "m1@0 |", epoch=2, isr=(A,))
        names = [one.invariant for one in checkers.check(view(lost, leader=A, isr=(A,), epoch=2))]
        assert ("AckedRecordsSurvive" in names) is is_broken


def test_two_leaders_commit_different_records() -> None:
    other = view(replica(B, "m1@0 m3@1 |", epoch=1, isr=(B,)), leader=B, isr=(B,), epoch=1)
    assert broken(HEALTHY, other)[0] == "AckedRecordsSurvive: B committed m3@1 at offset=1, where m2@0 was"
    assert broken(HEALTHY, view(replica(A, "m1@0 m2@0 m3@0 |", isr=(A,)), isr=(A,))) == []


def test_what_is_committed_has_to_be_there() -> None:
    leader = replica(A, "m1@0 |", isr=(A,))._replace(high_watermark=Offset(2))
    assert "AckedRecordsSurvive: A committed offset=1 and has no record there" in broken(view(leader, isr=(A,)))


def test_what_retention_removed_is_not_missing() -> None:
    later = view(replica(A, "m2@0 |", isr=(A, B), start=1), replica(B, "m1@0 | m2@0"))
    assert broken(HEALTHY, later) == []


# DeliveredStaysDeliverable


def test_what_is_shown_is_committed() -> None:
    leader = replica(A, "m1@0 m3@1 |", epoch=1, isr=(A, B))
    replicas = leader, replica(B, "m1@0 m3@1 |", epoch=1)
    wrong = replica(C, "m1@0 m2@0 |", epoch=1, serves=True)
    told = broken(view(*replicas, wrong, epoch=1))
    assert told == ["DeliveredStaysDeliverable: C shows m2@0 at offset=1, which is not committed"]
    assert broken(view(*replicas, replica(C, "m1@0 m2@0 |", epoch=1, serves=False), epoch=1)) == []
    assert broken(view(*replicas, replica(C, "m1@0 | m2@0", epoch=1, serves=True), epoch=1)) == []


def test_the_high_watermark_may_go_back_and_what_was_delivered_may_not_go() -> None:
    lower = view(replica(B, "m1@0 | m2@0", epoch=1, isr=(B,)), leader=B, isr=(B,), epoch=1)
    assert broken(HEALTHY, lower) == []
    given = "DeliveredStaysDeliverable: m2@0 offset=1 was given to consumers, and is missing from leader B"
    assert given in broken(HEALTHY, LOST)


def test_what_an_unclean_election_dooms_is_not_given_in_the_epoch_that_it_began() -> None:
    leader = replica(B, "m1@0 m3@1 |", epoch=1, isr=(B,))
    for epoch, is_broken in ((0, False), (1, True)):
        history = PartitionHistory()
        checkers = PartitionCheckers(history)
        checkers.check(HEALTHY)
        history.on_unclean_election(LeaderEpoch(1))
        marked = replica(C, "m1@0 m2@0 |", epoch=epoch, serves=True)
        names = [one.invariant for one in checkers.check(view(leader, marked, leader=B, isr=(B,), epoch=1))]
        assert names == (["DeliveredStaysDeliverable"] if is_broken else [])


# EpochOffsetUnique


def test_an_epoch_has_one_leader() -> None:
    both = view(replica(A, "m1@0 |", isr=(A,)), replica(B, "m1@0 |", isr=(B,)), isr=(A,))
    assert broken(both) == ["EpochOffsetUnique: A and B both lead epoch 0"]
    other = view(replica(A, "m1@0 |", isr=(A, B)), replica(B, "m1@0 |", epoch=1, isr=(B, A)), leader=B, epoch=1)
    assert broken(other) == []


def test_an_offset_is_written_once_in_an_epoch() -> None:
    one = view(replica(A, "| m1@0", isr=(A,)), isr=(A,))
    other = view(replica(A, "| m2@0", isr=(A,)), isr=(A,))
    assert broken(one, other) == ["EpochOffsetUnique: A has m2@0 at offset=0, where m1@0 was written"]
    later = view(replica(A, "| m2@1", epoch=1, isr=(A,)), isr=(A,), epoch=1)
    assert broken(one, later) == []


# LogsArePrefixes


def test_equal_epochs_have_equal_histories() -> None:
    leader = replica(A, "| m1@0 m3@1 m4@1", epoch=1, isr=(A,))
    wrong = view(leader, replica(B, "| m1@0 m2@0 m4@1", epoch=1), isr=(A,), epoch=1)
    told = "LogsArePrefixes: at offset=1 B has m2@0, A m3@1, both before m4@1"
    assert broken(wrong) == [told]
    assert broken(view(leader, replica(B, "| m1@0 m2@0", epoch=1), isr=(A,), epoch=1)) == [], "that is to be cut"


def test_what_parts_where_nobody_looks_any_more_is_seen_as_it_comes() -> None:
    leader = replica(A, "| m1@0 m3@1 m4@1", epoch=1, isr=(A,))
    steps = [view(leader, replica(B, log, epoch=1), isr=(A,), epoch=1) for log in ("| m1@0", "| m1@0 m2@0")]
    last = view(leader, replica(B, "| m1@0 m2@0 m4@1", epoch=1), isr=(A,), epoch=1)
    assert broken(*steps, last) != []


# LineageTellsTheLog


@pytest.mark.parametrize(
    ("lineage", "start", "is_broken"),
    [
        (((0, 0), (1, 2)), 0, False),
        (((0, 0), (1, 2), (2, 3)), 0, False),  # an epoch that has begun, and has no record yet
        (((0, 0), (1, 1)), 0, True),
        (((0, 0),), 0, True),
        ((), 0, True),
        (((0, 0), (1, 7)), 5, False),  # where the first epoch began lies below the log start
        (((0, 6), (1, 7)), 5, True),
    ],
)
def test_a_lineage_says_what_the_records_say(lineage: tuple[tuple[int, int], ...], start: int, is_broken: bool) -> None:
    leader = replica(A, "| m1@0 m2@0 m3@1", epoch=2, isr=(A,), lineage=lineage, start=start)
    told = f"LineageTellsTheLog: A does not know the epochs of its records: {list(lineage)}"
    assert broken(view(leader, isr=(A,), epoch=2)) == ([told] if is_broken else [])


def test_a_broker_that_is_down_repairs_its_lineage_first() -> None:
    down = replica(A, "| m1@0", epoch=None, lineage=())
    assert broken(view(down, leader=None, isr=())) == []


def test_a_lineage_that_changes_alone_is_looked_at() -> None:
    right = view(replica(A, "| m1@0", isr=(A,)), isr=(A,))
    wrong = view(replica(A, "| m1@0", isr=(A,), lineage=()), isr=(A,))
    assert broken(right, wrong) == ["LineageTellsTheLog: A does not know the epochs of its records: []"]


def test_of_records_before_the_start_of_a_log_its_lineage_need_not_tell() -> None:
    """Its first file has them until it is deleted."""
    trimmed = replica(A, "| m1@0 m2@0 m3@0", isr=(A,), lineage=((0, 2),))
    assert broken(view(trimmed, isr=(A,))) != []
    assert broken(view(trimmed._replace(starts_at=Offset(2)), isr=(A,))) == []
    behind_all = trimmed._replace(starts_at=Offset(3), lineage=(EpochEntry(LeaderEpoch(0), Offset(3)),))
    assert broken(view(behind_all, isr=(A,))) == []


# What was promised, and is no more


def test_a_seat_that_is_granted_to_a_broker_that_is_gone_is_not_won_back() -> None:
    history = PartitionHistory(power_losses_max=1)
    checkers = PartitionCheckers(history)
    checkers.check(HEALTHY)
    leader, down = replica(A, "m1@0 m2@0 |", isr=(A,)), replica(B, "|", epoch=None)
    history.on_power_lost(B)
    checkers.check(view(leader, down, isr=(A,)))
    assert checkers.check(view(leader, down)) == [], "the controller has not heard yet that B lost power"
    back = replica(B, "|", epoch=0)
    assert checkers.check(view(leader, back, isr=(A,))) == []
    assert [one.invariant for one in checkers.check(view(leader, back))] == ["StrongIsr"]


def test_who_has_not_heard_of_a_new_epoch_shows_what_was_committed_in_the_old_one() -> None:
    history = PartitionHistory(power_losses_max=0)
    checkers = PartitionCheckers(history)
    checkers.check(HEALTHY)
    history.on_power_lost(A)
    after = replica(A, "m1@0 m3@1 |", epoch=1, isr=(A,))
    behind = replica(B, "m1@0 m2@0 |", epoch=0, serves=True)
    never = replica(C, "m1@0 m4@0 |", epoch=0, serves=True)
    assert checkers.check(view(after, behind, isr=(A,), epoch=1)) == []
    assert [str(one) for one in checkers.check(view(after, behind, never, isr=(A,), epoch=1))] == [
        "DeliveredStaysDeliverable: C shows m4@0 at offset=1, which is not committed",
        "EpochOffsetUnique: C has m4@0 at offset=1, where m2@0 was written",
    ]


def test_what_a_leader_commits_that_was_left_behind_is_promised_to_nobody() -> None:
    history = PartitionHistory()
    checkers = PartitionCheckers(history)
    checkers.check(view(replica(A, "m1@0 | m2@0", isr=(A,)), isr=(A,)))
    history.on_unclean_election(LeaderEpoch(1))
    behind = replica(A, "m1@0 m2@0 |", isr=(A,))
    assert checkers.check(view(behind, replica(B, "m1@0 |", epoch=1, isr=(B,)), leader=B, isr=(B,), epoch=1)) == []
    assert history.promised(1) is None
    assert history.was_committed(1, (LeaderEpoch(0), "m2"))


@pytest.mark.parametrize(("isr", "is_broken"), [((A, B), False), ((A,), True)])
def test_what_a_replica_said_before_it_lost_power_may_come_after_that(
    isr: tuple[BrokerId, ...], is_broken: bool
) -> None:
    """A fetch of B lay in the network: with its seat still there, B may be elected without what it had."""
    history = PartitionHistory(power_losses_max=0)
    checkers = PartitionCheckers(history)
    history.on_power_lost(B)
    down = replica(B, "|", epoch=None)
    checkers.check(view(replica(A, "m1@0 |", isr=isr), down, isr=isr))
    after = view(replica(A, "m1@0 |", epoch=None), replica(B, "|", epoch=1, isr=(B,)), leader=B, isr=(B,), epoch=1)
    names = [one.invariant for one in checkers.check(after)]
    assert names == (["AckedRecordsSurvive", "DeliveredStaysDeliverable"] if is_broken else [])


def test_a_copy_of_a_history_goes_its_own_way() -> None:
    history = PartitionHistory(power_losses_max=0)
    history.on_committed(LeaderEpoch(0), 0, (LeaderEpoch(0), "m1"))
    copy = history.clone()
    assert copy.canonical_key() == history.canonical_key()
    copy.on_power_lost(A)
    assert history.is_promised(0)
    assert not copy.is_promised(0)
    assert copy.canonical_key() != history.canonical_key()
    assert hash(copy.canonical_key())
