"""The admin client and transactions: who is asked, what is sent, and when a transaction counts as hanging."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from support.fixtures.model_cluster import ModelCluster
from support.fixtures.modelled_admin import in_turn, run
from tidelog import KafkaError, TimedOutError, TopicPartition, UnsupportedVersionError, aio
from tidelog.base.errors import Code
from tidelog.base.ids import PartitionIndex
from tidelog.client.admin.transaction_descriptions import (
    HangingTransaction,
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
)
from tidelog.wire import ApiKey
from tidelog.wire.messages import api_10_find_coordinator as find
from tidelog.wire.messages import api_27_write_txn_markers as markers
from tidelog.wire.messages import api_61_describe_producers as producers
from tidelog.wire.messages import api_65_describe_transactions as describe
from tidelog.wire.messages import api_66_list_transactions as listing

P0, P1 = (TopicPartition("t", PartitionIndex(index)) for index in range(2))
OLD_MS = 1_000
PRODUCER = 7


def coordinated(cluster: ModelCluster) -> None:
    cluster.on(
        ApiKey.FIND_COORDINATOR,
        lambda request, version: find.FindCoordinatorResponse(
            coordinators=[find.Coordinator(key, 1) for key in request.coordinator_keys]
        ),
    )


def described(
    name: str = "copier", *, producer_id: int = PRODUCER, state: str = "Ongoing", partitions: tuple[int, ...] = (0,)
) -> describe.DescribedTransaction:
    topics = [describe.DescribedTransactionTopic("t", list(partitions))] if partitions else []
    return describe.DescribedTransaction(
        transactional_id=name,
        transaction_state=state,
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=5 if partitions else -1,
        producer_id=producer_id,
        producer_epoch=3,
        topics=topics,
    )


def transactions_answer(*rows: describe.DescribedTransaction) -> describe.DescribeTransactionsResponse:
    return describe.DescribeTransactionsResponse(transaction_states=list(rows))


def producers_answer(
    *offsets: int, partition: int = 0, last_timestamp_ms: int = OLD_MS, error_code: int = 0
) -> producers.DescribeProducersResponse:
    """A partition on which the producer has a transaction open at each of these offsets; -1: none."""
    rows = [
        producers.DescribedProducerState(
            producer_id=PRODUCER + number,
            producer_epoch=3,
            last_sequence=9,
            last_timestamp=last_timestamp_ms,
            coordinator_epoch=-1,
            current_txn_start_offset=offset,
        )
        for number, offset in enumerate(offsets)
    ]
    row = producers.DescribedProducersPartition(partition_index=partition, error_code=error_code, active_producers=rows)
    return producers.DescribeProducersResponse(topics=[producers.DescribedProducersTopic("t", [row])])


def listed(*rows: tuple[str, int]) -> Callable[[Any, int], listing.ListTransactionsResponse]:
    found = [listing.ListedTransaction(name, producer_id, "Ongoing") for name, producer_id in rows]
    return lambda request, version: listing.ListTransactionsResponse(transaction_states=found)


def marked(code: Code) -> markers.WriteTxnMarkersResponse:
    row = markers.WritableTxnMarkerPartitionResult(0, code)
    topic = markers.WritableTxnMarkerTopicResult("t", [row])
    return markers.WriteTxnMarkersResponse(markers=[markers.WritableTxnMarkerResult(PRODUCER, [topic])])


def test_transactions_of_all_brokers_are_listed_by_id() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        loading = listing.ListTransactionsResponse(error_code=Code.COORDINATOR_LOAD_IN_PROGRESS)
        answers = iter([loading])
        rows = listed(("b", 2), ("a", 1))
        cluster.on(ApiKey.LIST_TRANSACTIONS, lambda request, version: next(answers, None) or rows(request, version))
        found = await admin.list_transactions(["Ongoing"], producer_ids=[1, 2], open_longer_than_ms=5)
        assert found == [TransactionListing("a", 1, "Ongoing", 1), TransactionListing("b", 2, "Ongoing", 1)]
        request = cluster.messages(ApiKey.LIST_TRANSACTIONS)[-1]
        assert (request.state_filters, request.producer_id_filters, request.duration_filter) == (["Ongoing"], [1, 2], 5)

    run(work)


def test_a_state_that_there_is_not_and_a_filter_that_a_broker_does_not_know_are_said() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        unknown = listing.ListTransactionsResponse(unknown_state_filters=["Onging"])
        cluster.on(ApiKey.LIST_TRANSACTIONS, lambda request, version: unknown)
        with pytest.raises(ValueError, match="no state 'Onging'"):
            await admin.list_transactions(["Onging"])

    run(work)

    async def old(cluster: ModelCluster, admin: aio.Admin) -> None:
        cluster.versions[ApiKey.LIST_TRANSACTIONS] = (0, 0)
        cluster.on(ApiKey.LIST_TRANSACTIONS, listed())
        assert await admin.list_transactions() == []
        for filtered in ({"open_longer_than_ms": 1}, {"pattern": "a.*"}):
            with pytest.raises(UnsupportedVersionError):
                await admin.list_transactions(**filtered)

    run(old)


def test_transactions_are_described_by_their_coordinators() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        coordinated(cluster)
        refused = describe.DescribedTransaction(transactional_id="copier", error_code=Code.NOT_COORDINATOR)
        answers = in_turn(transactions_answer(refused), transactions_answer(described(partitions=(1, 0))))
        cluster.on(ApiKey.DESCRIBE_TRANSACTIONS, answers)
        found = await admin.describe_transactions(["copier"])
        assert found == {"copier": TransactionDescription("copier", "Ongoing", PRODUCER, 3, 60_000, 5, (P0, P1), 1)}
        asked = cluster.messages(ApiKey.FIND_COORDINATOR)
        assert [(each.coordinator_keys, each.key_type) for each in asked] == [(["copier"], 1)] * 2

        gone = describe.DescribedTransaction(transactional_id="gone", error_code=Code.TRANSACTIONAL_ID_NOT_FOUND)
        cluster.on(ApiKey.DESCRIBE_TRANSACTIONS, in_turn(transactions_answer(gone)))
        with pytest.raises(KafkaError, match="transactional id 'gone'") as error:
            await admin.describe_transactions(["gone"])
        assert error.value.code is Code.TRANSACTIONAL_ID_NOT_FOUND

    run(work)


def test_producers_are_described_by_leaders_with_none_for_what_there_is_not() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        cluster.create("t", 1)
        moved = producers_answer(error_code=Code.NOT_LEADER_OR_FOLLOWER)
        cluster.on(ApiKey.DESCRIBE_PRODUCERS, in_turn(moved, producers_answer(-1, 4)))
        found = await admin.describe_producers([P0])
        assert found[P0] == (
            ProducerDescription(PRODUCER, 3, 9, OLD_MS, None, None),
            ProducerDescription(PRODUCER + 1, 3, 9, OLD_MS, None, 4),
        )

    run(work)


def test_an_abort_is_a_marker_that_claims_no_more_than_is_known() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        cluster.create("t", 1)
        cluster.on(ApiKey.WRITE_TXN_MARKERS, in_turn(marked(Code.NOT_LEADER_OR_FOLLOWER), marked(Code.NONE)))
        await admin.abort_transaction(P0, producer_id=PRODUCER, producer_epoch=3)
        await admin.abort_transaction(P0, producer_id=PRODUCER, producer_epoch=3, coordinator_epoch=8)
        sent = [marker for request in cluster.messages(ApiKey.WRITE_TXN_MARKERS) for marker in request.markers]
        assert [marker.coordinator_epoch for marker in sent] == [0, 0, 8]
        marker = sent[-1]
        assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (PRODUCER, 3, False)
        assert marker.topics == [markers.WritableTxnMarkerTopic("t", [0])]
        cluster.on(ApiKey.WRITE_TXN_MARKERS, in_turn(marked(Code.TRANSACTION_COORDINATOR_FENCED)))
        with pytest.raises(KafkaError, match="t-0") as error:
            await admin.abort_transaction(P0, producer_id=PRODUCER, producer_epoch=3)
        assert error.value.code is Code.TRANSACTION_COORDINATOR_FENCED

    run(work)


async def hanging(
    cluster: ModelCluster,
    admin: aio.Admin,
    names: dict[str, describe.DescribedTransaction | None],
    *answers: producers.DescribeProducersResponse,
) -> list[HangingTransaction]:
    """What is found to hang where leaders say this in turn, and coordinators know these transactional ids."""
    coordinated(cluster)
    if "t" not in cluster.topics:
        cluster.create("t", 1)
    cluster.on(ApiKey.DESCRIBE_PRODUCERS, in_turn(*answers))
    cluster.on(
        ApiKey.LIST_TRANSACTIONS, listed(*((name, row.producer_id if row else PRODUCER) for name, row in names.items()))
    )

    def answer(request: describe.DescribeTransactionsRequest, version: int) -> describe.DescribeTransactionsResponse:
        [name] = request.transactional_ids
        missing = describe.DescribedTransaction(transactional_id=name, error_code=Code.TRANSACTIONAL_ID_NOT_FOUND)
        return transactions_answer(names[name] or missing)

    cluster.on(ApiKey.DESCRIBE_TRANSACTIONS, answer)
    return await admin.find_hanging_transactions([P0] if "__transaction_state" in cluster.topics else None)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ({}, [None]),
        ({"copier": described()}, []),
        ({"copier": described(state="PrepareAbort")}, []),
        ({"copier": described(partitions=(1,))}, ["copier"]),
        ({"copier": described(state="CompleteAbort", partitions=())}, ["copier"]),
        ({"copier": described(producer_id=PRODUCER + 1)}, [None]),
        ({"copier": None}, ["copier"]),
    ],
)
def test_what_no_coordinator_holds_open_hangs(
    names: dict[str, describe.DescribedTransaction | None], found: list[str | None]
) -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        is_open = await hanging(cluster, admin, names, producers_answer(4))
        assert is_open == [HangingTransaction(P0, PRODUCER, 3, None, 4, OLD_MS, name) for name in found]

    run(work)


@pytest.mark.parametrize("then", [(-1,), (9,)])
def test_what_ended_while_coordinators_were_asked_does_not_hang(then: tuple[int]) -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        assert await hanging(cluster, admin, {}, producers_answer(4), producers_answer(*then)) == []

    run(work)


def test_what_was_written_to_lately_is_left_alone() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        lately = producers_answer(4, last_timestamp_ms=int(time.time() * 1000))
        assert await hanging(cluster, admin, {}, lately) == []
        assert not cluster.messages(ApiKey.LIST_TRANSACTIONS), "nothing was left to ask coordinators about"
        assert len(await admin.find_hanging_transactions([P0], idle_ms_min=None)) == 1

    run(work)


def test_nothing_is_said_to_hang_while_a_coordinator_is_missing() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        cluster.create("__transaction_state", 2)
        cluster.topics["__transaction_state"].partitions[1].has_leader = False
        with pytest.raises(TimedOutError, match="nobody leads __transaction_state-1"):
            await hanging(cluster, admin, {}, producers_answer(4))

    run(work, default_api_timeout_ms=200)
