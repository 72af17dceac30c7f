"""The leader of a partition: what is committed, whose fetch proves something, who may join and who must leave."""

from __future__ import annotations

import pytest

from support.fixtures.led_replica import (
    EPOCH,
    LAG_MS_MAX,
    LEADER,
    PARTITION,
    SILENCE_MS_MAX,
    THREE,
    TWO,
    fetch,
    fetch_of,
    leader_of,
    state_of,
)
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
    CorrelationId,
    LeaderEpoch,
    Offset,
)
from tidelog.metadata.configs import broker_values
from tidelog.metadata.configs.broker import MIN_INSYNC_REPLICAS
from tidelog.metadata.configs.cluster import BROKER_SESSION_TIMEOUT_MS, REPLICA_LAG_TIME_MAX_MS
from tidelog.records.lineage import EpochEntry, LeaderEpochLineage
from tidelog.replica import (
    AcceptedFetch,
    Acknowledgement,
    FollowerFetch,
    FollowerSettings,
    LeaderReplica,
    LogBounds,
    ReplicationSettings,
    check_leader_epoch,
)

# Alone.


def test_alone_what_is_appended_is_committed() -> None:
    leader = leader_of(state_of([1], [1]))
    assert leader.take_ready().high_watermark == 10
    leader.on_appended(Offset(12), now_ms=0)
    assert leader.high_watermark == 10, "it moves when the driver asks, so that the driver can tell"
    assert leader.take_ready().high_watermark == 12


def test_alone_is_not_enough_when_more_must_be_in_sync() -> None:
    leader = leader_of(state_of([1, 2], [1]), min_insync=2)
    leader.on_appended(Offset(12), now_ms=0)
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
        LeaderReplica(PARTITION, LEADER, state_of(), bounds, lineage, settings=settings, now_ms=0)
    with pytest.raises(InvariantBrokenError, match="does not lead"):
        LeaderReplica(PARTITION, TWO, state_of(), bounds, lineage, settings=settings, now_ms=0)
    with pytest.raises(InvariantBrokenError, match="not in its ISR"):
        LeaderReplica(PARTITION, LEADER, state_of(isr=[2]), bounds, lineage, settings=settings, now_ms=0)


# Followers.


def test_what_all_hold_is_committed() -> None:
    leader = leader_of()
    fetch(leader, 2, 10)
    assert leader.high_watermark == 0, "of broker 3 nothing is known in this epoch"
    fetch(leader, 3, 6)
    assert leader.high_watermark == 6
    leader.on_appended(Offset(20), now_ms=0)
    fetch(leader, 2, 20)
    fetch(leader, 3, 15)
    assert leader.high_watermark == 15
    leader.on_appended(Offset(30), now_ms=0)
    fetch(leader, 3, 30)
    assert leader.high_watermark == 20
    fetch(leader, 2, 25)
    assert leader.high_watermark == 25


def test_what_the_leader_does_not_hold_yet_is_not_committed_whoever_else_holds_it() -> None:
    """`flush.messages`: it holds what is synced, as its followers do."""
    leader = leader_of(state_of([1, 2], [1, 2]))
    fetch(leader, 2, 10)
    leader.on_appended(Offset(20), now_ms=0, is_held=False)
    leader.on_produced(CorrelationId(1), Offset(15), deadline_ms=1_000)
    fetch(leader, 2, 20)
    assert (leader.high_watermark, leader.take_ready().acks) == (10, ())
    leader.on_held(Offset(15))
    assert leader.take_ready().acks == (Acknowledgement(CorrelationId(1), Code.NONE),)
    assert leader.high_watermark == 15
    leader.on_held(Offset(12))
    assert leader.take_ready().high_watermark == 15
    with pytest.raises(InvariantBrokenError, match="more than was written"):
        leader.on_held(Offset(21))


def test_what_the_leader_holds_it_goes_on_holding() -> None:
    leader = leader_of(state_of([1, 2], [1, 2]))
    leader.on_appended(Offset(20), now_ms=0, is_held=False)
    leader.on_held(Offset(15))
    leader.on_held(Offset(12))
    fetch(leader, 2, 20)
    assert leader.high_watermark == 15


