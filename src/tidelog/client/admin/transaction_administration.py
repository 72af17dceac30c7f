"""How an Admin asks coordinators and leaders of partitions for transactions, and ends one that hangs (KIP-664)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TypeVar

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import BrokerId, PartitionIndex, TopicPartition
from tidelog.base.ports import Clock
from tidelog.client.admin.transaction_descriptions import (
    HangingTransaction,
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
)
from tidelog.client.cluster import Cluster
from tidelog.client.coordinators import Coordinators
from tidelog.client.core.values import code_of
from tidelog.client.leader_requests import Answers, Leaders, refusal_of
from tidelog.client.refusals import raise_first, refused
from tidelog.net.connection import Connection
from tidelog.wire.messages.api_10_find_coordinator import KEY_TYPE_TRANSACTION
from tidelog.wire.messages.api_22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.api_27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidelog.wire.messages.api_61_describe_producers import (
    DescribedProducersPartition,
    DescribedProducerState,
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from tidelog.wire.messages.api_61_describe_producers import DescribeProducersTopic as AskedTopic
from tidelog.wire.messages.api_65_describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from tidelog.wire.messages.api_66_list_transactions import ListTransactionsRequest, ListTransactionsResponse

R = TypeVar("R")

TRANSACTION_STATE_TOPIC = "__transaction_state"
COORDINATOR_EPOCH_MIN = 0
"""What an abort claims where the partition knows no coordinator of the producer: no leader epoch is smaller."""

_LIST_REFUSALS: dict[int, str] = {
    Code.COORDINATOR_NOT_AVAILABLE: f"a partition of {TRANSACTION_STATE_TOPIC} cannot be read there, so a list would "
    "lack transactions; the log of that broker names the partition, the offset and the remedy"
}
_FIRST_WITH_DURATION = 1
_FIRST_WITH_PATTERN = 2


class TransactionAdministration:
    """See `AsyncAdmin`, whose methods these are.

    Args:
        request_timeout_ms: of one request; `cluster` knows how long all attempts may take together.
    """

    def __init__(self, cluster: Cluster, leaders: Leaders, clock: Clock, *, request_timeout_ms: int) -> None:
        self._cluster = cluster
        self._leaders = leaders
        self._clock = clock
        self._request_timeout_ms = request_timeout_ms
        self._coordinators = Coordinators(cluster, KEY_TYPE_TRANSACTION, noun="transactional id")

    # Coordinators.

    async def list_transactions(
        self,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        *,
        open_longer_than_ms: int | None = None,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=-1 if open_longer_than_ms is None else open_longer_than_ms,
            transactional_id_pattern=pattern or None,
        )
        min_version = 0 if open_longer_than_ms is None else _FIRST_WITH_DURATION
        if pattern:
            min_version = _FIRST_WITH_PATTERN

        async def request_one(broker_id: BrokerId) -> list[TransactionListing]:
            connection = await self._cluster.broker(broker_id)
            response = await self._request(connection, request, ListTransactionsResponse, min_version=min_version)
            what = f"broker {broker_id}" if not pattern else f"pattern {pattern!r}"
            raise_first([refused(response.error_code, what, _LIST_REFUSALS.get(response.error_code))])
            if response.unknown_state_filters:
                raise ValueError(f"there is no state {', '.join(map(repr, response.unknown_state_filters))}")
            return [
                TransactionListing(row.transactional_id, row.producer_id, row.transaction_state, broker_id)
                for row in response.transaction_states
            ]

        async def send_request() -> list[TransactionListing]:
            await self._cluster.fetch_metadata([])
            found = await asyncio.gather(*(request_one(broker_id) for broker_id in self._cluster.metadata.brokers))
            by_id = {listing.transactional_id: listing for listings in found for listing in listings}
            return [by_id[transactional_id] for transactional_id in sorted(by_id)]

        return await self._cluster.retrying("list transactions", send_request)

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        names = list(dict.fromkeys(transactional_ids))
        found = await asyncio.gather(*(self._describe(name) for name in names))
        return dict(zip(names, found, strict=True))

    async def _describe(self, transactional_id: str) -> TransactionDescription:
        what = f"transactional id {transactional_id!r}"

        async def send_request(coordinator: BrokerId, connection: Connection) -> TransactionDescription:
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            response = await self._request(connection, request, DescribeTransactionsResponse)
            row = next((row for row in response.transaction_states if row.transactional_id == transactional_id), None)
            if row is None:
                raise refusal(Code.UNKNOWN_SERVER_ERROR, f"{what}: the answer leaves it out")
            raise_first([refused(row.error_code, what, None)])
            return _described(row, coordinator)

        return await self._coordinators.request("describe transactions", transactional_id, send_request)

    async def fence_producers(self, transactional_ids: Iterable[str]) -> None:
        async def fence(transactional_id: str) -> KafkaError | None:
            async def send_request(_: BrokerId, connection: Connection) -> None:
                request = InitProducerIdRequest(
                    transactional_id=transactional_id, transaction_timeout_ms=self._request_timeout_ms
                )
                response = await self._request(connection, request, InitProducerIdResponse)
                raise_first([refused(response.error_code, f"transactional id {transactional_id!r}", None)])

            try:
                await self._coordinators.request("fence producers", transactional_id, send_request)
            except KafkaError as error:
                return error
            return None

        raise_first(await asyncio.gather(*map(fence, dict.fromkeys(transactional_ids))))

    # Leaders of partitions.

    async def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[ProducerDescription, ...]]:
        wanted = [TopicPartition(*partition) for partition in partitions]

        async def send_request(
            connection: Connection, requested: list[TopicPartition]
        ) -> Answers[tuple[ProducerDescription, ...]]:
            request = DescribeProducersRequest(
                topics=[AskedTopic(name, indexes) for name, indexes in _by_topic(requested).items()]
            )
            response = await self._request(connection, request, DescribeProducersResponse)
            rows = {(topic.name, row.partition_index): row for topic in response.topics for row in topic.partitions}
            return {partition: _producers(partition, rows.get(partition)) for partition in requested}

        answers = await self._leaders.request_all("describe producers", wanted, send_request)
        return {partition: _taken(answers[partition]) for partition in wanted}

    async def abort(
        self, partition: TopicPartition, *, producer_id: int, producer_epoch: int, coordinator_epoch: int | None
    ) -> None:
        partition = TopicPartition(*partition)
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
            coordinator_epoch=COORDINATOR_EPOCH_MIN if coordinator_epoch is None else coordinator_epoch,
        )

        async def send_request(connection: Connection, _: list[TopicPartition]) -> Answers[None]:
            response = await self._request(
                connection, WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse
            )
            rows = [row for each in response.markers for topic in each.topics for row in topic.partitions]
            code = code_of(rows[0].error_code) if len(rows) == 1 else Code.UNKNOWN_SERVER_ERROR
            return {partition: None if code is Code.NONE else refusal_of("abort a transaction", partition, code)}

        answers = await self._leaders.request_all("abort a transaction", [partition], send_request)
        _taken(answers[partition])

    # Both.

    async def find_hanging(
        self, partitions: Iterable[TopicPartition] | None = None, *, idle_ms_min: int | None
    ) -> list[HangingTransaction]:
        """The order matters: what leaders say first, coordinators are asked for then.

        A coordinator knows a partition before its leader takes the first record, so it knew whatever was open at first
        and is not ended. Whatever ended in the meantime, the leaders, asked again, say so.
        """
        wanted = await self._all_partitions() if partitions is None else [TopicPartition(*one) for one in partitions]
        candidates = await self._open(wanted)
        if idle_ms_min is not None:
            now_ms = self._clock.wall_ms()
            candidates = {
                key: producer
                for key, producer in candidates.items()
                if producer.last_timestamp_ms is None or now_ms - producer.last_timestamp_ms > idle_ms_min
            }
        if not candidates:
            return []
        await self._check_all_coordinators()
        listed = await self.list_transactions(
            producer_ids=sorted({producer.producer_id for producer in candidates.values()})
        )
        names = {listing.producer_id: listing.transactional_id for listing in listed}
        known = await self._described_if_there(names.values())
        unknown = {
            (partition, start): producer
            for (partition, start), producer in candidates.items()
            if not _holds(known.get(names.get(producer.producer_id, "")), producer, partition)
        }
        still_open = await self._open(partition for partition, _ in unknown) if unknown else {}
        return [
            HangingTransaction(
                partition,
                producer.producer_id,
                producer.producer_epoch,
                producer.coordinator_epoch,
                start,
                producer.last_timestamp_ms,
                names.get(producer.producer_id),
            )
            for (partition, start), producer in sorted(unknown.items(), key=lambda item: item[0])
            if (now := still_open.get((partition, start))) is not None and now.producer_id == producer.producer_id
        ]

    async def _open(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[tuple[TopicPartition, int], ProducerDescription]:
        """Open transactions by where they begin."""
        described = await self.describe_producers(dict.fromkeys(partitions))
        return {
            (partition, producer.transaction_start_offset): producer
            for partition, producers in described.items()
            for producer in producers
            if producer.transaction_start_offset is not None
        }

    async def _all_partitions(self) -> list[TopicPartition]:
        async def send_request() -> list[TopicPartition]:
            await self._cluster.fetch_metadata(None)
            topics = self._cluster.metadata.topics
            return [
                TopicPartition(name, PartitionIndex(index))
                for name in sorted(topics)
                for index in topics[name].partitions
            ]

        return await self._cluster.retrying("list partitions", send_request)

    async def _check_all_coordinators(self) -> None:
        """Raise if nobody leads a partition of the coordinators: what it knows of would be taken for hanging."""

        async def send_request() -> None:
            await self._cluster.fetch_metadata([TRANSACTION_STATE_TOPIC])
            topic = self._cluster.metadata.topics.get(TRANSACTION_STATE_TOPIC)
            if topic is None:
                return  # there is no coordinator that could know of any
            for index, view in topic.partitions.items():
                if view.leader_id is None:
                    raise refusal(
                        Code.COORDINATOR_NOT_AVAILABLE,
                        f"nobody leads {TRANSACTION_STATE_TOPIC}-{index}: whether the transactions that it coordinates "
                        "hang cannot be said; start its replicas first",
                    )

        await self._cluster.retrying("find the coordinators of transactions", send_request)

    async def _described_if_there(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        async def describe(name: str) -> TransactionDescription | None:
            try:
                return await self._describe(name)
            except KafkaError as error:
                if error.code is not Code.TRANSACTIONAL_ID_NOT_FOUND:
                    raise
                return None

        names = list(dict.fromkeys(transactional_ids))
        found = await asyncio.gather(*map(describe, names))
        return {each.transactional_id: each for each in found if each is not None}

    async def _request(self, connection: Connection, request: object, response: type[R], *, min_version: int = 0) -> R:
        return await connection.request(request, response, timeout_ms=self._request_timeout_ms, min_version=min_version)


def _holds(described: TransactionDescription | None, producer: ProducerDescription, partition: TopicPartition) -> bool:
    """Whether a coordinator will end what the producer has open on the partition."""
    return described is not None and described.producer_id == producer.producer_id and partition in described.partitions


def _described(row: DescribedTransaction, coordinator: BrokerId) -> TransactionDescription:
    return TransactionDescription(
        row.transactional_id,
        row.transaction_state,
        row.producer_id,
        row.producer_epoch if row.producer_epoch >= 0 else None,
        row.transaction_timeout_ms,
        row.transaction_start_time_ms if row.transaction_start_time_ms >= 0 else None,
        tuple(
            sorted(
                TopicPartition(topic.topic, PartitionIndex(index)) for topic in row.topics for index in topic.partitions
            )
        ),
        coordinator,
    )


def _producers(
    partition: TopicPartition, row: DescribedProducersPartition | None
) -> tuple[ProducerDescription, ...] | KafkaError:
    if row is None:
        return refusal_of("describe producers", partition, Code.UNKNOWN_SERVER_ERROR)
    error = refused(row.error_code, f"describe producers: {partition}", row.error_message)
    if error is not None:
        return error
    return tuple(_producer(each) for each in sorted(row.active_producers, key=lambda each: each.producer_id))


def _producer(row: DescribedProducerState) -> ProducerDescription:
    return ProducerDescription(
        row.producer_id,
        row.producer_epoch,
        row.last_sequence if row.last_sequence >= 0 else None,
        row.last_timestamp if row.last_timestamp >= 0 else None,
        row.coordinator_epoch if row.coordinator_epoch >= 0 else None,
        row.current_txn_start_offset if row.current_txn_start_offset >= 0 else None,
    )


def _taken(answer: R | KafkaError) -> R:
    if isinstance(answer, KafkaError):
        raise answer
    return answer


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, index in dict.fromkeys(partitions):
        found.setdefault(topic, []).append(index)
    return found
