"""A request that comes while the end before is being marked waits; but not for long, and one for each id."""

from __future__ import annotations

import pytest

from support.fixtures.coordinated_transactions import TIMEOUT_MS, A, B, CoordinatedTransactions, identity, recorded
from tidelog.base.errors import Code, refusal
from tidelog.base.ids import LeaderEpoch, Offset, ProducerId
from tidelog.coordinator.transactions import (
    InitProducer,
    ProducerIdentity,
    TransactionCoordinator,
    TransactionSettings,
    TransactionState,
)
from tidelog.coordinator.transactions.coordinator import TransactionFacts
from tidelog.coordinator.transactions.transaction import EPOCH_MAX
from tidelog.coordinator.transactions.waiting import WAITING_MS_MAX
from tidelog.journal import RequestId


def marking(world: CoordinatedTransactions) -> ProducerIdentity:
    """The producer of the next transaction, while the one before is being marked."""
    return world.ended(world.opened(A))


def test_a_partition_waits_for_the_end_before() -> None:
    world = CoordinatedTransactions()
    following = marking(world)
    request = world.add(following, B)
    assert request not in world.answers
    world.mark()
    assert world.answers[request] == Code.NONE
    assert world.state() is TransactionState.ONGOING
    assert world.transaction.partitions == {B}


def test_a_request_that_waits_is_answered_once_complete_is_committed() -> None:
    world = CoordinatedTransactions()
    following = marking(world)
    request = world.add(following, B)
    world.commits_at_once = False
    world.mark()
    assert request not in world.answers
    world.commit_log()
    assert world.answers[request] == Code.NONE


def test_a_request_that_waits_is_asked_to_come_again_after_a_while() -> None:
    world = CoordinatedTransactions()
    following = marking(world)
    world.now_ms += 7
    request = world.add(following, B)
    assert world.coordinator.next_deadline_ms() == 7 + WAITING_MS_MAX
    world.pass_ms(WAITING_MS_MAX - 1)
    assert request not in world.answers
    world.pass_ms(1)
    assert world.refused(request) is Code.CONCURRENT_TRANSACTIONS
    world.mark()
    assert world.state() is TransactionState.COMPLETE_COMMIT
    assert world.answers[world.add(following, B)] == Code.NONE


def test_another_request_takes_the_place_of_the_one_that_waits() -> None:
    world = CoordinatedTransactions()
    following = marking(world)
    first = world.add(following, A)
    world.pass_ms(WAITING_MS_MAX - 1)
    second = world.add(following, B)
    assert world.refused(first) is Code.CONCURRENT_TRANSACTIONS
    world.pass_ms(WAITING_MS_MAX - 1)
    assert second not in world.answers
    world.mark()
    assert world.answers[second] == Code.NONE
    assert world.transaction.partitions == {B}


