"""The leader of a partition: what is committed, whose fetch proves something, who may join and who must leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.old_rules import joins_at_the_high_watermark
from tidelog.base.errors import (
    Code,
    FencedLeaderEpochError,
    InvariantBrokenError,
    KafkaError,
    OffsetOutOfRangeError,
    UnknownLeaderEpochError,
)
from tidelog.base.ids import (
    BrokerEpoch,
    BrokerId,
    CorrelationId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    TopicPartition,
)
from tidelog.metadata import PartitionImage
from tidelog.metadata.configs import broker_values
from tidelog.records.lineage import EpochEntry, LeaderEpochLineage
from tidelog.replica import (
    AcceptedFetch,
    Acknowledgement,
    FollowerFetch,
    FollowerSettings,
    IsrProposal,
    JoinRule,
    LeaderReplica,
    LogBounds,
    ReplicationSettings,
    check_leader_epoch,
    join_point,
)

PARTITION = TopicPartition("a", PartitionIndex(0))
LEADER, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
EPOCH = LeaderEpoch(5)
LAG_MS_MAX = 1000
BACKOFF_MS = 300


def state_of(
    replicas: Sequence[int] = (1, 2, 3), isr: Sequence[int] = (1, 2, 3), partition_epoch: int = 9
) -> PartitionImage:
    return PartitionImage(
        replicas=tuple(map(BrokerId, replicas)),
        isr=tuple(map(BrokerId, isr)),
        leader=LEADER,
        leader_epoch=EPOCH,
        partition_epoch=PartitionEpoch(partition_epoch),
    )


def leader_of(
    state: PartitionImage | None = None,
    *,
    log_start: int = 0,
    log_end: int = 10,
    checkpoint: int | None = 0,
    min_insync: int = 1,
    older: Sequence[tuple[int, int]] = ((2, 0), (3, 4)),
    active: bool = True,
    join: JoinRule = join_point,
) -> LeaderReplica:
    lineage = LeaderEpochLineage((LeaderEpoch(epoch), Offset(start)) for epoch, start in older)
    lineage.assign(EPOCH, Offset(log_end))
    leader = LeaderReplica(
        PARTITION,
        LEADER,
        state or state_of(),
        LogBounds(Offset(log_start), Offset(log_end), None if checkpoint is None else Offset(checkpoint)),
        lineage,
        settings=ReplicationSettings(
            min_insync_replicas=min_insync, lag_ms_max=LAG_MS_MAX, proposal_backoff_ms=BACKOFF_MS
        ),
        join=join,
    )
    if active:
        leader.on_brokers({TWO: BrokerEpoch(20), THREE: BrokerEpoch(30)})
    return leader


def fetch_of(
    follower: int,
    offset: int,
    *,
    leader_epoch: int | None = EPOCH,
    last_fetched_epoch: int | None = None,
    broker_epoch: int | None = None,
    now_ms: int = 0,
) -> FollowerFetch:
    return FollowerFetch(
        BrokerId(follower),
        Offset(offset),
        None if leader_epoch is None else LeaderEpoch(leader_epoch),
        None if last_fetched_epoch is None else LeaderEpoch(last_fetched_epoch),
        BrokerEpoch(follower * 10 if broker_epoch is None else broker_epoch),
        now_ms,
    )


def fetch(leader: LeaderReplica, follower: int, offset: int, *, now_ms: int = 0) -> IsrProposal | None:
    """An accepted fetch; returns what is proposed because of it."""
    accepted = leader.accept_fetch(fetch_of(follower, offset, now_ms=now_ms))
    assert isinstance(accepted, AcceptedFetch)
    leader.on_fetch(accepted)
    return leader.take_ready().isr_proposal


# Alone.


def test_alone_what_is_appended_is_committed() -> None:
    leader = leader_of(state_of([1], [1]))
    assert leader.take_ready().high_watermark == 10
    leader.on_appended(Offset(12))
    assert leader.high_watermark == 10, "it moves when the driver asks, so that the driver can tell"
    assert leader.take_ready().high_watermark == 12


def test_alone_is_not_enough_when_more_must_be_in_sync() -> None:
    leader = leader_of(state_of([1, 2], [1]), min_insync=2)
    leader.on_appended(Offset(12))
    assert leader.take_ready().high_watermark == 0
    with pytest.raises(KafkaError) as refused:
        leader.check_enough_replicas()
    assert refused.value.code == Code.NOT_ENOUGH_REPLICAS


def test_no_more_must_be_in_sync_than_there_are() -> None:
    leader = leader_of(state_of([1], [1]), min_insync=2)
    leader.check_enough_replicas()
    assert leader.take_ready().high_watermark == 10


@pytest.mark.parametrize(("checkpoint", "expected"), [(None, 3), (1, 3), (7, 7), (99, 10)])
def test_the_checkpoint_is_clamped_to_the_log(checkpoint: int | None, expected: int) -> None:
    leader = leader_of(log_start=3, checkpoint=checkpoint)
    assert leader.take_ready().high_watermark == expected


def test_a_leader_leads_what_its_lineage_and_the_metadata_say() -> None:
    lineage = LeaderEpochLineage([(LeaderEpoch(4), Offset(0))])
    bounds = LogBounds(Offset(0), Offset(10))
    settings = ReplicationSettings()
    with pytest.raises(InvariantBrokenError, match="before its lineage"):
        LeaderReplica(PARTITION, LEADER, state_of(), bounds, lineage, settings=settings)
    with pytest.raises(InvariantBrokenError, match="does not lead"):
        LeaderReplica(PARTITION, TWO, state_of(), bounds, lineage, settings=settings)
    with pytest.raises(InvariantBrokenError, match="not in its ISR"):
        LeaderReplica(PARTITION, LEADER, state_of(isr=[2]), bounds, lineage, settings=settings)


# Followers.


def test_what_all_hold_is_committed() -> None:
    leader = leader_of()
    fetch(leader, 2, 10)
    assert leader.high_watermark == 0, "of broker 3 nothing is known in this epoch"
    fetch(leader, 3, 6)
    assert leader.high_watermark == 6
    leader.on_appended(Offset(20))
    fetch(leader, 2, 20)
    fetch(leader, 3, 15)
    assert leader.high_watermark == 15
    leader.on_appended(Offset(30))
    fetch(leader, 3, 30)
    assert leader.high_watermark == 20
    fetch(leader, 2, 25)
    assert leader.high_watermark == 25


def test_latest_has_no_answer_before_the_epoch_is_reached() -> None:
    leader = leader_of()
    fetch(leader, 2, 10)
    fetch(leader, 3, 9)
    assert not leader.high_watermark_is_known
    with pytest.raises(KafkaError) as refused:
        leader.latest_offset()
    assert refused.value.code == Code.OFFSET_NOT_AVAILABLE
    fetch(leader, 3, 10)
    assert leader.latest_offset() == 10


def test_a_fetch_below_the_high_watermark_costs_the_seat_and_nothing_is_taken_back() -> None:
    leader = leader_of()
    fetch(leader, 2, 10)
    fetch(leader, 3, 10)
    proposal = fetch(leader, 3, 4)
    assert proposal == IsrProposal(EPOCH, PartitionEpoch(9), frozenset((LEADER, TWO)))
    assert leader.high_watermark == 10


@pytest.mark.parametrize(("offset", "joins"), [(9, False), (10, True), (12, True)])
def test_joining_needs_the_start_of_the_epoch(offset: int, joins: bool) -> None:
    leader = leader_of(state_of(isr=[1, 2]), checkpoint=3)
    leader.on_appended(Offset(12))
    fetch(leader, 2, 5)
    assert leader.high_watermark == 5
    proposal = fetch(leader, 3, offset)
    assert proposal == (IsrProposal(EPOCH, PartitionEpoch(9), frozenset((LEADER, TWO, THREE))) if joins else None)


def test_joining_needs_the_high_watermark() -> None:
    leader = leader_of(state_of(isr=[1]))
    leader.on_appended(Offset(20))
    leader.take_ready()
    assert fetch(leader, 3, 19) is None
    assert fetch(leader, 3, 20) is not None


def test_joining_needs_the_registered_incarnation() -> None:
    leader = leader_of(state_of(isr=[1]), active=False)
    assert fetch(leader, 2, 10) is None
    leader.on_brokers({TWO: BrokerEpoch(19)})
    assert fetch(leader, 2, 10) is None, "the leader has yet to hear of that incarnation"
    leader.on_brokers({TWO: BrokerEpoch(20)})
    assert fetch(leader, 2, 10) is not None


def test_who_does_not_say_which_incarnation_it_is_does_not_join() -> None:
    leader = leader_of(state_of(isr=[1]), active=False)
    accepted = leader.accept_fetch(replace(fetch_of(2, 10), broker_epoch=None))
    assert isinstance(accepted, AcceptedFetch)
    leader.on_fetch(accepted)
    assert leader.take_ready().isr_proposal is None
    fetch(leader, 2, 10)
    assert isinstance(leader.accept_fetch(replace(fetch_of(2, 10), broker_epoch=None)), AcceptedFetch)


def test_until_the_controller_answers_every_possible_isr_counts() -> None:
    leader = leader_of(state_of(isr=[1]))
    leader.take_ready()
    assert fetch(leader, 2, 10) is not None
    leader.on_appended(Offset(12))
    assert leader.take_ready().high_watermark == 10, "broker 2 may be in the ISR by now"
    leader.on_proposal_unanswered(now_ms=100)
    assert leader.take_ready().high_watermark == 10, "a time-out answers nothing"
    assert leader.maximal_isr == {1, 2}
    assert fetch(leader, 3, 12) is None, "not at once"
    leader.on_tick(100 + BACKOFF_MS)
    assert leader.take_ready().isr_proposal == IsrProposal(EPOCH, PartitionEpoch(9), frozenset((LEADER,)))
    leader.on_proposal_unanswered(now_ms=200)
    leader.on_tick(200 + BACKOFF_MS - 1)
    assert leader.next_deadline_ms() == 200 + BACKOFF_MS
    assert leader.take_ready().isr_proposal is None
    leader.on_tick(200 + BACKOFF_MS)
    assert leader.take_ready().isr_proposal is not None, "until newer state answers, it is asked for"
    assert leader.maximal_isr == {1, 2}

    leader.on_state(state_of(isr=[1], partition_epoch=9))
    assert leader.maximal_isr == {1, 2}, "this is the state that it was asked on"
    leader.on_state(state_of(isr=[1], partition_epoch=10))
    assert leader.maximal_isr == {1}
    assert leader.take_ready().high_watermark == 12


def test_shrinking_commits_only_once_it_is_granted() -> None:
    leader = leader_of()
    fetch(leader, 2, 10)
    leader.on_tick(LAG_MS_MAX + 1)
    proposal = leader.take_ready().isr_proposal
    assert proposal is not None
    assert proposal.isr == {1, 2}
    assert leader.take_ready().high_watermark == 0
    leader.on_state(state_of(isr=[1, 2], partition_epoch=10))
    assert leader.take_ready().high_watermark == 10


def test_one_question_at_a_time() -> None:
    leader = leader_of(state_of(isr=[1]))
    leader.take_ready()
    assert fetch(leader, 2, 10) is not None
    assert fetch(leader, 3, 10) is None
    leader.on_state(state_of(isr=[1, 2], partition_epoch=10))
    assert fetch(leader, 3, 10) == IsrProposal(EPOCH, PartitionEpoch(10), frozenset((LEADER, TWO, THREE)))


def test_a_replica_that_is_new_begins_unknown() -> None:
    leader = leader_of(state_of([1, 2], [1, 2]))
    fetch(leader, 2, 10)
    leader.on_state(state_of([1, 2, 3], [1, 2, 3], partition_epoch=10))
    leader.on_appended(Offset(12))
    fetch(leader, 2, 12)
    assert leader.high_watermark == 10
    fetch(leader, 3, 11)
    assert leader.high_watermark == 11


def test_after_an_unclean_election_nobody_joins_before_the_controller_knows_that_the_leader_recovered() -> None:
    leader = leader_of(replace(state_of(isr=[1]), is_recovering=True))
    assert leader.take_ready().isr_proposal == IsrProposal(EPOCH, PartitionEpoch(9), frozenset((LEADER,)))
    assert leader.take_ready().isr_proposal is None
    assert fetch(leader, 2, 10) is None
    leader.on_proposal_unanswered(now_ms=0)
    assert fetch(leader, 2, 10) is None
    leader.on_tick(BACKOFF_MS)
    assert leader.take_ready().isr_proposal is not None, "it says so until it is heard"
    leader.on_state(state_of(isr=[1], partition_epoch=10))
    assert fetch(leader, 2, 10) == IsrProposal(EPOCH, PartitionEpoch(10), frozenset((LEADER, TWO)))


def test_newer_state_that_does_not_know_of_the_recovery_is_told_again() -> None:
    recovering = replace(state_of(isr=[1]), is_recovering=True)
    leader = leader_of(recovering)
    leader.take_ready()
    leader.on_state(replace(recovering, partition_epoch=PartitionEpoch(10)))
    assert leader.take_ready().isr_proposal == IsrProposal(EPOCH, PartitionEpoch(10), frozenset((LEADER,)))
    assert fetch(leader, 2, 10) is None


def test_older_news_changes_nothing() -> None:
    leader = leader_of(state_of(isr=[1]))
    leader.take_ready()
    assert fetch(leader, 2, 10) is not None
    leader.on_proposal_unanswered()
    before = leader.canonical_key()
    for partition_epoch in (8, 9):
        leader.on_state(state_of([1], [1], partition_epoch=partition_epoch))
        assert leader.canonical_key() == before
    assert leader.next_deadline_ms() == BACKOFF_MS


def test_state_of_another_epoch_is_for_another_machine() -> None:
    with pytest.raises(InvariantBrokenError, match="another leader epoch"):
        leader_of().on_state(replace(state_of(partition_epoch=10), leader_epoch=LeaderEpoch(6)))


def test_a_refusal_that_nobody_asked_for_holds_nothing_back() -> None:
    leader = leader_of(state_of(isr=[1]))
    leader.on_proposal_unanswered(now_ms=0)
    assert leader.next_deadline_ms() is None
    assert fetch(leader, 2, 10) is not None


def test_newer_state_ends_the_pause() -> None:
    leader = leader_of(state_of(isr=[1]))
    leader.take_ready()
    assert fetch(leader, 2, 10) is not None
    leader.on_proposal_unanswered(now_ms=0)
    leader.on_state(state_of(isr=[1], partition_epoch=10))
    assert fetch(leader, 2, 10) == IsrProposal(EPOCH, PartitionEpoch(10), frozenset((LEADER, TWO)))


def test_a_proposal_that_newer_state_overtook_is_not_sent() -> None:
    leader = leader_of(state_of(isr=[1]))
    accepted = leader.accept_fetch(fetch_of(2, 10))
    assert isinstance(accepted, AcceptedFetch)
    leader.on_fetch(accepted)
    leader.on_state(state_of(isr=[1, 2], partition_epoch=10))
    assert leader.take_ready().isr_proposal is None


def test_an_answered_proposal_leaves_no_trace() -> None:
    asked, silent = leader_of(state_of(isr=[1])), leader_of(state_of(isr=[1]), active=False)
    for leader in (asked, silent):
        fetch(leader, 2, 10)
        leader.on_brokers({TWO: BrokerEpoch(20), THREE: BrokerEpoch(30)})
    assert asked.canonical_key() != silent.canonical_key()
    for leader in (asked, silent):
        leader.on_state(state_of(isr=[1], partition_epoch=10))
    assert asked.canonical_key() == silent.canonical_key()


def test_who_lags_is_left_out_when_it_is_asked_again() -> None:
    leader = leader_of(state_of(isr=[1, 2]))
    leader.take_ready()
    fetch(leader, 2, 10)
    assert fetch(leader, 3, 10) is not None
    leader.on_appended(Offset(12))
    leader.on_proposal_unanswered(now_ms=LAG_MS_MAX)
    leader.on_tick(LAG_MS_MAX + BACKOFF_MS)
    assert leader.take_ready().isr_proposal == IsrProposal(EPOCH, PartitionEpoch(9), frozenset((LEADER,)))
    assert leader.maximal_isr == {1, 2, 3}


def test_an_older_rule_of_joining_can_be_put_in_its_place() -> None:
    leader = leader_of(state_of(isr=[1, 2]), checkpoint=3, join=joins_at_the_high_watermark)
    assert fetch(leader, 3, 3) is not None
    assert fetch(leader_of(state_of(isr=[1, 2]), checkpoint=3), 3, 3) is None


def test_a_copy_reads_the_lineage_of_the_copied_log() -> None:
    leader = leader_of()
    lineage = LeaderEpochLineage([(LeaderEpoch(1), Offset(0)), (EPOCH, Offset(10))])
    assert leader.clone(lineage).offset_for_leader_epoch(LeaderEpoch(3)) == (1, 10)
    assert leader.offset_for_leader_epoch(LeaderEpoch(3)) == (3, 10)
    assert leader.clone().canonical_key() == leader.canonical_key()


def test_a_copy_goes_its_own_way() -> None:
    leader = leader_of(state_of(isr=[1]))
    fetch(leader, 3, 4)
    before = leader.canonical_key()
    copy = leader.clone()
    copy.on_produced(CorrelationId(1), Offset(12), 100)
    assert fetch(copy, 3, 10) is not None
    copy.on_proposal_unanswered(now_ms=0)
    assert leader.canonical_key() == before != copy.canonical_key()


# Which fetches prove anything.


@pytest.mark.parametrize(
    ("asked", "error", "code"),
    [
        (fetch_of(2, 10, leader_epoch=4), FencedLeaderEpochError, Code.FENCED_LEADER_EPOCH),
        (fetch_of(2, 10, leader_epoch=6), UnknownLeaderEpochError, Code.UNKNOWN_LEADER_EPOCH),
        (fetch_of(4, 10), KafkaError, Code.UNKNOWN_LEADER_EPOCH),
        (fetch_of(2, 11), OffsetOutOfRangeError, Code.OFFSET_OUT_OF_RANGE),
        (fetch_of(2, 1), OffsetOutOfRangeError, Code.OFFSET_OUT_OF_RANGE),
        (fetch_of(2, 10, last_fetched_epoch=6), OffsetOutOfRangeError, Code.OFFSET_OUT_OF_RANGE),
        (fetch_of(2, 10, broker_epoch=19), KafkaError, Code.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_fetches_that_prove_nothing(asked: FollowerFetch, error: type[KafkaError], code: Code) -> None:
    leader = leader_of(log_start=2)
    fetch(leader, 2, 5)
    before = leader.canonical_key()
    with pytest.raises(error) as refused:
        leader.accept_fetch(asked)
    assert refused.value.code == code
    assert leader.canonical_key() == before


@pytest.mark.parametrize(
    ("last_fetched_epoch", "offset", "diverges"),
    [
        (3, 10, None),
        (3, 4, None),
        (5, 10, None),
        (2, 4, None),
        (2, 5, EpochEntry(LeaderEpoch(2), Offset(4))),
        (4, 9, EpochEntry(LeaderEpoch(3), Offset(10))),
    ],
)
def test_a_log_that_is_no_prefix_is_told_where_to_cut(
    last_fetched_epoch: int, offset: int, diverges: EpochEntry | None
) -> None:
    found = leader_of().accept_fetch(fetch_of(2, offset, last_fetched_epoch=last_fetched_epoch))
    assert (None if isinstance(found, AcceptedFetch) else found) == diverges


def test_a_fetch_that_was_overtaken_since_it_was_accepted_is_dropped() -> None:
    leader = leader_of(state_of([1, 2], [1, 2]))
    old = leader.accept_fetch(fetch_of(2, 10))
    new = leader.accept_fetch(fetch_of(2, 5, broker_epoch=21))
    assert isinstance(old, AcceptedFetch)
    assert isinstance(new, AcceptedFetch)
    leader.on_fetch(new)
    leader.on_fetch(old)
    assert leader.take_ready().high_watermark == 5
    leader.on_state(state_of([1], [1], partition_epoch=10))
    leader.on_fetch(new)
    assert leader.take_ready().high_watermark == 10


def test_a_fetch_of_an_incarnation_before_the_registered_one_proves_nothing() -> None:
    leader = leader_of(state_of([1, 2], [1, 2]))
    asked = fetch_of(2, 10, now_ms=5)
    accepted = leader.accept_fetch(asked)
    assert isinstance(accepted, AcceptedFetch)
    leader.on_brokers({TWO: BrokerEpoch(21)})
    before = leader.canonical_key()
    with pytest.raises(KafkaError) as refused:
        leader.accept_fetch(asked)
    assert refused.value.code == Code.NOT_LEADER_OR_FOLLOWER
    leader.on_fetch(accepted)
    assert leader.canonical_key() == before
    assert leader.take_ready().high_watermark == 0


# Time.


def test_a_follower_that_keeps_up_with_a_busy_log_stays() -> None:
    leader = leader_of(state_of([1, 2], [1, 2]))
    end = 10
    for now_ms in range(0, 5000, 500):
        end += 10
        leader.on_appended(Offset(end))
        accepted = leader.accept_fetch(fetch_of(2, end - 10, now_ms=now_ms))
        assert isinstance(accepted, AcceptedFetch)
        leader.on_fetch(accepted)
        leader.on_tick(now_ms)
        assert leader.take_ready().isr_proposal is None
    leader.on_tick(now_ms + LAG_MS_MAX + 1)
    proposal = leader.take_ready().isr_proposal
    assert proposal is not None
    assert proposal.isr == {1}


def test_who_was_at_the_end_is_caught_up_as_of_then() -> None:
    leader = leader_of(state_of([1, 2], [1, 2]))
    fetch(leader, 2, 10, now_ms=500)
    leader.on_appended(Offset(11))
    assert leader.next_deadline_ms() == 500 + LAG_MS_MAX + 1
    fetch(leader, 2, 10, now_ms=700)
    assert leader.next_deadline_ms() == 500 + LAG_MS_MAX + 1, "it has all that there was at 500, as is known"
    leader.on_appended(Offset(15))
    fetch(leader, 2, 10, now_ms=900)
    assert leader.next_deadline_ms() == 500 + LAG_MS_MAX + 1
    fetch(leader, 2, 14, now_ms=950)
    assert leader.next_deadline_ms() == 500 + LAG_MS_MAX + 1
    leader.on_appended(Offset(16))
    fetch(leader, 2, 15, now_ms=990)
    assert leader.next_deadline_ms() == 950 + LAG_MS_MAX + 1


def test_a_replica_that_is_new_was_never_caught_up() -> None:
    leader = leader_of(state_of([1, 2], [1, 2]))
    fetch(leader, 2, 10)
    leader.on_state(state_of([1, 2, 3], [1, 2, 3], partition_epoch=10))
    assert leader.next_deadline_ms() == LAG_MS_MAX + 1


def test_a_follower_at_the_end_stays_while_nothing_is_written() -> None:
    leader = leader_of(state_of([1, 2], [1, 2]))
    fetch(leader, 2, 10)
    assert leader.next_deadline_ms() is None
    leader.on_tick(10 * LAG_MS_MAX)
    assert leader.take_ready().isr_proposal is None


def test_the_deadline_is_when_something_happens() -> None:
    leader = leader_of(state_of([1, 2], [1, 2]))
    deadline = leader.next_deadline_ms()
    assert deadline == LAG_MS_MAX + 1
    leader.on_tick(deadline - 1)
    assert leader.take_ready().isr_proposal is None
    leader.on_tick(deadline)
    assert leader.take_ready().isr_proposal is not None


def test_who_lags_is_no_reason_to_ask_again_before_the_pause_is_over() -> None:
    leader = leader_of(state_of([1, 2, 3], [1, 2, 3]))
    fetch(leader, 2, 10)
    leader.on_tick(LAG_MS_MAX + 1)
    assert leader.take_ready().isr_proposal is not None
    assert leader.next_deadline_ms() is None, "while it is asked, time alone changes nothing"
    leader.on_proposal_unanswered(now_ms=LAG_MS_MAX + 5)
    assert leader.next_deadline_ms() == LAG_MS_MAX + 5 + BACKOFF_MS
    leader.on_tick(LAG_MS_MAX + 6)
    assert leader.take_ready().isr_proposal is None
    leader.on_tick(LAG_MS_MAX + 5 + BACKOFF_MS)
    assert leader.take_ready().isr_proposal == IsrProposal(EPOCH, PartitionEpoch(9), frozenset((LEADER, TWO)))


def test_who_lost_what_it_had_is_no_reason_to_ask_again_before_the_pause_is_over() -> None:
    leader = leader_of(state_of(isr=[1, 2]))
    fetch(leader, 2, 10)
    assert fetch(leader, 3, 10) is not None
    leader.on_proposal_unanswered(now_ms=100)
    assert fetch(leader, 2, 4) is None
    leader.on_tick(100 + BACKOFF_MS)
    assert leader.take_ready().isr_proposal == IsrProposal(EPOCH, PartitionEpoch(9), frozenset((LEADER, TWO)))
    leader.on_state(state_of(isr=[1, 2, 3], partition_epoch=10))
    assert fetch(leader, 2, 4) == IsrProposal(EPOCH, PartitionEpoch(10), frozenset((LEADER, THREE)))


# Producers that wait.


def test_a_producer_waits_for_its_records_and_no_longer_than_it_wants_to() -> None:
    leader = leader_of(state_of([1, 2], [1, 2]))
    leader.on_appended(Offset(12))
    leader.on_produced(CorrelationId(1), Offset(11), 100)
    leader.on_produced(CorrelationId(2), Offset(12), 200)
    leader.on_produced(CorrelationId(3), Offset(12), 300)
    assert leader.next_deadline_ms() == 100
    accepted = leader.accept_fetch(fetch_of(2, 11))
    assert isinstance(accepted, AcceptedFetch)
    leader.on_fetch(accepted)
    assert leader.take_ready().acks == (Acknowledgement(CorrelationId(1), Code.NONE),)
    leader.on_tick(200)
    assert leader.take_ready().acks == (Acknowledgement(CorrelationId(2), Code.REQUEST_TIMED_OUT),)
    leader.on_stopped()
    assert leader.take_ready().acks == (Acknowledgement(CorrelationId(3), Code.NOT_LEADER_OR_FOLLOWER),)
    assert leader.take_ready().acks == ()


def test_whom_time_left_waiting_are_answered_in_their_order() -> None:
    leader = leader_of(state_of([1, 2], [1, 2]))
    leader.on_appended(Offset(20))
    for number, (end, deadline_ms) in enumerate([(11, 100), (15, 900), (12, 900)]):
        leader.on_produced(CorrelationId(number), Offset(end), deadline_ms)
    leader.on_tick(100)
    assert leader.take_ready().acks == (Acknowledgement(CorrelationId(0), Code.REQUEST_TIMED_OUT),)
    accepted = leader.accept_fetch(fetch_of(2, 12))
    assert isinstance(accepted, AcceptedFetch)
    leader.on_fetch(accepted)
    assert leader.take_ready().acks == (Acknowledgement(CorrelationId(2), Code.NONE),)
    leader.on_stopped()
    leader.on_stopped()
    assert leader.take_ready().acks == (Acknowledgement(CorrelationId(1), Code.NOT_LEADER_OR_FOLLOWER),)


def test_a_producer_is_told_when_too_few_are_left() -> None:
    leader = leader_of(state_of([1, 2], [1, 2]), min_insync=1)
    leader.on_appended(Offset(12))
    leader.on_produced(CorrelationId(1), Offset(11), 100)
    fetch(leader, 2, 10)
    accepted = leader.accept_fetch(fetch_of(2, 11))
    assert isinstance(accepted, AcceptedFetch)
    leader.on_fetch(accepted)
    leader.on_produced(CorrelationId(2), Offset(10), 100)
    leader.on_settings(ReplicationSettings(min_insync_replicas=2))
    assert [ack.code for ack in leader.take_ready().acks] == [Code.NONE] * 2
    leader.on_produced(CorrelationId(3), Offset(11), 100)
    leader.on_state(state_of([1, 2], [1], partition_epoch=10))
    assert [ack.code for ack in leader.take_ready().acks] == [Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND]


# The rest.


def test_where_epochs_end() -> None:
    leader = leader_of()
    leader.on_appended(Offset(15))
    assert leader.offset_for_leader_epoch(LeaderEpoch(2)) == (2, 4)
    assert leader.offset_for_leader_epoch(LeaderEpoch(4)) == (3, 10)
    assert leader.offset_for_leader_epoch(EPOCH) == (5, 15)
    assert leader.offset_for_leader_epoch(LeaderEpoch(6)) is None
    assert leader.offset_for_leader_epoch(LeaderEpoch(1)) == (1, 0)


@pytest.mark.parametrize(("sent", "error"), [(None, None), (5, None), (4, "older"), (6, "newer")])
def test_epochs_of_senders(sent: int | None, error: str | None) -> None:
    epoch = None if sent is None else LeaderEpoch(sent)
    for check in (
        leader_of().check_leader_epoch,
        lambda sent: check_leader_epoch(PARTITION, sent=sent, leader_epoch=EPOCH),
    ):
        if error is None:
            check(epoch)
            continue
        with pytest.raises(KafkaError) as refused:
            check(epoch)
        assert isinstance(refused.value, FencedLeaderEpochError if error == "older" else UnknownLeaderEpochError)
        assert refused.value.leader_epoch == EPOCH


def test_what_is_not_committed_is_not_deleted() -> None:
    leader = leader_of(checkpoint=5)
    leader.on_log_start_moved(Offset(5))
    leader.on_log_start_moved(Offset(4))
    assert leader.log_start_offset == 5
    with pytest.raises(InvariantBrokenError):
        leader.on_log_start_moved(Offset(6))
    leader.on_appended(Offset(10))
    with pytest.raises(InvariantBrokenError):
        leader.on_appended(Offset(9))


def test_what_is_not_said_is_as_kafka_has_it() -> None:
    values, settings = broker_values({}), ReplicationSettings()
    assert settings.min_insync_replicas == values["min.insync.replicas"]
    assert settings.lag_ms_max == values["replica.lag.time.max.ms"]
    assert settings.proposal_backoff_ms == FollowerSettings().fetch_backoff_ms == 1000


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3)),
        st.tuples(st.just("fetch"), st.sampled_from((2, 3))),
        st.tuples(st.just("grow"), st.integers(1, 3)),
        st.tuples(st.just("tick"), st.sampled_from((100, 2000))),
        st.tuples(st.just("time out"), st.just(0)),
        st.tuples(st.just("grant"), st.integers(0, 5)),
        st.tuples(st.just("refuse"), st.just(0)),
    ),
    max_size=60,
)


@given(steps=STEPS, min_insync=st.integers(1, 3), isr=st.sampled_from(((1,), (1, 2), (1, 2, 3))))
def test_what_is_committed_is_held_by_every_isr_that_may_be_true(
    steps: list[tuple[str, int]], min_insync: int, isr: tuple[int, ...]
) -> None:
    leader = leader_of(state_of(isr=isr), min_insync=min_insync)
    held = {1: 10, 2: 0, 3: 0}  # what each broker really has; followers only grow here
    true_isr, partition_epoch = frozenset(isr), 9  # as the controller has them
    asked: list[IsrProposal] = []
    waiting: dict[int, int] = {}
    now_ms = 0
    high_watermark = 0

    for number, (step, value) in enumerate(steps):
        if step == "append":
            held[1] += value
            leader.on_appended(Offset(held[1]))
            waiting[number] = held[1]
            leader.on_produced(CorrelationId(number), Offset(held[1]), 1 << 40)
        elif step == "fetch":
            accepted = leader.accept_fetch(fetch_of(value, held[value], now_ms=now_ms))
            assert isinstance(accepted, AcceptedFetch)
            leader.on_fetch(accepted)
        elif step == "grow":
            for follower in (2, 3)[: value or 1]:
                held[follower] = min(held[1], held[follower] + value * 4)
        elif step == "tick":
            now_ms += value
            leader.on_tick(now_ms)
        elif step == "time out":
            leader.on_proposal_unanswered(now_ms)
        elif step == "grant" and asked:
            # The controller takes any proposal made on its own state, however late it comes; its answer may be lost.
            proposal = asked[value % len(asked)]
            if proposal.partition_epoch == partition_epoch:
                true_isr, partition_epoch = proposal.isr, partition_epoch + 1
            if value < 4:
                leader.on_state(state_of(isr=sorted(true_isr), partition_epoch=partition_epoch))
        ready = leader.take_ready()
        if ready.isr_proposal is not None:
            asked.append(ready.isr_proposal)
            assert LEADER in ready.isr_proposal.isr
        if ready.high_watermark > high_watermark:
            for broker in true_isr:
                assert held[broker] >= ready.high_watermark, f"broker {broker} may lead next, and lacks it"
            assert len(leader.isr) >= min(min_insync, 3)
        assert ready.high_watermark >= high_watermark
        high_watermark = ready.high_watermark
        assert true_isr <= leader.maximal_isr
        for ack in ready.acks:
            assert waiting.pop(ack.correlation_id) <= high_watermark
        assert all(end_offset > high_watermark for end_offset in waiting.values())
        copy = leader.clone()
        assert copy.canonical_key() == leader.canonical_key()
        copy.on_appended(Offset(held[1] + 100))
        copy.on_stopped()
        assert leader.log_end_offset == held[1]
