"""The records of `__transaction_state`, byte for byte as Apache Kafka writes them, and what is wrong with others."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.clients.kafka_peer import TOOL_FLAGS, java_command
from support.fixtures.coordinated_transactions import WALL_START_MS, A, B, CoordinatedTransactions, identity, recorded
from tidelog.base.errors import Code, CorruptLogError
from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicPartition
from tidelog.coordinator.transactions import Transaction, TransactionCoordinator, TransactionSettings, TransactionState
from tidelog.coordinator.transactions.records import (
    decode_key,
    decode_transaction,
    encode_transaction,
    transaction_key,
)
from tidelog.coordinator.transactions.state import RecordedTransactions

VECTORS = Path(__file__).parents[2] / "vectors" / "transaction_log_apache_kafka.txt"
WRITER = Path(__file__).parents[2] / "support" / "clients" / "java" / "TransactionLogWriter.java"
OTHER = TopicPartition("other", PartitionIndex(2**31 - 1))

CASES: dict[str, Transaction] = {
    "empty": recorded(TransactionState.EMPTY, client_version=0),
    "ongoing": recorded(TransactionState.ONGOING, 7, 3, partitions=(A,), client_version=2),
    "prepared-commit": recorded(TransactionState.PREPARE_COMMIT, 7, 4, partitions=(A,), client_version=2),
    "prepared-abort": recorded(TransactionState.PREPARE_ABORT, 7, 4, partitions=(OTHER,), client_version=1),
    "committed": recorded(TransactionState.COMPLETE_COMMIT, 2**63 - 1, 0x7FFE, client_version=2),
    "aborted": recorded(TransactionState.COMPLETE_ABORT, 0, 0, client_version=1),
    "epochs-run-out": recorded(TransactionState.PREPARE_COMMIT, 7, 0x7FFF, partitions=(A,), following=9, previous=5),
    "epochs-ran-out": recorded(TransactionState.COMPLETE_COMMIT, 9, 0, previous=7),
    "oldest-ongoing": recorded(TransactionState.ONGOING, 7, 3, partitions=(A,), client_version=0),
    "oldest-prepared": recorded(TransactionState.PREPARE_COMMIT, 7, 4, partitions=(A,), client_version=0),
    "oldest-committed": recorded(TransactionState.COMPLETE_COMMIT, 7, 4, client_version=0),
    "no-epoch": recorded(TransactionState.EMPTY, 7, None, client_version=0),
    "wide": recorded(TransactionState.EMPTY, transactional_id="grüp\u2028\U0001f600"),
}
IN_KAFKA = [(name, version) for name, case in CASES.items() for version in (0, 1) if version or not case.client_version]
"""Apache Kafka refuses to write a version of the client that the older layout has no room for."""


def as_written(transaction: Transaction, version: int) -> Transaction:
    """What a version of the layout has room for."""
    if version:
        return transaction
    return replace(transaction, previous_producer_id=None, next_producer_id=None, client_version=0)


def vectors() -> dict[str, tuple[bytes, bytes]]:
    lines = (line.split(" ") for line in VECTORS.read_text().splitlines() if not line.startswith("#"))
    return {name: (bytes.fromhex(key), bytes.fromhex(value)) for name, key, value in lines}


def test_every_case_has_its_vector() -> None:
    assert list(vectors()) == [f"{name}-v{version}" for name, version in IN_KAFKA]


@pytest.mark.parametrize(("name", "version"), IN_KAFKA)
def test_kafka_writes_the_same_bytes(name: str, version: int) -> None:
    transaction = CASES[name]
    key, value = vectors()[f"{name}-v{version}"]
    assert transaction_key(transaction.transactional_id) == key
    assert encode_transaction(transaction, version) == value


@pytest.mark.parametrize(("name", "version"), IN_KAFKA)
def test_what_kafka_wrote_is_read(name: str, version: int) -> None:
    key, value = vectors()[f"{name}-v{version}"]
    transactional_id = decode_key(key)
    assert transactional_id is not None
    assert decode_transaction(transactional_id, value) == as_written(CASES[name], version)


def test_a_log_that_kafka_wrote_is_taken_over_in_the_middle_of_a_transaction() -> None:
    for version, prefix in ((0, "oldest-"), (1, "oldest-"), (1, "")):
        world = CoordinatedTransactions(value_version=version)
        world.append(*vectors()[f"{prefix}ongoing-v{version}"])
        world.append(*vectors()[f"{prefix}prepared{'' if prefix else '-commit'}-v{version}"])
        world.fail_over()
        assert world.markers.keys() == {A}
        assert world.markers[A].producer_epoch == 4
        assert world.markers[A].is_commit
        world.mark()
        assert world.begun() == (7, 5)


def test_topics_and_partitions_are_in_order() -> None:
    """Apache Kafka's order is by hashes; no reader asks for one."""
    partitions = [TopicPartition(topic, PartitionIndex(index)) for topic in "ba" for index in (10, 2, 1)]
    value = encode_transaction(recorded(TransactionState.ONGOING, partitions=tuple(partitions)), 0)
    part = b"".join(b"\0\1" + topic + pack(">iiii", 3, 1, 2, 10) for topic in (b"a", b"b"))
    assert pack(">i", 2) + part in value
    assert decode_transaction("t", value).partitions == frozenset(partitions)


