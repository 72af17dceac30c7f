"""Transactions in a log: what a leader refuses, what is stable, and what verification keeps out (KIP-890)."""

from __future__ import annotations

import pytest

from support.fixtures.logs import NOW_MS, append, batches_of, make_batch, open_log, values_of
from support.fixtures.memory_disk import MemoryDisk
from support.fixtures.transactions import abort, commit, end, send, txn_batch
from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.log import (
    AppendResult,
    Log,
    TruncatedTransaction,
    TruncatedTransactions,
    UndecidedTransaction,
    VerificationGuard,
)
from tidelog.log.verification import VERIFICATIONS_MAX

SIZE = len(make_batch("a"))
EPOCH_MAX = 0x7FFF


def refusal_of_marker(log: Log, producer: int, version: int, **settings: int) -> Code | None:
    """What a leader says of a marker; the log is as it was if it is refused."""
    state = log.producers.get(producer)
    epoch = settings.get("epoch", 0 if state is None else state.producer_epoch)
    before = log.log_end_offset
    codes = []
    for act in (
        lambda: log.producers.check_marker(
            producer, epoch, settings.get("coordinator_epoch", 5), transaction_version=version
        ),
        lambda: end(log, producer, committed=True, version=version, **settings),
    ):
        try:
            act()
        except KafkaError as refused:
            codes.append(refused.code)
    assert (len(codes), log.log_end_offset) in ((2, before), (0, before + 1))
    return codes[-1] if codes else None


def refusal(log: Log, batch: bytearray, guard: VerificationGuard | None) -> Code:
    before = log.log_end_offset
    with pytest.raises(KafkaError) as refused:
        verified(log, batch, guard)
    assert log.log_end_offset == before
    return refused.value.code


def verified(log: Log, batch: bytearray, guard: VerificationGuard | None) -> AppendResult:
    return log.append_as_leader(batch, leader_epoch=LeaderEpoch(0), now_ms=NOW_MS, verification_guard=guard)


def begin(log: Log, producer: int, *, sequence: int = 0, epoch: int = 0, bumps: bool = False) -> VerificationGuard:
    guard = log.producers.begin_verification(producer, sequence, epoch, supports_epoch_bump=bumps, now_ms=NOW_MS)
    assert guard is not None
    return guard


# Markers.


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_marker_of_an_unknown_producer_is_appended(version: int) -> None:
    log = open_log(MemoryDisk())
    assert refusal_of_marker(log, 7, version, epoch=3) is None
    state = log.producers.get(7)
    assert state is not None
    assert (state.producer_epoch, state.coordinator_epoch, state.transaction_first_offset) == (3, 5, None)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_coordinator_that_was_replaced_is_fenced(version: int) -> None:
    log = open_log(MemoryDisk())
    send(log, 7)
    commit(log, 7, epoch=1, coordinator_epoch=5)
    send(log, 7)
    assert refusal_of_marker(log, 7, version, epoch=2, coordinator_epoch=4) is Code.TRANSACTION_COORDINATOR_FENCED
    assert log.producers.open_transactions
    assert refusal_of_marker(log, 7, version, epoch=2, coordinator_epoch=5) is None
    assert not log.producers.open_transactions


def test_a_marker_of_an_older_epoch_is_refused() -> None:
    log = open_log(MemoryDisk())
    send(log, 7, epoch=3)
    for version in (0, 1, 2):
        assert refusal_of_marker(log, 7, version, epoch=2) is Code.INVALID_PRODUCER_EPOCH
    assert refusal_of_marker(log, 7, 1, epoch=3) is None


def test_a_marker_of_version_2_has_the_epoch_after_that_of_the_records() -> None:
    log = open_log(MemoryDisk())
    send(log, 7, epoch=3)
    assert refusal_of_marker(log, 7, 2, epoch=3) is Code.INVALID_PRODUCER_EPOCH
    assert refusal_of_marker(log, 7, 2, epoch=4) is None
    assert refusal_of_marker(log, 7, 2, epoch=4) is None  # its answer was lost, and it decides nothing
    send(log, 7, epoch=4)
    assert refusal_of_marker(log, 7, 2, epoch=4) is Code.INVALID_PRODUCER_EPOCH  # late: it is not about this one
    assert [each.first_offset for each in log.producers.open_transactions] == [3]