def test_a_leader_that_does_not_hold_all_it_begins_with_holds_what_is_committed() -> None:
    leader = leader_of(state_of([1], [1]), checkpoint=4, is_held=False)
    assert leader.take_ready().high_watermark == 4
    leader.on_held(Offset(10))
    assert leader.take_ready().high_watermark == 10


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
        (fetch_of(4, 10, leader_epoch=None), KafkaError, Code.NOT_LEADER_OR_FOLLOWER),
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
        leader.on_appended(Offset(end), now_ms=0)
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
    leader.on_appended(Offset(11), now_ms=600)
    assert leader.next_deadline_ms() == 600 + LAG_MS_MAX + 1, "until then there was nothing that it lacked"
    fetch(leader, 2, 10, now_ms=700)
    assert leader.next_deadline_ms() == 600 + LAG_MS_MAX + 1
    leader.on_appended(Offset(15), now_ms=800)
    fetch(leader, 2, 10, now_ms=900)
    assert leader.next_deadline_ms() == 600 + LAG_MS_MAX + 1
    fetch(leader, 2, 14, now_ms=950)
    assert leader.next_deadline_ms() == 600 + LAG_MS_MAX + 1
    leader.on_appended(Offset(16), now_ms=980)
    fetch(leader, 2, 15, now_ms=990)
    assert leader.next_deadline_ms() == 950 + LAG_MS_MAX + 1


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


def test_a_replica_that_is_new_was_never_caught_up() -> None:
    leader = leader_of(state_of([1, 2], [1, 2]))
    fetch(leader, 2, 10)
    leader.on_state(state_of([1, 2, 3], [1, 2, 3], partition_epoch=10))
    assert leader.next_deadline_ms() == LAG_MS_MAX + 1


# Producers that wait.


def test_a_producer_waits_for_its_records_and_no_longer_than_it_wants_to() -> None:
    leader = leader_of(state_of([1, 2], [1, 2]))
    leader.on_appended(Offset(12), now_ms=0)
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
    leader.on_appended(Offset(20), now_ms=0)
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
    leader.on_appended(Offset(12), now_ms=0)
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


# Cut off.


def code_for_a_new_append(leader: LeaderReplica) -> Code:
    """What a producer with acks=all is told before anything is written."""
    try:
        leader.check_enough_replicas()
    except KafkaError as refused:
        return refused.code
    return Code.NONE


def test_a_leader_that_nobody_fetches_from_refuses_those_who_wait_and_those_who_come() -> None:
    leader = leader_of(min_insync=2)
    fetch(leader, 2, 10)
    fetch(leader, 3, 10)
    leader.on_appended(Offset(12), now_ms=500)
    cut_off_from_ms = 500 + SILENCE_MS_MAX + 1
    assert leader.on_produced(CorrelationId(1), Offset(11), cut_off_from_ms + 1) == cut_off_from_ms
    assert leader.on_produced(CorrelationId(2), Offset(12), cut_off_from_ms + 1) == cut_off_from_ms
    leader.on_tick(500 + SILENCE_MS_MAX)
    assert (leader.take_ready().acks, code_for_a_new_append(leader)) == ((), Code.NONE)
    assert not leader.silence.is_cut_off
    assert leader.next_deadline_ms() == 500 + SILENCE_MS_MAX + 1
    leader.on_tick(500 + SILENCE_MS_MAX + 1)
    told = [(ack.correlation_id, ack.code) for ack in leader.take_ready().acks]
    assert told == [(1, Code.NOT_LEADER_OR_FOLLOWER), (2, Code.NOT_LEADER_OR_FOLLOWER)]
    assert code_for_a_new_append(leader) is Code.NOT_LEADER_OR_FOLLOWER
    assert leader.silence.is_cut_off
    fetch(leader, 3, 11, now_ms=500 + SILENCE_MS_MAX + 2)
    assert (code_for_a_new_append(leader), leader.silence.is_cut_off) == (Code.NONE, False)


