"""The machine of a producer's transactions: every state with every call, and with every kind of answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidelog.base.errors import (
    Code,
    KafkaError,
    NetworkError,
    ProducerFencedError,
    TidelogError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from tidelog.base.ids import Position, TopicPartition
from tidelog.client.core.group_metadata import GroupMetadata
from tidelog.client.core.transaction import (
    ADVICE,
    TRANSITIONS,
    AddOffsetsDue,
    AddPartitionsDue,
    Call,
    CommitOffsetsDue,
    Due,
    EndDue,
    InitDue,
    PreparedTransaction,
    ProducerIdAndEpoch,
    ProducerTransactions,
    ProducerTransactionState,
)

S = ProducerTransactionState
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
GROUP = GroupMetadata("g")
OFFSETS = {P0: Position(7, 3)}
FIRST, NEXT = ProducerIdAndEpoch(100, 0), ProducerIdAndEpoch(100, 1)
LOST = NetworkError("the connection broke")


def answered(machine: ProducerTransactions, producer: ProducerIdAndEpoch | None = None) -> Due:
    """Take what is due, and have it done."""
    due = machine.take_request()
    assert due is not None
    machine.on_done(due, producer)
    return due


def made(version: int = 2) -> ProducerTransactions:
    """One whose producer is initialized."""
    machine = ProducerTransactions("id")
    machine.init()
    assert machine.take_request() == InitDue(None)
    machine.on_feature_level(version)
    machine.on_done(InitDue(None), FIRST)
    return machine


def begun(version: int = 2, *, writes: bool = True) -> ProducerTransactions:
    """One with an open transaction, of which the coordinator knows if it `writes`."""
    machine = made(version)
    machine.begin()
    if writes and not machine.may_send(P0):
        assert answered(machine) == AddPartitionsDue((P0,))
        assert machine.may_send(P0)
    return machine


def in_state(state: ProducerTransactionState, version: int = 2) -> ProducerTransactions:
    if state is S.UNINITIALIZED:
        return ProducerTransactions("id")
    if state is S.INITIALIZING:
        machine = ProducerTransactions("id")
        machine.init()
        return machine
    if state is S.READY:
        return made(version)
    machine = begun(version)
    if state is S.PREPARED:
        machine.prepare()
    elif state is S.COMMITTING:
        machine.commit()
        machine.on_drained()
        assert machine.take_request() == EndDue(True)
    elif state is S.ABORTING:
        machine.abort()
        machine.on_drained()
    elif state is S.ABORTABLE_ERROR:
        machine.on_send_failed(LOST, is_counted=True)
    elif state is S.FATAL_ERROR:
        machine.on_fenced()
    assert machine.state is state
    return machine


CALLS: dict[Call, Callable[[ProducerTransactions], object]] = {
    Call.INIT: ProducerTransactions.init,
    Call.BEGIN: ProducerTransactions.begin,
    Call.SEND: lambda machine: machine.check(Call.SEND),
    Call.SEND_OFFSETS: lambda machine: machine.add_offsets(GROUP, OFFSETS),
    Call.PREPARE: ProducerTransactions.prepare,
    Call.COMMIT: ProducerTransactions.commit,
    Call.ABORT: ProducerTransactions.abort,
}


@pytest.mark.parametrize("call", Call)
@pytest.mark.parametrize("state", S)
def test_each_call_in_each_state_is_made_or_refused_with_advice(state: ProducerTransactionState, call: Call) -> None:
    machine = in_state(state)
    after = TRANSITIONS.get((state, call))
    if after is not None:
        CALLS[call](machine)
        assert machine.state is after
        return
    with pytest.raises(TidelogError) as raised:
        CALLS[call](machine)
    assert machine.state is state
    if state is S.FATAL_ERROR:
        assert isinstance(raised.value, ProducerFencedError)
    elif state is S.ABORTABLE_ERROR:
        assert isinstance(raised.value, TransactionAbortableError)
        assert raised.value.__cause__ is LOST
    else:
        assert isinstance(raised.value, KafkaError)
        assert raised.value.code is Code.INVALID_TXN_STATE
        assert call.value in str(raised.value)
        advice = "call commit_transaction again" if (state, call) == (S.COMMITTING, Call.ABORT) else ADVICE[state]
        assert advice in str(raised.value)


# What is asked, in the two protocols.


def test_before_kip_890_partitions_and_groups_are_added_first() -> None:
    machine = begun(1, writes=False)
    assert not machine.may_send(P1)
    assert not machine.may_send(P0)
    ticket = machine.add_offsets(GROUP, OFFSETS)
    assert answered(machine) == AddPartitionsDue((P0, P1))
    assert machine.may_send(P0)
    assert machine.may_send(P1)
    assert answered(machine) == AddOffsetsDue("g")
    assert not machine.is_sent(ticket)
    assert answered(machine) == CommitOffsetsDue(ticket, GROUP, OFFSETS)
    assert machine.is_sent(ticket)
    second = machine.add_offsets(GROUP, OFFSETS)
    assert answered(machine) == CommitOffsetsDue(second, GROUP, OFFSETS)
    machine.commit()
    assert machine.take_request() is None  # not before all is delivered
    machine.on_drained()
    assert answered(machine) == EndDue(True)
    assert machine.state is S.READY
    assert machine.producer == FIRST
    machine.begin()
    assert not machine.may_send(P0)


def test_with_kip_890_what_is_written_adds_itself_and_each_end_brings_an_epoch() -> None:
    machine = begun(2)
    ticket = machine.add_offsets(GROUP, OFFSETS)
    assert answered(machine) == CommitOffsetsDue(ticket, GROUP, OFFSETS)
    machine.commit()
    machine.on_drained()
    assert answered(machine, NEXT) == EndDue(True)
    assert (machine.state, machine.producer) == (S.READY, NEXT)
    machine.begin()
    machine.may_send(P0)
    machine.abort()
    machine.on_drained()
    assert answered(machine, ProducerIdAndEpoch(101, 0)) == EndDue(False)  # the epochs of the id have run out
    assert machine.producer == (101, 0)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("call", [Call.COMMIT, Call.ABORT])
def test_of_a_transaction_that_wrote_nothing_nobody_is_told(version: int, call: Call) -> None:
    machine = begun(version, writes=False)
    CALLS[call](machine)
    machine.on_drained()
    assert (machine.state, machine.take_request(), machine.producer) == (S.READY, None, FIRST)


def test_the_version_is_that_which_the_cluster_had_when_the_transaction_began() -> None:
    machine = begun(1)
    machine.on_feature_level(2)
    machine.commit()
    machine.on_drained()
    assert answered(machine) == EndDue(True)
    machine.begin()
    assert machine.version == 2


# Failures.


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("state", [S.IN_TRANSACTION, S.PREPARED])
def test_what_was_not_delivered_is_not_committed(version: int, state: ProducerTransactionState) -> None:
    machine = in_state(state, version)
    if state is S.IN_TRANSACTION:
        machine.commit()
    machine.on_send_failed(LOST, is_counted=False)
    machine.on_drained()
    assert (machine.state, machine.take_request(), machine.takes_batches) == (S.ABORTABLE_ERROR, None, False)
    with pytest.raises(TransactionAbortableError, match="the connection broke"):
        machine.commit()
    machine.abort()
    machine.on_drained()
    assert answered(machine, NEXT if version == 2 else None) == EndDue(False)
    assert machine.state is S.READY


def test_before_kip_890_a_producer_that_may_have_lost_count_asks_for_an_epoch() -> None:
    machine = begun(1)
    machine.abort()
    machine.on_send_failed(LOST, is_counted=True)  # what was under way
    machine.on_drained()
    assert answered(machine) == EndDue(False)
    assert machine.state is S.ABORTING
    assert machine.take_request() == InitDue(FIRST)
    machine.on_lost(InitDue(FIRST))
    assert answered(machine, NEXT) == InitDue(FIRST)
    assert (machine.state, machine.producer) == (S.READY, NEXT)


def test_an_abort_overtakes_the_requests_that_it_makes_needless() -> None:
    machine = begun(1, writes=False)
    machine.may_send(P0)
    due = machine.take_request()
    assert due == AddPartitionsDue((P0,))
    ticket = machine.add_offsets(GROUP, OFFSETS)
    machine.abort()
    machine.on_drained()
    assert not machine.is_over(1)  # the answer may say that the coordinator knows of a transaction
    with pytest.raises(TidelogError):
        machine.is_sent(ticket)
    machine.on_lost(due)
    assert answered(machine) == EndDue(False)
    assert answered(machine, NEXT) == InitDue(FIRST)  # a late AddPartitionsToTxn must not open another
    assert machine.state is S.READY


def test_offsets_that_an_abort_overtook_are_told() -> None:
    machine = begun(2)
    ticket = machine.add_offsets(GROUP, OFFSETS)
    machine.abort()
    machine.on_drained()
    answered(machine, NEXT)
    machine.begin()
    with pytest.raises(TransactionAbortedError):
        machine.is_sent(ticket)


def test_an_abort_of_what_never_arrived_is_done() -> None:
    machine = begun(1, writes=False)
    machine.may_send(P0)
    due = machine.take_request()
    assert due is not None
    machine.on_lost(due)
    machine.abort()
    machine.on_drained()
    assert machine.take_request() == EndDue(False)
    assert not machine.on_refused(EndDue(False), Code.INVALID_TXN_STATE)
    assert answered(machine, NEXT) == InitDue(FIRST)
    assert machine.state is S.READY


# Answers.

DUE: dict[str, tuple[Due, int, Callable[[], ProducerTransactions]]] = {
    "init": (InitDue(None), 2, lambda: in_state(S.INITIALIZING)),
    "add partitions": (AddPartitionsDue((P1,)), 1, lambda: begun(1)),
    "add offsets": (AddOffsetsDue("g"), 1, lambda: begun(1)),
    "commit offsets": (CommitOffsetsDue(1, GROUP, OFFSETS), 2, lambda: begun(2)),
    "commit": (EndDue(True), 2, lambda: begun(2)),
    "abort": (EndDue(False), 2, lambda: in_state(S.ABORTING)),
}


def with_due(name: str) -> tuple[ProducerTransactions, Due]:
    due, _, make = DUE[name]
    machine = make()
    if isinstance(due, AddPartitionsDue):
        machine.may_send(P1)
    elif isinstance(due, AddOffsetsDue | CommitOffsetsDue):
        machine.add_offsets(GROUP, OFFSETS)
    elif due == EndDue(True):
        machine.commit()
        machine.on_drained()
    assert machine.take_request() == due
    return machine, due


AGAIN = "again"
ANSWERS: dict[Code, dict[str, str | ProducerTransactionState]] = {
    Code.CONCURRENT_TRANSACTIONS: dict.fromkeys(DUE, AGAIN),
    Code.NOT_COORDINATOR: dict.fromkeys(DUE, AGAIN),
    Code.COORDINATOR_NOT_AVAILABLE: dict.fromkeys(DUE, AGAIN),
    Code.COORDINATOR_LOAD_IN_PROGRESS: dict.fromkeys(DUE, AGAIN),
    Code.REQUEST_TIMED_OUT: dict.fromkeys(DUE, AGAIN),
    Code.UNKNOWN_TOPIC_OR_PARTITION: dict.fromkeys(DUE, AGAIN),
    Code.PRODUCER_FENCED: dict.fromkeys(DUE, S.FATAL_ERROR),
    Code.INVALID_PRODUCER_EPOCH: dict.fromkeys(DUE, S.FATAL_ERROR),
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: dict.fromkeys(DUE, S.FATAL_ERROR),
    Code.INVALID_PRODUCER_ID_MAPPING: dict.fromkeys(DUE, S.FATAL_ERROR),
    Code.INVALID_TXN_STATE: {
        "add partitions": S.ABORTABLE_ERROR,
        "add offsets": S.ABORTABLE_ERROR,
        "commit offsets": S.ABORTABLE_ERROR,
        "commit": S.FATAL_ERROR,
        "abort": S.FATAL_ERROR,
    },
    Code.UNKNOWN_SERVER_ERROR: {
        "init": S.FATAL_ERROR,
        "add partitions": S.ABORTABLE_ERROR,
        "add offsets": S.ABORTABLE_ERROR,
        "commit offsets": S.ABORTABLE_ERROR,
        "commit": S.FATAL_ERROR,
        "abort": S.FATAL_ERROR,
    },
    Code.TRANSACTION_ABORTABLE: {
        "init": S.FATAL_ERROR,
        "add partitions": S.ABORTABLE_ERROR,
        "add offsets": S.ABORTABLE_ERROR,
        "commit offsets": S.ABORTABLE_ERROR,
        "commit": S.ABORTABLE_ERROR,
        "abort": S.FATAL_ERROR,
    },
    Code.TOPIC_AUTHORIZATION_FAILED: {"add partitions": S.ABORTABLE_ERROR, "commit offsets": S.ABORTABLE_ERROR},
    Code.GROUP_AUTHORIZATION_FAILED: {"add offsets": S.ABORTABLE_ERROR, "commit offsets": S.ABORTABLE_ERROR},
    Code.ILLEGAL_GENERATION: {"commit offsets": S.ABORTABLE_ERROR},
    Code.FENCED_INSTANCE_ID: {"commit offsets": S.ABORTABLE_ERROR},
    Code.INVALID_TRANSACTION_TIMEOUT: {"init": S.FATAL_ERROR},
}


@pytest.mark.parametrize(
    ("code", "name", "expected"),
    [(code, name, expected) for code, by_name in ANSWERS.items() for name, expected in by_name.items()],
)
def test_what_each_refusal_means(code: Code, name: str, expected: str | ProducerTransactionState) -> None:
    machine, due = with_due(name)
    before = machine.state
    is_repeated = machine.on_refused(due, code)
    assert is_repeated == (expected == AGAIN)
    if is_repeated:
        assert machine.state is before
        assert machine.take_request() == due
        return
    assert machine.state is expected
    assert machine.error is not None
    assert "id" in str(machine.error)
    assert machine.take_request() is None
    is_over = name == "commit" and code is Code.INVALID_TXN_STATE
    if is_over or code in (Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_EPOCH):
        assert isinstance(machine.error, ProducerFencedError)


@pytest.mark.parametrize("name", DUE)
def test_what_is_lost_is_asked_again(name: str) -> None:
    machine, due = with_due(name)
    before = machine.state
    machine.on_lost(due)
    assert machine.state is before
    assert machine.take_request() == due


# A commit whose outcome is not known.


def test_a_commit_that_was_asked_for_is_not_aborted_and_may_be_asked_for_again() -> None:
    machine = begun()
    machine.commit()
    machine.on_drained()
    due = machine.take_request()
    assert due == EndDue(True)
    machine.on_lost(due)
    with pytest.raises(KafkaError, match="may have done it: call commit_transaction again"):
        machine.abort()
    assert not machine.commit()
    assert answered(machine, NEXT) == EndDue(True)
    assert not machine.is_over(1)
    with pytest.raises(KafkaError, match="the transaction is committed"):
        machine.abort()
    assert machine.commit()  # done meanwhile
    machine.claim()
    assert machine.is_over(1)
    with pytest.raises(KafkaError, match="no transaction is open"):
        machine.commit()


def test_a_commit_that_nobody_was_asked_for_may_still_be_aborted() -> None:
    machine = begun()
    machine.commit()
    machine.abort()
    assert machine.state is S.ABORTING


@pytest.mark.parametrize(("is_lost", "what"), [(True, "is not known"), (False, "is not committed")])
def test_one_that_is_fenced_says_whether_it_knows_the_outcome(is_lost: bool, what: str) -> None:
    machine = begun()
    machine.commit()
    machine.on_drained()
    due = machine.take_request()
    assert due is not None
    if is_lost:
        machine.on_lost(due)
        machine.take_request()
    machine.on_refused(due, Code.PRODUCER_FENCED)
    assert what in str(machine.error)


@pytest.mark.parametrize("name", ["add partitions", "add offsets", "commit offsets", "commit"])
def test_before_kip_890_a_request_that_may_come_late_is_fenced_by_the_next_epoch(name: str) -> None:
    machine = begun(1)
    if name == "add partitions":
        machine.may_send(P1)
    elif "offsets" in name:
        machine.add_offsets(GROUP, OFFSETS)
        if name == "commit offsets":
            answered(machine)
    else:
        machine.commit()
        machine.on_drained()
    due = machine.take_request()
    assert due is not None
    machine.on_lost(due)
    if name != "commit":
        while machine.has_due:
            answered(machine)
        machine.commit()
        machine.on_drained()
    assert answered(machine) == EndDue(True)
    assert machine.is_committed
    assert machine.take_request() == InitDue(FIRST)
    machine.on_refused(InitDue(FIRST), Code.NOT_COORDINATOR)
    assert answered(machine, NEXT) == InitDue(FIRST)
    assert (machine.state, machine.producer) == (S.READY, NEXT)


def test_a_broker_that_knows_no_kip_360_ends_a_transaction_if_the_count_is_sure() -> None:
    error = KafkaError("too old", code=Code.UNSUPPORTED_VERSION)
    for is_counted in (False, True):
        machine = begun(1)
        machine.abort()
        machine.on_send_failed(LOST, is_counted=is_counted)
        machine.on_drained()
        due = machine.take_request()
        assert due is not None
        machine.on_lost(due)
        answered(machine)
        due = machine.take_request()
        assert due == InitDue(FIRST)
        machine.on_unsupported(due, error)
        assert machine.state is (S.FATAL_ERROR if is_counted else S.READY)


def test_one_that_is_fenced_behind_its_commit_says_so() -> None:
    machine = begun(1)
    machine.commit()
    machine.on_drained()
    due = machine.take_request()
    assert due is not None
    machine.on_lost(due)
    answered(machine)
    due = machine.take_request()
    assert due is not None
    machine.on_refused(due, Code.PRODUCER_FENCED)
    assert "its last transaction is committed" in str(machine.error)


# A commit in two steps.


def test_a_prepared_transaction_is_handed_over_and_resumed() -> None:
    machine = begun()
    ticket = machine.add_offsets(GROUP, OFFSETS)
    machine.prepare()
    machine.on_drained()
    assert not machine.is_prepared()
    assert answered(machine) == CommitOffsetsDue(ticket, GROUP, OFFSETS)
    assert machine.is_prepared()
    prepared = machine.hand_over()
    assert prepared == PreparedTransaction("id", 100, 0)
    other = ProducerTransactions.resumed(prepared)
    other.on_feature_level(2)
    for call in (Call.SEND, Call.SEND_OFFSETS, Call.BEGIN):
        with pytest.raises(KafkaError, match="the transaction is prepared"):
            CALLS[call](other)
    other.commit()
    assert answered(other, NEXT) == EndDue(True)
    assert (other.version, other.state) == (2, S.READY)


def test_of_a_prepared_transaction_that_wrote_nothing_nothing_is_handed_over() -> None:
    machine = begun(writes=False)
    machine.prepare()
    machine.on_drained()
    assert machine.hand_over() is None
    assert machine.state is S.READY


def test_one_that_aborts_what_it_resumed_asks_for_no_epoch() -> None:
    other = ProducerTransactions.resumed(PreparedTransaction("id", 100, 0))
    other.on_feature_level(1)
    other.abort()
    assert other.take_request() == EndDue(False)
    other.on_lost(EndDue(False))
    assert answered(other) == EndDue(False)
    assert other.state is S.READY