def test_each_id_has_a_place_of_its_own() -> None:
    world = CoordinatedTransactions()
    following = marking(world)
    other = world.begun(transactional_id="u")
    assert world.answers[world.add(other, A, transactional_id="u")] == Code.NONE
    world.end(other, transactional_id="u")
    waiting = [
        world.add(following, B),
        world.add(ProducerIdentity(other.producer_id, following.producer_epoch), B, transactional_id="u"),
    ]
    assert not world.answers.keys() & set(waiting)
    sends = world.coordinator._markers._sends
    first, second = ([send_id for send_id, (name, _) in sends.items() if name == one] for one in ("t", "u"))
    world.disconnect(waiting[1])
    for send_id in (*second, *first):
        world.coordinator.on_sent(send_id, None, now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.drive()
    assert world.answers[waiting[0]] == Code.NONE
    assert waiting[1] not in world.answers
    assert world.coordinator.transactions["u"].state is TransactionState.COMPLETE_COMMIT


def test_a_request_that_may_not_wait_is_asked_to_come_again() -> None:
    world = CoordinatedTransactions()
    following = marking(world)
    waiting = world.add(following, A)
    request = world.request_id()
    world.coordinator.on_add_partitions(
        request, "t", following, [B], client_version=2, may_wait=False, now_ms=world.now_ms, wall_ms=world.wall_ms
    )
    world.drive()
    assert world.refused(request) is Code.CONCURRENT_TRANSACTIONS
    assert waiting not in world.answers
    world.mark()
    assert world.answers[waiting] == Code.NONE
    assert world.transaction.partitions == {A}


def test_a_request_of_a_client_that_went_away_waits_no_more() -> None:
    world = CoordinatedTransactions()
    following = marking(world)
    request = world.add(following, B)
    world.disconnect(RequestId(999))
    world.disconnect(request)
    world.pass_ms(WAITING_MS_MAX)
    world.mark()
    assert request not in world.answers
    assert world.state() is TransactionState.COMPLETE_COMMIT


def test_a_fenced_request_does_not_wait() -> None:
    world = CoordinatedTransactions()
    first = world.opened(A)
    world.ended(first)
    assert world.refused(world.add(first)) is Code.PRODUCER_FENCED


def test_a_stranger_does_not_wait() -> None:
    world = CoordinatedTransactions()
    following = marking(world)
    request = world.add(following, B)
    stranger = ProducerIdentity(ProducerId(77), following.producer_epoch)
    assert world.refused(world.init(stranger)) is Code.PRODUCER_FENCED
    assert world.refused(world.add(stranger)) is Code.INVALID_PRODUCER_ID_MAPPING
    assert request not in world.answers


def test_a_producer_whose_epochs_ran_out_long_ago_does_not_wait() -> None:
    world = CoordinatedTransactions()
    world.seed(recorded(TransactionState.PREPARE_COMMIT, 7, 4, partitions=(A,), previous=5))
    for stranger in (identity(5, EPOCH_MAX - 2), identity(6, EPOCH_MAX - 1)):
        assert world.refused(world.init(stranger)) is Code.PRODUCER_FENCED
    request = world.init(identity(5, EPOCH_MAX - 1))
    assert request not in world.answers
    world.mark()
    assert world.refused(request) is Code.PRODUCER_FENCED


def test_what_is_over_is_waited_for_no_more() -> None:
    world = CoordinatedTransactions()
    expiry_ms = world.coordinator.next_deadline_ms()
    producer = world.opened(A)
    assert world.coordinator.next_deadline_ms() == TIMEOUT_MS
    following = world.ended(producer)
    assert world.coordinator.next_deadline_ms() == expiry_ms
    world.add(following, B)
    assert world.coordinator.next_deadline_ms() == WAITING_MS_MAX
    world.mark()
    assert world.coordinator.next_deadline_ms() == TIMEOUT_MS
    world.completed(following)
    assert world.coordinator.next_deadline_ms() == expiry_ms


def test_a_request_that_waited_is_judged_by_what_is_in_force_then() -> None:
    """Whoever asks next finds the one who waited fenced, if a newer instance has come in between."""
    world = CoordinatedTransactions()
    following = marking(world)
    world.add(following, B)
    newer = world.init()
    world.mark()
    assert world.answers[newer] == (following.producer_id, 2)
    assert world.refused(world.add(following, B)) is Code.PRODUCER_FENCED


@pytest.mark.parametrize(
    "error", [None, refusal(Code.KAFKA_STORAGE_ERROR, "the disk is gone")], ids=["lost", "refused"]
)
def test_who_waits_is_told_when_the_coordinator_resigns(error: Exception | None) -> None:
    world = CoordinatedTransactions()
    following = marking(world)
    request = world.add(following, B)
    world.commits_at_once = False
    uncommitted = world.init(transactional_id="u")
    coordinator = world.coordinator
    coordinator.resign(error)  # type: ignore[arg-type]
    world.drive()
    code = Code.NOT_COORDINATOR if error is None else Code.KAFKA_STORAGE_ERROR
    assert world.refused(request) is code
    assert world.refused(uncommitted) is code
    assert not coordinator.is_active
    assert coordinator.next_deadline_ms() is None
    world.mark()
    assert not coordinator.take_ready()
    assert world.refused(world.add(following, B)) is Code.NOT_COORDINATOR
    assert world.refused(world.init()) is Code.NOT_COORDINATOR


def test_nothing_happens_to_a_coordinator_that_resigned() -> None:
    world = CoordinatedTransactions()
    waiting = world.add(marking(world), B)
    other = world.begun(transactional_id="u")
    world.add(other, B, transactional_id="u")
    world.begun(transactional_id="v")
    coordinator = world.coordinator
    for _ in range(2):
        coordinator.resign()
        world.drive()
    assert coordinator.markers_waiting == 0, "whoever follows sends them"
    batches = len(world.batches)
    coordinator.on_time(now_ms=2**40, wall_ms=2**60)
    coordinator.on_records_lost([B], now_ms=2**40, wall_ms=2**60)
    coordinator.on_records_lost_before({B: 2**60}, now_ms=2**40, wall_ms=2**60)
    coordinator.on_disconnected(waiting, now_ms=2**40, wall_ms=2**60)
    world.mark()
    assert not coordinator.take_ready()
    assert len(world.batches) == batches
    assert coordinator.facts == TransactionFacts()
    assert coordinator.transactions["u"].state is TransactionState.ONGOING


def test_who_comes_while_the_log_is_loaded_is_asked_to_come_again() -> None:
    coordinator = TransactionCoordinator(0, TransactionSettings(), value_version=1)
    assert not coordinator.is_active
    assert coordinator.next_deadline_ms() is None
    request = InitProducer(transactional_id="t", timeout_ms=1, fresh_producer_id=ProducerId(1))
    coordinator.on_init_producer_id(RequestId(1), request, now_ms=0, wall_ms=0)
    coordinator.on_list(RequestId(2), now_ms=0, wall_ms=0)
    codes = [answer.outcome.code for answer in coordinator.take_ready().answers]  # type: ignore[attr-defined]
    assert codes == [Code.COORDINATOR_LOAD_IN_PROGRESS] * 2
    coordinator.become_active(LeaderEpoch(1), Offset(1), now_ms=0, wall_ms=0)
    assert coordinator.is_active