def test_where_just_enough_are_in_sync_producers_are_sent_elsewhere_and_no_time_is_waited_for() -> None:
    leader = leader_of(state_of([1, 2], [1, 2]), min_insync=2)
    leader.on_appended(Offset(12), now_ms=0)
    assert leader.on_produced(CorrelationId(1), Offset(12), 100) == 100, "before the leader is cut off"
    leader.on_produced(CorrelationId(2), Offset(12), 30_000)
    leader.on_tick(SILENCE_MS_MAX + 1)
    assert [ack.code for ack in leader.take_ready().acks] == [Code.NOT_LEADER_OR_FOLLOWER] * 2
    assert leader.next_deadline_ms() is None, "it is cut off already"


def test_other_times_count_at_once() -> None:
    leader = leader_of(state_of([1, 2], [1, 2]), min_insync=2)
    leader.on_appended(Offset(12), now_ms=0)
    leader.on_settings(ReplicationSettings(min_insync_replicas=2, lag_ms_max=40, silence_ms_max=70))
    assert leader.silence.cut_off_from_ms(Offset(12)) == 71
    assert leader.next_deadline_ms() == 41


def test_as_many_have_to_fetch_as_have_to_be_in_sync() -> None:
    now_ms = SILENCE_MS_MAX + 1
    for min_insync, fetching, is_cut_off in [(1, [], False), (2, [], True), (2, [3], False), (3, [3], True)]:
        leader = leader_of(min_insync=min_insync)
        for follower in fetching:
            fetch(leader, follower, 9, now_ms=now_ms)
        leader.on_tick(now_ms)
        assert leader.silence.is_cut_off == is_cut_off, (min_insync, fetching)


def test_a_follower_with_nothing_to_fetch_is_not_silent() -> None:
    """In a fetch session it names nothing that has not changed; its silence counts from the next append."""
    leader = leader_of(state_of([1, 2], [1, 2]), min_insync=2)
    fetch(leader, 2, 10)
    assert leader.on_produced(CorrelationId(1), Offset(10), 1 << 40) == 1 << 40
    leader.on_tick(100 * SILENCE_MS_MAX)
    assert code_for_a_new_append(leader) is Code.NONE
    leader.on_appended(Offset(11), now_ms=100 * SILENCE_MS_MAX)
    assert leader.silence.cut_off_from_ms(Offset(11)) == 101 * SILENCE_MS_MAX + 1


def test_where_nothing_was_written_a_follower_that_fetches_nothing_at_all_is_silent_too() -> None:
    leader = leader_of(min_insync=2)
    for follower in (2, 3):
        fetch(leader, follower, 10)
    leader.on_silent(TWO, 100)
    assert not leader.silence.is_cut_off
    leader.on_appended(Offset(11), now_ms=100)
    leader.on_produced(CorrelationId(1), Offset(11), 30_000)
    leader.on_silent(THREE, 101)
    assert [ack.code for ack in leader.take_ready().acks] == [Code.NOT_LEADER_OR_FOLLOWER]
    assert code_for_a_new_append(leader) is Code.NOT_LEADER_OR_FOLLOWER
    leader.on_contact(THREE, 102)
    assert code_for_a_new_append(leader) is Code.NONE, "what is written here it will fetch"
    leader.on_silent(THREE, 103)
    assert leader.clone().canonical_key() == leader.canonical_key()
    fetch(leader, 3, 11, now_ms=104)
    assert not leader.silence.is_cut_off


def test_whoever_may_be_in_sync_counts_and_where_these_are_too_few_whoever_could_be() -> None:
    leader = leader_of(state_of([1, 2, 3], [1, 2]), min_insync=2)
    now_ms = SILENCE_MS_MAX + 1
    fetch(leader, 3, 1, now_ms=now_ms)
    leader.on_tick(now_ms)
    assert leader.silence.is_cut_off, "broker 3 is far behind, and broker 2 has to have what is committed"
    fetch(leader, 3, 10, now_ms=now_ms)
    assert leader.silence.is_cut_off, "one question at a time: that broker 2 leaves is asked first"
    leader.on_state(state_of([1, 2, 3], [1], partition_epoch=10))
    assert not leader.silence.is_cut_off, "broker 3 is on its way to the ISR"
    assert code_for_a_new_append(leader) is Code.NOT_ENOUGH_REPLICAS
    leader.on_appended(Offset(12), now_ms=now_ms)
    leader.on_produced(CorrelationId(1), Offset(12), 30_000)
    leader.on_tick(now_ms + SILENCE_MS_MAX + 1)
    assert [ack.code for ack in leader.take_ready().acks] == [Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND]