def test_the_last_epoch_of_a_producer_id_cannot_be_bumped() -> None:
    log = open_log(MemoryDisk())
    send(log, 7, epoch=EPOCH_MAX)
    assert refusal_of_marker(log, 7, 2, epoch=EPOCH_MAX) is None
    assert not log.producers.open_transactions


def test_a_follower_takes_what_a_leader_took() -> None:
    leader, follower = open_log(MemoryDisk()), open_log(MemoryDisk())
    send(leader, 7, epoch=3)
    commit(leader, 7, epoch=4, coordinator_epoch=9)
    for _, data in batches_of(leader):
        follower.append_as_follower(data, now_ms=NOW_MS)
    state = follower.producers.get(7)
    assert state is not None
    assert (state.producer_epoch, state.coordinator_epoch) == (4, 9)


# Batches in and out of transactions.


def test_after_a_marker_of_the_next_epoch_that_epoch_goes_on_from_0() -> None:
    log = open_log(MemoryDisk())
    send(log, 7, "a", "b")
    commit(log, 7, epoch=1)
    for batch in (txn_batch(7, "c", epoch=0, sequence=2), txn_batch(7, "a", "b", epoch=0, sequence=0)):
        with pytest.raises(KafkaError) as refused:
            log.append_as_leader(batch, leader_epoch=LeaderEpoch(0), now_ms=NOW_MS)
        assert refused.value.code is Code.INVALID_PRODUCER_EPOCH
    with pytest.raises(KafkaError) as refused:
        log.append_as_leader(txn_batch(7, "c", epoch=1, sequence=2), leader_epoch=LeaderEpoch(0), now_ms=NOW_MS)
    assert refused.value.code is Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 7, "c", epoch=1) == 3


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_batch_in_no_transaction_is_refused_while_one_is_open(epoch: int) -> None:
    log = open_log(MemoryDisk())
    send(log, 7)
    settings = {"producer_id": 7, "producer_epoch": epoch, "base_sequence": 0 if epoch else 1}
    with pytest.raises(KafkaError) as refused:
        append(log, "x", **settings)
    assert refused.value.code is Code.INVALID_TXN_STATE
    commit(log, 7)
    append(log, "x", **settings)
    assert values_of(log) == ["v", "x"]


def test_a_transaction_may_begin_after_batches_in_none() -> None:
    log = open_log(MemoryDisk())
    append(log, "x", producer_id=7, producer_epoch=0, base_sequence=0)
    assert send(log, 7) == 1
    assert log.producers.first_unstable_offset == 1


def test_a_transaction_goes_on_in_a_newer_epoch_until_it_is_decided() -> None:
    log = open_log(MemoryDisk())
    send(log, 7, epoch=0)
    send(log, 7, epoch=1)
    assert [each.first_offset for each in log.producers.open_transactions] == [0]


def test_batches_of_one_request_are_in_the_transaction_or_none_of_them() -> None:
    log = open_log(MemoryDisk())
    plain = make_batch("b", producer_id=7, producer_epoch=0, base_sequence=1)
    with pytest.raises(KafkaError) as refused:
        log.append_as_leader(txn_batch(7, "a") + plain, leader_epoch=LeaderEpoch(0), now_ms=NOW_MS)
    assert (refused.value.code, log.log_end_offset) == (Code.INVALID_TXN_STATE, 0)
    both = txn_batch(7, "a") + txn_batch(7, "b", sequence=1)
    log.append_as_leader(both, leader_epoch=LeaderEpoch(0), now_ms=NOW_MS)
    assert values_of(log) == ["a", "b"]


