"""Transactional producers against a coordinator in memory that loses, refuses and keeps silent as told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from support.fixtures.loop_runner import on_a_loop_of_its_own
from support.fixtures.scripted_broker import SILENT
from support.fixtures.transactional_cluster import TransactionalCluster
from tidelog import (
    ClientClosedError,
    ConfigError,
    GroupMetadata,
    KafkaError,
    Position,
    PreparedTransaction,
    Producer,
    ProducerFencedError,
    TidelogError,
    TimedOutError,
    TopicPartition,
    TransactionAbortableError,
    TransactionAbortedError,
    UnsupportedVersionError,
    aio,
)
from tidelog.base.errors import Code
from tidelog.records.batch import read_header
from tidelog.wire import ApiKey

FAST: dict[str, Any] = {
    "transactional_id": "copier",
    "retry_backoff_ms": 2,
    "retry_backoff_max_ms": 10,
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 5,
    "linger_ms": 0,
    "max_block_ms": 5_000,
    "delivery_timeout_ms": 10_000,
}
P0 = TopicPartition("t", 0)


def run(
    work: Callable[[TransactionalCluster], Coroutine[Any, Any, None]], *, version: int = 2, partitions: int = 1
) -> None:
    async def do() -> None:
        async with TransactionalCluster(version) as cluster:
            cluster.create("t", partitions)
            await work(cluster)

    asyncio.run(do())


Body = Callable[[aio.Transaction], Coroutine[Any, Any, object]]


async def in_transaction(producer: aio.Producer, body: Body) -> None:
    async with producer.transaction() as transaction:
        await body(transaction)


async def write_and_fail(transaction: aio.Transaction) -> None:
    await (await transaction.send("t", b"0"))
    raise ZeroDivisionError


def values(cluster: TransactionalCluster) -> list[bytes | None]:
    return [record.value for record in cluster.topics["t"].partitions[0].records]


def test_records_and_offsets_are_committed_together() -> None:
    async def work(cluster: TransactionalCluster) -> None:
        async with aio.Producer(cluster.address, **FAST) as producer:
            async with producer.transaction() as transaction:
                await transaction.send("t", b"0")
                await transaction.send_offsets({P0: Position(7, 3)}, "g")
            async with producer.transaction() as transaction:
                await transaction.send("t", b"1")
                member = GroupMetadata("g", 4, "m-1", "static")
                await transaction.send_offsets({P0: 8}, member)
        assert cluster.told == ["init", "offset g t-0:7@3", "commit @0", "offset g t-0:8@-1", "commit @1"]
        assert values(cluster) == [b"0", b"1"]
        for request in cluster.messages(ApiKey.PRODUCE):
            header = read_header(request.topic_data[0].partition_data[0].records)
            assert (request.transactional_id, header.is_transactional) == ("copier", True)
        last = cluster.messages(ApiKey.TXN_OFFSET_COMMIT)[-1]
        assert (last.generation_id, last.member_id, last.group_instance_id) == (4, "m-1", "static")

    run(work)


@pytest.mark.parametrize("version", [0, 1])
def test_before_kip_890_what_takes_part_is_announced_and_the_epoch_stays(version: int) -> None:
    async def work(cluster: TransactionalCluster) -> None:
        async with aio.Producer(cluster.address, **FAST) as producer:
            for number in range(2):
                async with producer.transaction() as transaction:
                    await transaction.send("t", b"%d" % number)
                    await transaction.send_offsets({P0: Position(7, 3)}, "g")
        once = ["add t-0", "add g", "offset g t-0:7@3", "commit @0"]
        assert cluster.told[0] == "init"
        assert sorted(cluster.told[1:]) == sorted(once * 2)
        assert cluster.told[4] == cluster.told[8] == "commit @0"
        versions = {(key, version) for key, version, _ in cluster.requests}
        assert max(version for key, version in versions if key == ApiKey.PRODUCE) == 11
        assert max(version for key, version in versions if key == ApiKey.ADD_PARTITIONS_TO_TXN) == 3
        assert max(version for key, version in versions if key == ApiKey.TXN_OFFSET_COMMIT) == 4
        assert max(version for key, version in versions if key == ApiKey.END_TXN) == 4

    run(work, version=version)


def test_an_old_broker_is_asked_in_its_versions() -> None:
    async def work(cluster: TransactionalCluster) -> None:
        older: dict[int, tuple[int, int]] = {
            ApiKey.FIND_COORDINATOR: (0, 3),
            ApiKey.INIT_PRODUCER_ID: (0, 1),
            ApiKey.ADD_PARTITIONS_TO_TXN: (0, 1),
            ApiKey.ADD_OFFSETS_TO_TXN: (0, 1),
            ApiKey.END_TXN: (0, 1),
            ApiKey.TXN_OFFSET_COMMIT: (0, 2),
            ApiKey.PRODUCE: (3, 8),
        }
        cluster.versions.update(older)
        async with aio.Producer(cluster.address, **FAST) as producer:
            async with producer.transaction() as transaction:
                await transaction.send("t", b"0")
                await transaction.send_offsets({P0: Position(7, 3)}, "g")
            cluster.faults.append(Code.INVALID_RECORD)
            await producer.begin_transaction()
            await producer.send("t", b"1")
            with pytest.raises(TransactionAbortableError):
                await producer.commit_transaction()
            with pytest.raises(UnsupportedVersionError, match="too old: it serves InitProducerId in versions 0-1"):
                await producer.abort_transaction()  # and without the next epoch the count is lost
        assert cluster.told[0] == "init"
        assert "commit @0" in cluster.told

    run(work, version=0)


@pytest.mark.parametrize("version", [1, 2])
def test_an_exception_aborts_and_goes_on_its_way(version: int) -> None:
    async def work(cluster: TransactionalCluster) -> None:
        async with aio.Producer(cluster.address, **FAST) as producer:
            with pytest.raises(ZeroDivisionError):
                await in_transaction(producer, write_and_fail)
            async with producer.transaction() as transaction:
                await transaction.send("t", b"1")
        ends = [one for one in cluster.told if one.startswith(("abort", "commit"))]
        assert ends == ["abort @0", "commit @1" if version == 2 else "commit @0"]

    run(work, version=version)


def test_a_cancelled_transaction_is_aborted() -> None:
    async def work(cluster: TransactionalCluster) -> None:
        async with aio.Producer(cluster.address, **FAST) as producer:
            written = asyncio.Event()

            async def copy() -> None:
                async with producer.transaction() as transaction:
                    await (await transaction.send("t", b"0"))
                    written.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(copy())
            await written.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert cluster.told == ["init", "abort @0"]

    run(work)


def test_an_abort_that_fails_leaves_the_exception_as_it_is_with_a_note() -> None:
    async def work(cluster: TransactionalCluster) -> None:
        cluster.befall(ApiKey.END_TXN, Code.PRODUCER_FENCED)
        async with aio.Producer(cluster.address, **FAST) as producer:
            with pytest.raises(ZeroDivisionError) as raised:
                await in_transaction(producer, write_and_fail)
            [note] = raised.value.__notes__
            assert "could not be aborted" in note
            assert "is fenced at epoch 0" in note

    run(work)


@pytest.mark.parametrize("version", [1, 2])
def test_a_block_that_catches_the_failure_of_a_send_does_not_commit(version: int) -> None:
    async def work(cluster: TransactionalCluster) -> None:
        cluster.faults.append(Code.INVALID_RECORD)

        async def catch(transaction: aio.Transaction) -> None:
            failed = await transaction.send("t", b"0")
            with pytest.raises(KafkaError, match="INVALID_RECORD"):
                await failed

        async with aio.Producer(cluster.address, **FAST) as producer:
            with pytest.raises(TransactionAbortableError, match="INVALID_RECORD") as raised:
                await in_transaction(producer, catch)
            assert isinstance(raised.value.__cause__, KafkaError)
            async with producer.transaction() as transaction:
                await transaction.send("t", b"1")
            await producer.flush()  # the failure was told
        ends = [one for one in cluster.told if not one.startswith("add")]
        assert ends == ["init", "abort @0", *(["init 100@0"] if version == 1 else []), "commit @1"]
        assert values(cluster) == [b"1"]

    run(work, version=version)


def test_a_send_that_raises_keeps_the_transaction_from_being_committed() -> None:
    async def work(cluster: TransactionalCluster) -> None:
        wrong: Any = 7

        async def send_what_cannot_be(transaction: aio.Transaction) -> None:
            await transaction.send("t", b"0")
            with pytest.raises(TypeError):
                await transaction.send("t", wrong)

        async def send_no_offset(transaction: aio.Transaction) -> None:
            with pytest.raises(ValueError, match="the next offset to read is expected"):
                await transaction.send_offsets({P0: -1}, "g")

        async with aio.Producer(cluster.address, **FAST) as producer:
            with pytest.raises(TransactionAbortableError, match="send raised TypeError: a record's value is bytes"):
                await in_transaction(producer, send_what_cannot_be)
            with pytest.raises(TransactionAbortableError, match="the next offset to read is expected"):
                await in_transaction(producer, send_no_offset)
        assert "commit @0" not in cluster.told

    run(work)


def test_after_a_failure_nothing_more_is_taken_and_what_waits_is_dropped() -> None:
    async def work(cluster: TransactionalCluster) -> None:
        cluster.faults.extend([Code.NOT_ENOUGH_REPLICAS] * 50)
        async with aio.Producer(cluster.address, **{**FAST, "delivery_timeout_ms": 300}) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            first = await producer.send("t", b"0")
            with pytest.raises(TimedOutError):
                await first
            with pytest.raises(TransactionAbortableError, match="not delivered within 300 ms"):
                await producer.send("t", b"1")
            with pytest.raises(TransactionAbortableError):
                await producer.send_offsets_to_transaction({P0: 1}, "g")
            with pytest.raises(TransactionAbortableError):
                await producer.commit_transaction()
            await producer.abort_transaction()
            cluster.faults.clear()
            await producer.begin_transaction()
            waiting = await producer.send("t", b"2")
            await producer.abort_transaction()
            if (error := waiting.exception(0)) is not None:  # it may have been under way
                assert isinstance(error, TransactionAbortedError)

    run(work)


@pytest.mark.parametrize("fault", ["lose request", "lose answer"])
@pytest.mark.parametrize("version", [1, 2])
def test_a_commit_whose_answer_is_lost_is_done_once(fault: str, version: int) -> None:
    async def work(cluster: TransactionalCluster) -> None:
        cluster.befall(ApiKey.END_TXN, fault, fault)
        async with aio.Producer(cluster.address, **FAST) as producer:
            for number in range(2):
                async with producer.transaction() as transaction:
                    await transaction.send("t", b"%d" % number)
        commits = [one for one in cluster.told if one.startswith("commit")]
        if version == 2:
            assert commits == ["commit @0", "commit @1"]
        assert values(cluster) == [b"0", b"1"]

    run(work, version=version)


def test_a_commit_of_unknown_outcome_is_called_again() -> None:
    async def work(cluster: TransactionalCluster) -> None:
        answer = cluster._handlers[ApiKey.END_TXN]
        cluster.on(ApiKey.END_TXN, lambda request, version: SILENT)
        async with aio.Producer(cluster.address, **{**FAST, "default_api_timeout_ms": 200}) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send("t", b"0")
            with pytest.raises(TimedOutError, match=r"not known yet\. Call commit_transaction again"):
                await producer.commit_transaction()
            with pytest.raises(KafkaError, match="call commit_transaction again"):
                await producer.abort_transaction()
            with pytest.raises(KafkaError, match="call commit_transaction again"):
                await producer.begin_transaction()
            cluster.on(ApiKey.END_TXN, answer)
            cluster.hang_up()
            await producer.commit_transaction()
            with pytest.raises(KafkaError, match="no transaction is open"):
                await producer.commit_transaction()
            await producer.begin_transaction()
            await producer.abort_transaction()
        assert cluster.told == ["init", "commit @0"]

    run(work)


@pytest.mark.parametrize("code", [Code.INVALID_PRODUCER_EPOCH, Code.PRODUCER_FENCED])
def test_one_that_is_fenced_while_it_flushes_commits_nothing(code: Code) -> None:
    async def work(cluster: TransactionalCluster) -> None:
        cluster.faults.append(code)
        async with aio.Producer(cluster.address, **FAST) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            sent = await producer.send("t", b"0")
            with pytest.raises(ProducerFencedError, match="'copier': producer 100 is fenced at epoch 0") as raised:
                await producer.commit_transaction()
            assert raised.value.transactional_id == "copier"
            assert isinstance(sent.exception(0), ProducerFencedError)
            for verb in (producer.begin_transaction, producer.commit_transaction, producer.abort_transaction):
                with pytest.raises(ProducerFencedError):
                    await verb()
            with pytest.raises(ProducerFencedError):
                await producer.send("t", b"1")
        assert cluster.told == ["init"]

    run(work)


@pytest.mark.parametrize("version", [1, 2])
def test_a_leader_that_moves_and_a_coordinator_that_moves_cost_nothing_but_time(version: int) -> None:
    async def work(cluster: TransactionalCluster) -> None:
        cluster.befall(ApiKey.INIT_PRODUCER_ID, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.CONCURRENT_TRANSACTIONS)
        cluster.befall(ApiKey.ADD_PARTITIONS_TO_TXN, Code.NOT_COORDINATOR, "lose answer", Code.CONCURRENT_TRANSACTIONS)
        cluster.befall(ApiKey.ADD_OFFSETS_TO_TXN, Code.COORDINATOR_NOT_AVAILABLE, "lose request")
        cluster.befall(ApiKey.TXN_OFFSET_COMMIT, Code.NOT_COORDINATOR, "lose request", Code.UNKNOWN_TOPIC_OR_PARTITION)
        cluster.befall(ApiKey.END_TXN, Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE, "lose request")
        cluster.faults.extend([Code.NOT_LEADER_OR_FOLLOWER, "lose answer", Code.CONCURRENT_TRANSACTIONS])
        expected = [b"%d" % number for number in range(100)]
        async with (
            aio.Producer(cluster.address, batch_size=300, **FAST) as producer,
            producer.transaction() as transaction,
        ):
            for value in expected:
                await transaction.send("t", value)
            await transaction.send_offsets({P0: Position(7, 3)}, "g")
        assert values(cluster) == expected
        ends = [one for one in cluster.told if one.startswith(("commit", "init"))]
        assert ends == ["init", "commit @0", *(["init 100@0"] if version == 1 else [])]
        assert not any(cluster.answers[key] for key in (ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN))

    run(work, version=version)


def test_a_group_that_moved_on_aborts_the_transaction() -> None:
    async def work(cluster: TransactionalCluster) -> None:
        cluster.befall(ApiKey.TXN_OFFSET_COMMIT, Code.ILLEGAL_GENERATION)

        async def copy(transaction: aio.Transaction) -> None:
            await transaction.send("t", b"0")
            await transaction.send_offsets({P0: Position(7, 3)}, GroupMetadata("g", 1, "m"))

        async with aio.Producer(cluster.address, **FAST) as producer:
            with pytest.raises(TransactionAbortableError, match="ILLEGAL_GENERATION"):
                await in_transaction(producer, copy)
            async with producer.transaction() as transaction:
                await transaction.send_offsets({P0: Position(7, 3)}, GroupMetadata("g", 2, "m"))
                await transaction.send_offsets({}, "g")
        assert cluster.told == ["init", "abort @0", "offset g t-0:7@3", "commit @1"]

    run(work)


def test_closing_aborts_what_is_open_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def work(cluster: TransactionalCluster) -> None:
        producer = aio.Producer(cluster.address, **FAST)
        await producer.init_transactions()
        await producer.begin_transaction()
        await (await producer.send("t", b"0"))
        await producer.close()
        assert cluster.told == ["init", "abort @0"]
        with pytest.raises(ClientClosedError):
            await producer.begin_transaction()

    with caplog.at_level(logging.WARNING, "tidelog.client"):
        run(work)
    assert "closed with a transaction open: it is aborted" in caplog.text


def test_a_prepared_transaction_outlives_its_producer_and_is_ended_by_another() -> None:
    async def work(cluster: TransactionalCluster) -> None:
        async with aio.Producer(cluster.address, **FAST) as producer:
            async with producer.transaction() as transaction:
                await transaction.send("t", b"0")
                prepared = await transaction.prepare()
            assert prepared == PreparedTransaction("copier", 100, 0)
            with pytest.raises(KafkaError, match="the transaction is prepared"):
                await producer.send("t", b"1")
        assert cluster.told == ["init"]
        assert values(cluster) == [b"0"]
        cluster.befall(ApiKey.END_TXN, Code.NOT_COORDINATOR, "lose answer")
        async with aio.Producer(cluster.address, **{**FAST, "transactional_id": None}) as other:
            resumed = other.resume_transaction(*prepared)
            await resumed.commit()
            await resumed.commit()
            with pytest.raises(KafkaError, match="the transaction is committed"):
                await resumed.abort()
            await other.resume_transaction(*prepared).commit()  # as one that forgot that it had done it
            await (await other.send("t", b"2"))
        assert cluster.told == ["init", "commit @0"]

    run(work)


@pytest.mark.parametrize("ends", [True, False])
def test_a_prepared_transaction_may_be_ended_where_it_was_written(ends: bool) -> None:
    async def work(cluster: TransactionalCluster) -> None:
        async with aio.Producer(cluster.address, **FAST) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            assert await producer.prepare_transaction() is None
            await producer.begin_transaction()
            await producer.send("t", b"0")
            assert await producer.prepare_transaction() is not None
            await (producer.commit_transaction() if ends else producer.abort_transaction())
        assert cluster.told == ["init", "commit @0" if ends else "abort @0"]

    run(work)


def test_a_block_may_end_its_transaction_itself() -> None:
    async def work(cluster: TransactionalCluster) -> None:
        async with aio.Producer(cluster.address, **FAST) as producer:
            async with producer.transaction() as transaction:
                await (await transaction.send("t", b"0"))
                await transaction.abort()
            async with producer.transaction() as transaction:
                await transaction.send("t", b"0")
                await producer.commit_transaction()
            async with producer.transaction():
                pass
        assert cluster.told == ["init", "abort @0", "commit @1"]

    run(work)


def test_refusals_for_good_end_the_producer_and_name_the_remedy() -> None:
    async def work(cluster: TransactionalCluster) -> None:
        for code, remedy in (
            (Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "have the principal allowed"),
            (Code.INVALID_TRANSACTION_TIMEOUT, "lower transaction_timeout_ms"),
        ):
            cluster.befall(ApiKey.INIT_PRODUCER_ID, code)
            async with aio.Producer(cluster.address, **FAST) as producer:
                for _ in range(2):
                    with pytest.raises(KafkaError, match=remedy) as raised:
                        await producer.init_transactions()
                    assert raised.value.code is code
                with pytest.raises(KafkaError, match=remedy):
                    await producer.send("t", b"0")

    run(work)


def test_a_producer_that_is_used_wrongly_says_what_to_do() -> None:
    async def work(cluster: TransactionalCluster) -> None:
        with pytest.raises(ConfigError, match="transactions need acks='all'"):
            aio.Producer(cluster.address, **FAST, acks="1")
        with pytest.raises(ConfigError, match="text that is not empty"):
            aio.Producer(cluster.address, transactional_id="")
        async with aio.Producer(cluster.address, **{**FAST, "transactional_id": None}) as producer:
            with pytest.raises(ConfigError, match="give it a transactional_id"):
                await producer.begin_transaction()
            with pytest.raises(ConfigError, match="give it a transactional_id"):
                producer.transaction()
        async with aio.Producer(cluster.address, **FAST) as producer:
            with pytest.raises(KafkaError, match="call init_transactions first"):
                await producer.send("t", b"0")
            await producer.init_transactions()
            await producer.init_transactions()
            with pytest.raises(KafkaError, match="send: no transaction is open: call begin_transaction first"):
                await producer.send("t", b"0")
            await producer.begin_transaction()
            with pytest.raises(KafkaError, match="begin_transaction: a transaction is open"):
                await producer.begin_transaction()
            with pytest.raises(TypeError, match="a group is its id or"):
                await producer.send_offsets_to_transaction({P0: 1}, 7)  # type: ignore[arg-type]
            with pytest.raises(TidelogError):
                await producer.commit_transaction()
        assert cluster.told == ["init"]

    run(work)


def test_a_send_that_came_too_early_is_no_failure_of_the_next_transaction() -> None:
    async def work(cluster: TransactionalCluster) -> None:
        async with aio.Producer(cluster.address, **FAST) as producer:
            await producer.init_transactions()
            with pytest.raises(KafkaError, match="no transaction is open") as raised:
                await producer.send("t", b"0")
            await producer.begin_transaction()
            producer._sender_task.on_send_raised(raised.value)  # its thread says so only now
            await producer.send("t", b"1")
            await producer.commit_transaction()
        assert cluster.told == ["init", "commit @0"]

    run(work)


def test_a_blocking_producer_aborts_on_ctrl_c() -> None:
    def interrupted(producer: Producer) -> None:
        with producer.transaction() as transaction:
            transaction.send("t", b"0").result()
            raise KeyboardInterrupt

    def caught(producer: Producer) -> None:
        with producer.transaction() as transaction, pytest.raises(KafkaError, match="no partition 5"):
            transaction.send("t", b"2", partition=5)

    with on_a_loop_of_its_own(TransactionalCluster()) as cluster:
        cluster.create("t")
        with Producer(cluster.address, **FAST) as producer:
            with pytest.raises(KeyboardInterrupt):
                interrupted(producer)
            with producer.transaction() as transaction:
                transaction.send("t", b"1")
                transaction.send_offsets({P0: Position(1, 0)}, "g")
            with pytest.raises(TransactionAbortableError):
                caught(producer)
            producer.begin_transaction()
            producer.send("t", b"3")
            prepared = producer.prepare_transaction()
            assert prepared is not None
        with Producer(cluster.address) as other:
            resumed = other.resume_transaction(*prepared)
            resumed.abort()
            resumed.abort()
        assert cluster.told == ["init", "abort @0", "offset g t-0:1@0", "commit @1", "abort @2"]