@given(
    state=st.sampled_from(list(TransactionState)[:6]),
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.none() | st.integers(0, 0x7FFF),
    previous=st.none() | st.integers(0, 2**63 - 1),
    following=st.none() | st.integers(0, 2**63 - 1),
    partitions=st.sets(st.tuples(st.text(max_size=4), st.integers(0, 2**31 - 1)), max_size=5),
    started_ms=st.none() | st.integers(0, 2**62),
    version=st.integers(0, 1),
    client_version=st.integers(0, 2),
    has_lost_records=st.booleans(),
)
def test_what_is_written_is_read(  # noqa: PLR0917
    state: TransactionState,
    producer_id: int,
    producer_epoch: int | None,
    previous: int | None,
    following: int | None,
    partitions: set[tuple[str, int]],
    started_ms: int | None,
    version: int,
    client_version: int,
    has_lost_records: bool,
) -> None:
    if state is TransactionState.EMPTY:
        partitions = set()  # as ever
    else:
        producer_epoch = producer_epoch or 0
    transaction = replace(
        recorded(
            state,
            producer_id,
            producer_epoch,
            previous=previous,
            following=following,
            partitions=tuple(TopicPartition(topic, PartitionIndex(index)) for topic, index in partitions),
            client_version=client_version,
            has_lost_records=has_lost_records,
        ),
        started_ms=started_ms,
    )
    expected = as_written(transaction, version)
    if not version:
        expected = replace(expected, has_lost_records=False)
    assert decode_transaction("t", encode_transaction(transaction, version)) == expected


def test_a_transaction_without_lost_records_says_nothing_that_kafka_does_not_know() -> None:
    plain = encode_transaction(recorded(TransactionState.ONGOING, partitions=(A,)), 1)
    lost = encode_transaction(recorded(TransactionState.ONGOING, partitions=(A,), has_lost_records=True), 1)
    tag = bytes.fromhex("d0500101")  # 10,320, and one byte: true
    assert lost == plain[:-5] + bytes([plain[-5] + 1]) + plain[-4:] + tag


def test_what_a_newer_kafka_adds_is_read_over() -> None:
    """Apache Kafka 4.3 has a tag for the epoch of two-phase commits, and does not write it."""
    plain = encode_transaction(recorded(TransactionState.ONGOING, partitions=(A,)), 1)
    newer = plain[:-5] + bytes([plain[-5] + 1]) + plain[-4:] + bytes.fromhex("03020007")
    assert decode_transaction("t", newer) == decode_transaction("t", plain)


def test_the_names_of_states_are_kafkas() -> None:
    assert [state.label for state in TransactionState] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


# Logs that are not as they should be.

VALUE = encode_transaction(recorded(TransactionState.ONGOING, partitions=(A,)), 1)
STATUS_AT = 2 + 8 + 2 + 4


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        (b"", VALUE, "holds no version"),
        (b"\0", VALUE, "holds no version"),
        (b"\0\0", VALUE, "TransactionLogKey: "),
        (b"\0\0\0\1t", b"\0\1", "TransactionLogValue: (?!2 bytes)"),
        (b"\0\0\0\5t", VALUE, "TransactionLogKey"),
        (b"\0\0\0\1t", b"\0", "hold no version"),
        (b"\0\0\0\1t", b"\0\2" + VALUE[2:], "no version 2 in this release; was a newer one here"),
        (b"\0\0\0\1t", b"\xff\xff" + VALUE[2:], "no version -1 in this release"),
        (b"\0\0\0\1t", VALUE[:20], "TransactionLogValue"),
        (b"\0\0\0\1t", VALUE[:STATUS_AT] + b"\x63" + VALUE[STATUS_AT + 1 :], "no state 99"),
        (b"\0\0\0\1t", VALUE[:STATUS_AT] + b"\x06" + VALUE[STATUS_AT + 1 :], "Dead"),
        (b"\0\0\0\1t", VALUE[:STATUS_AT] + b"\x07" + VALUE[STATUS_AT + 1 :], "PrepareEpochFence"),
        (b"\0\0\0\1t", VALUE[:10] + b"\xff\xff" + VALUE[12:], "no epoch"),
    ],
)
def test_a_record_that_is_not_what_it_claims_names_its_offset(key: bytes, value: bytes, what: str) -> None:
    coordinator = TransactionCoordinator(5, TransactionSettings(), value_version=1)
    with pytest.raises(CorruptLogError, match=f"__transaction_state-5, offset 17: .*{what}"):
        coordinator.replay(key, value, Offset(17))