def test_what_a_coordinator_writes_for_a_producer_has_an_epoch_and_no_sequence() -> None:
    log = open_log(MemoryDisk())

    def write(epoch: int, *, transactional: bool = True) -> None:
        batch = make_batch("o", producer_id=7, producer_epoch=epoch, base_sequence=-1, transactional=transactional)
        log.append_as_leader(batch, leader_epoch=LeaderEpoch(0), now_ms=NOW_MS, origin="coordinator")

    write(1)
    write(1)
    for epoch, transactional, code in ((0, True, Code.INVALID_PRODUCER_EPOCH), (1, False, Code.INVALID_TXN_STATE)):
        with pytest.raises(KafkaError) as refused:
            write(epoch, transactional=transactional)
        assert refused.value.code is code
    commit(log, 7, epoch=2)
    write(2)
    assert [each.first_offset for each in log.producers.open_transactions] == [3]


def test_open_transactions_are_told_with_when_they_began() -> None:
    log = open_log(MemoryDisk())
    send(log, 8)
    commit(log, 8, coordinator_epoch=3)
    log.append_as_leader(txn_batch(8, "a", sequence=1), leader_epoch=LeaderEpoch(0), now_ms=NOW_MS + 50)
    send(log, 7, "b", timestamp=NOW_MS + 7)
    send(log, 8, timestamp=NOW_MS + 9)
    assert log.producers.open_transactions == [
        UndecidedTransaction(8, 0, 3, 2, NOW_MS + 50, NOW_MS + 9),  # type: ignore[arg-type]
        UndecidedTransaction(7, 0, None, 3, NOW_MS, NOW_MS + 7),  # type: ignore[arg-type]
    ]


# Verification.


def test_a_transaction_begins_with_the_guard_and_goes_on_without() -> None:
    log = open_log(MemoryDisk())
    assert refusal(log, txn_batch(7, "a"), None) is Code.INVALID_TXN_STATE
    guard = begin(log, 7)
    assert begin(log, 7) is guard
    assert refusal(log, txn_batch(7, "a"), None) is Code.INVALID_TXN_STATE
    assert refusal(log, txn_batch(7, "a"), VerificationGuard()) is Code.INVALID_TXN_STATE
    assert refusal(log, txn_batch(8, "a"), guard) is Code.INVALID_TXN_STATE
    verified(log, txn_batch(7, "a"), guard)
    assert log.producers.begin_verification(7, 1, 0, supports_epoch_bump=False, now_ms=NOW_MS) is None
    verified(log, txn_batch(7, "b", sequence=1), None)
    assert verified(log, txn_batch(7, "a"), None).is_duplicate


def test_a_batch_in_no_transaction_needs_no_guard() -> None:
    log = open_log(MemoryDisk())
    verified(log, make_batch("a", producer_id=7, producer_epoch=0, base_sequence=0), None)
    verified(log, make_batch("b"), None)
    assert values_of(log) == ["a", "b"]


def test_an_answer_that_comes_after_the_marker_is_worth_nothing() -> None:
    log = open_log(MemoryDisk())
    guard = begin(log, 7)
    abort(log, 7)
    assert refusal(log, txn_batch(7, "a"), guard) is Code.INVALID_TXN_STATE
    assert begin(log, 7) is not guard
    assert refusal(log, txn_batch(7, "a"), guard) is Code.INVALID_TXN_STATE


def test_the_first_batch_takes_the_guard_back() -> None:
    log = open_log(MemoryDisk())
    guard = begin(log, 7)
    verified(log, txn_batch(7, "a"), guard)
    commit(log, 7)
    assert refusal(log, txn_batch(7, "b", sequence=1), guard) is Code.INVALID_TXN_STATE


def test_a_newer_epoch_takes_the_guard_back() -> None:
    log = open_log(MemoryDisk())
    guard = begin(log, 7, epoch=1)
    newer = begin(log, 7, epoch=2)
    assert begin(log, 7, epoch=1) is newer
    assert refusal(log, txn_batch(7, "a", epoch=1), guard) is Code.INVALID_TXN_STATE
    assert refusal(log, txn_batch(7, "a", epoch=1), newer) is Code.INVALID_TXN_STATE
    verified(log, txn_batch(7, "a", epoch=2), newer)