def test_a_leader_that_needs_fewer_is_not_cut_off_any_more() -> None:
    leader = leader_of(state_of([1, 2], [1, 2]), min_insync=2)
    leader.on_tick(SILENCE_MS_MAX + 1)
    assert leader.silence.is_cut_off
    copy = leader.clone()
    assert copy.canonical_key() == leader.canonical_key()
    leader.on_settings(ReplicationSettings(min_insync_replicas=1, silence_ms_max=SILENCE_MS_MAX))
    assert not leader.silence.is_cut_off
    assert copy.canonical_key() != leader.canonical_key()


def test_a_leader_that_is_cut_off_commits_what_it_refused_once_it_is_fetched() -> None:
    """Nobody waits any more; who retries is a duplicate then, and is told where the original is."""
    leader = leader_of(state_of([1, 2], [1, 2]), min_insync=2)
    leader.on_appended(Offset(12), now_ms=0)
    leader.on_produced(CorrelationId(1), Offset(12), 30_000)
    leader.on_tick(SILENCE_MS_MAX + 1)
    assert len(leader.take_ready().acks) == 1
    fetch(leader, 2, 12, now_ms=SILENCE_MS_MAX + 2)
    assert leader.high_watermark == 12
    leader.on_produced(CorrelationId(2), Offset(12), 30_000)
    assert leader.take_ready().acks == (Acknowledgement(CorrelationId(2), Code.NONE),)


# The rest.


def test_where_epochs_end() -> None:
    leader = leader_of()
    leader.on_appended(Offset(15), now_ms=0)
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
    leader.on_appended(Offset(10), now_ms=0)
    with pytest.raises(InvariantBrokenError):
        leader.on_appended(Offset(9), now_ms=0)


def test_what_is_not_said_is_as_kafka_has_it() -> None:
    values, settings = broker_values({}), ReplicationSettings()
    assert settings.min_insync_replicas == values[MIN_INSYNC_REPLICAS]
    assert settings.lag_ms_max == values[REPLICA_LAG_TIME_MAX_MS]
    assert settings.silence_ms_max == values[BROKER_SESSION_TIMEOUT_MS]
    assert settings.proposal_backoff_ms == FollowerSettings().fetch_backoff_ms == 1000


# What is the case.


@pytest.mark.parametrize(
    ("epoch", "offset", "told"),
    [(5, 10, None), (5, 11, (5, 10)), (4, 10, (3, 10)), (3, 10, None), (3, 11, (3, 10)), (2, 4, None), (2, 5, (2, 4))],
)
def test_where_a_log_ceases_to_be_a_prefix(epoch: int, offset: int, told: tuple[int, int] | None) -> None:
    assert leader_of().diverging(LeaderEpoch(epoch), offset) == told


def test_nothing_can_be_said_of_an_epoch_that_is_newer_and_of_none() -> None:
    assert leader_of().diverging(None, 99) is None
    with pytest.raises(OffsetOutOfRangeError):
        leader_of().diverging(LeaderEpoch(EPOCH + 1), 10)


def test_a_follower_that_had_all_until_more_was_written_is_caught_up_as_of_then() -> None:
    """In a fetch session it does not name what has not changed, be it for hours."""
    leader = leader_of(state_of([1, 2, 3], [1, 2, 3]))
    fetch(leader, 2, 10)
    fetch(leader, 3, 9)
    later_ms = 10 * LAG_MS_MAX
    leader.on_appended(Offset(11), now_ms=later_ms)
    leader.on_tick(later_ms)
    proposal = leader.take_ready().isr_proposal
    assert proposal is not None
    assert proposal.isr == {1, 2}
    leader.on_appended(Offset(12), now_ms=later_ms + 5)
    leader.on_proposal_unanswered(later_ms)
    leader.on_tick(later_ms + LAG_MS_MAX + 1)
    proposal = leader.take_ready().isr_proposal
    assert proposal is not None
    assert proposal.isr == {1}, "what it lacked was not written anew"