def test_records_of_an_unknown_kind_are_skipped() -> None:
    world = CoordinatedTransactions()
    producer = world.begun()
    world.append(b"\0\1whatever", b"it is")
    world.append(b"\0\1whatever", None)
    world.fail_over()
    assert world.coordinator.transactions.keys() == {"t"}
    world.added(producer)


def test_a_record_without_a_key_is_skipped() -> None:
    coordinator = TransactionCoordinator(0, TransactionSettings(), value_version=1)
    coordinator.replay(None, b"value", Offset(0))
    assert coordinator.transactions == {}


def test_a_tombstone_ends_an_id() -> None:
    world = CoordinatedTransactions()
    world.begun()
    world.append(transaction_key("t"), None)
    world.append(transaction_key("never there"), None)
    world.fail_over()
    assert world.coordinator.transactions == {}


def test_records_of_a_transaction_are_nobodys() -> None:
    """A coordinator writes its log outside of transactions; whoever else wrote to it has nothing to say."""
    coordinator = TransactionCoordinator(0, TransactionSettings(), value_version=1)
    coordinator.replay(transaction_key("t"), VALUE, Offset(0), transaction_of=3)
    coordinator.replay_end(3, is_committed=True)
    assert coordinator.transactions == {}


def test_a_copy_of_the_state_is_its_own() -> None:
    state = RecordedTransactions()
    state.apply((transaction_key("t"), VALUE))
    copy = state.clone()
    assert copy.transactions == state.transactions
    copy.apply((transaction_key("t"), None))
    assert state.transactions.keys() == {"t"}
    assert copy.transactions == {}


@pytest.mark.parametrize("version", [0, 1])
def test_the_layout_may_change_while_it_coordinates(version: int) -> None:
    world = CoordinatedTransactions(value_version=version)
    producer = world.begun()
    world.coordinator.value_version = 1 - version
    world.added(producer, A, B, version=1)
    assert world.log[-1][1][1] is not None
    assert world.log[-1][1][1][:2] == pack(">h", 1 - version)
    world.fail_over()
    assert world.transaction.partitions == {A, B}


def test_markers_carry_the_leader_epoch_of_the_coordinator() -> None:
    coordinator = TransactionCoordinator(0, TransactionSettings(), value_version=1)
    value = encode_transaction(recorded(TransactionState.PREPARE_COMMIT, partitions=(A,)), 1)
    coordinator.replay(transaction_key("t"), value, Offset(0))
    coordinator.become_active(LeaderEpoch(41), Offset(2), now_ms=0, wall_ms=WALL_START_MS)
    (send,) = coordinator.take_ready().sends
    assert send.request.coordinator_epoch == 41  # type: ignore[attr-defined]


def test_ids_that_kafka_gave_are_never_mistaken_for_none() -> None:
    world = CoordinatedTransactions()
    world.seed(recorded(TransactionState.COMPLETE_COMMIT, 5, 0, previous=0))
    assert world.transaction.previous_producer_id == 0
    assert world.refused(world.add(identity(0, 0))) is Code.INVALID_PRODUCER_ID_MAPPING


def write_vectors() -> None:
    """Make the file anew with the jars of `make peers`, in the manner of test_wire_apache_kafka.py."""
    asked = ""
    for name, version in IN_KAFKA:
        one = CASES[name]
        numbers = [one.producer_id, one.previous_producer_id, one.next_producer_id, one.producer_epoch, one.timeout_ms]
        times = [one.started_ms, one.updated_ms, one.client_version]
        fields: list[object] = [one.transactional_id, version, *numbers, one.state.name, *times]
        fields = [-1 if field is None else field for field in fields]
        asked += " ".join(map(str, [*fields, *(f"{topic}:{index}" for topic, index in one.partitions)])) + "\n"
    asked += encode_transaction(replace(CASES["epochs-run-out"], has_lost_records=True), 1).hex() + "\n"
    command = java_command([str(WRITER)], flags=[*TOOL_FLAGS, "-Dfile.encoding=UTF-8"])
    *answers, again = subprocess.run(
        command, input=asked, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert again == asked.splitlines()[-1] + " 0"  # Kafka keeps what only we know
    lines = ["# Records of __transaction_state as Apache Kafka 4.3.1 writes them: name, key, value."]
    lines += [f"{name}-v{version} {answer}" for (name, version), answer in zip(IN_KAFKA, answers, strict=True)]
    VECTORS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    write_vectors()