def test_an_open_transaction_of_another_epoch_needs_a_guard_all_the_same() -> None:
    log = open_log(MemoryDisk())
    send(log, 7, epoch=0)
    assert refusal(log, txn_batch(7, "b", epoch=1), None) is Code.INVALID_TXN_STATE
    verified(log, txn_batch(7, "b", epoch=1), begin(log, 7, epoch=1))


def test_an_old_guard_is_taken_back() -> None:
    log = open_log(MemoryDisk())
    guard = begin(log, 7)
    log.producers.forget_expired(NOW_MS + 999, 1000)
    assert begin(log, 7) is guard
    log.producers.forget_expired(NOW_MS + 1000, 1000)
    assert refusal(log, txn_batch(7, "a"), guard) is Code.INVALID_TXN_STATE


def test_no_batch_passes_one_that_waits_for_its_verification() -> None:
    log = open_log(MemoryDisk())
    send(log, 7, "a")
    commit(log, 7)
    guard = begin(log, 7, sequence=2)
    assert begin(log, 7, sequence=1) is guard
    assert refusal(log, txn_batch(7, "c", sequence=2), guard) is Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    verified(log, txn_batch(7, "b", sequence=1), guard)
    verified(log, txn_batch(7, "c", sequence=2), None)


def test_an_unknown_producer_may_not_begin_behind_the_lowest_sequence_that_was_seen() -> None:
    log = open_log(MemoryDisk())
    guard = begin(log, 7, sequence=5)
    assert refusal(log, txn_batch(7, "a", sequence=6), guard) is Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    verified(log, txn_batch(7, "a", sequence=5), guard)


def test_a_producer_that_bumps_its_epoch_begins_with_0() -> None:
    log = open_log(MemoryDisk())
    guard = begin(log, 7, sequence=5, bumps=True)
    assert refusal(log, txn_batch(7, "a", sequence=5), guard) is Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    begin(log, 7, sequence=0, bumps=True)
    verified(log, txn_batch(7, "a", sequence=0), guard)


def test_guards_are_bounded() -> None:
    log = open_log(MemoryDisk())
    first, second = begin(log, 1), begin(log, 2)
    for producer in range(3, VERIFICATIONS_MAX + 2):
        begin(log, producer)
    assert refusal(log, txn_batch(1, "a"), first) is Code.INVALID_TXN_STATE
    verified(log, txn_batch(2, "a"), second)


def test_guards_do_not_outlive_the_log_nor_its_truncation() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, "x", "y")
    append(log, "z")
    guard = begin(log, 7)
    log.truncate_to(Offset(2))
    assert refusal(log, txn_batch(7, "a"), guard) is Code.INVALID_TXN_STATE
    guard = begin(log, 7)
    log.close()
    assert refusal(open_log(disk), txn_batch(7, "a"), guard) is Code.INVALID_TXN_STATE


def test_several_batches_begin_a_transaction_with_one_guard() -> None:
    log = open_log(MemoryDisk())
    both = txn_batch(7, "a") + txn_batch(7, "b", sequence=1)
    assert refusal(log, bytearray(both), None) is Code.INVALID_TXN_STATE
    verified(log, both, begin(log, 7))
    assert values_of(log) == ["a", "b"]


# What is stable.


@pytest.mark.parametrize("segment_size_bytes", [2 * SIZE, 1 << 20])
@pytest.mark.parametrize("clean", [True, False])
def test_a_decided_transaction_whose_marker_is_not_replicated_is_not_stable_after_a_restart(
    clean: bool, segment_size_bytes: int
) -> None:
    disk = MemoryDisk()
    log = open_log(disk, segment_size_bytes=segment_size_bytes)
    append(log, "x")
    send(log, 7)  # 1
    commit(log, 7)  # 2
    send(log, 7)  # 3
    append(log, "y", "z")  # 4, 5
    commit(log, 7)  # 6
    append(log, "u")
    if clean:
        log.close()
    for high_watermark, unstable in ((1, 1), (2, 1), (3, 3), (5, 3), (6, 3), (7, None), (8, None)):
        again = open_log(disk, clean=clean, segment_size_bytes=segment_size_bytes, high_watermark=high_watermark)
        assert again.producers.first_unstable_offset == unstable, high_watermark
        again.producers.on_high_watermark(again.log_end_offset)
        assert again.producers.first_unstable_offset is None
        again.release()


def test_a_log_without_transactions_is_not_read_to_know_of_them() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    for sequence in range(20):
        append(log, "x", producer_id=7, producer_epoch=0, base_sequence=sequence)
    log.close()

    def reads(high_watermark: int | None) -> int:
        before = disk.read_count
        open_log(disk, high_watermark=high_watermark)
        return disk.read_count - before

    assert reads(1) == reads(None)


def test_truncation_keeps_back_what_was_not_replicated_and_no_more() -> None:
    log = open_log(MemoryDisk())
    send(log, 7)  # 0
    commit(log, 7)  # 1
    log.producers.on_high_watermark(Offset(2))
    send(log, 7)  # 2
    commit(log, 7)  # 3
    send(log, 7)  # 4
    commit(log, 7)  # 5
    assert log.producers.first_unstable_offset == 2
    log.truncate_to(Offset(5))  # the last marker: its transaction is open again
    assert log.producers.first_unstable_offset == 2
    log.producers.on_high_watermark(Offset(4))
    assert log.producers.first_unstable_offset == 4
    log.truncate_to(Offset(4))
    assert log.producers.first_unstable_offset is None


def test_truncation_of_a_part_leaves_the_transaction_open_and_of_all_of_it_none() -> None:
    log = open_log(MemoryDisk(), segment_size_bytes=2 * SIZE)
    for _ in range(3):
        append(log, "x")
    for _ in range(3):
        send(log, 7)  # 3, 4, 5
    commit(log, 7)
    log.truncate_to(Offset(4))
    assert [each.first_offset for each in log.producers.open_transactions] == [3]
    assert send(log, 7) == 4  # the sequence goes on from what is left
    log.truncate_to(Offset(3))
    assert (log.producers.open_transactions, log.producers.first_unstable_offset) == ([], None)


def test_what_truncation_did_to_transactions_is_told_once() -> None:
    log = open_log(MemoryDisk(), segment_size_bytes=2 * SIZE)
    for producer in (1, 2, 3, 4):
        send(log, producer)  # 0 to 3
    commit(log, 1)  # 4
    send(log, 2)  # 5
    abort(log, 3, epoch=1)  # 6
    send(log, 5)  # 7
    send(log, 3)  # 8
    abort(log, 5)  # 9
    assert log.take_truncated_transactions() == TruncatedTransactions((), ())
    log.truncate_to(Offset(10))
    assert log.take_truncated_transactions() == TruncatedTransactions((), ())
    log.truncate_to(Offset(9))
    assert log.take_truncated_transactions() == TruncatedTransactions((TruncatedTransaction(5, 0, 7),), ())  # type: ignore[arg-type]
    log.truncate_to(Offset(5))
    told = log.take_truncated_transactions()
    assert [tuple(each) for each in told.reopened] == [(3, 0, 2)]
    assert sorted(tuple(each) for each in told.shortened) == [(2, 0, 1), (3, 1, 8), (5, 0, 7)]
    assert log.take_truncated_transactions() == TruncatedTransactions((), ())


def test_of_several_truncations_the_latest_counts_for_a_producer() -> None:
    log = open_log(MemoryDisk())
    send(log, 1)  # 0
    commit(log, 1)
    send(log, 1)  # 2
    commit(log, 1)
    log.truncate_to(Offset(3))
    log.truncate_to(Offset(1))
    told = log.take_truncated_transactions()
    assert ([each.first_offset for each in told.reopened], [each.first_offset for each in told.shortened]) == ([0], [2])
    log.truncate_fully_and_start_at(Offset(0))
    assert [each.first_offset for each in log.take_truncated_transactions().shortened] == [0]


def test_to_start_anew_above_the_end_truncates_nothing() -> None:
    log = open_log(MemoryDisk())
    send(log, 1)
    log.truncate_fully_and_start_at(Offset(100))
    assert log.take_truncated_transactions() == TruncatedTransactions((), ())
