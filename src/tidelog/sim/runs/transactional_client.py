"""A producer that speaks the requests of transactions, one at a time, in either of their two protocols.

It is what a client sends, without what makes one useful: no batches in flight, no threads, no repair after an error.

| | 1, before Kafka 4 | 2 (KIP-890) |
|---|---|---|
| a partition joins the transaction by | AddPartitionsToTxn, AddOffsetsToTxn | Produce 12, TxnOffsetCommit 5 |
| EndTxn answers | nothing | the epoch of the next transaction |
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from tidelog.base.errors import Code, TidelogError
from tidelog.base.ids import TopicPartition
from tidelog.client.cluster import World, is_retriable
from tidelog.client.core.values import CommittedOffset
from tidelog.records import BatchBuilder
from tidelog.sim.runs.coordinator_requests import REQUEST_MS, CoordinatorRequests, check_code
from tidelog.wire.messages.api_00_produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidelog.wire.messages.api_09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from tidelog.wire.messages.api_10_find_coordinator import KEY_TYPE_GROUP, KEY_TYPE_TRANSACTION
from tidelog.wire.messages.api_22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.api_24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tidelog.wire.messages.api_25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tidelog.wire.messages.api_26_end_txn import EndTxnRequest, EndTxnResponse
from tidelog.wire.messages.api_28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

R = TypeVar("R")
T = TypeVar("T")

NO_PRODUCER = (-1, -1)
VERSIONS = {
    1: {"produce": 11, "init": 4, "offsets": 4, "end": 4},
    2: {"produce": 12, "init": 5, "offsets": 5, "end": 5},
}
ADD_PARTITIONS_VERSION = 3
ADD_OFFSETS_VERSION = 3
OFFSET_FETCH_VERSION = 9

Record = tuple[bytes | None, bytes]
"""Its key and value."""


class TransactionalClient:
    """See the module.

    Args:
        bootstrap: of each node, HOST:PORT.
        world: of the client.
        transactional_id: under which it produces.
        version: of the protocol, 1 or 2.
        timeout_ms: of its transactions.
        patience_ms: for all attempts at one request.

    Attributes:
        doubts: how many attempts had no answer, or one that says to try again: what they ask for may be done, even
            later.
    """

    def __init__(
        self,
        bootstrap: Sequence[str],
        world: World,
        transactional_id: str,
        *,
        version: int,
        timeout_ms: int,
        patience_ms: int,
    ) -> None:
        self.transactional_id = transactional_id
        self.doubts = 0
        self.version = version
        self._clock = world.clock
        self._versions = VERSIONS[version]
        self._timeout_ms = timeout_ms
        self._patience_ms = patience_ms
        self._requests = CoordinatorRequests(bootstrap, world)
        self._producer = NO_PRODUCER
        self._sequences: Counter[TopicPartition] = Counter()

    async def close(self) -> None:
        """Close its connections; what is open stays so."""
        await self._requests.close()

    async def init(self) -> None:
        """Begin, or go on with the next epoch, as after an error (KIP-360)."""
        expected = self._producer

        async def attempt() -> InitProducerIdResponse:
            request = InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self._timeout_ms,
                producer_id=expected[0],
                producer_epoch=expected[1],
            )
            answer = await self._ask_coordinator(
                KEY_TYPE_TRANSACTION, request, InitProducerIdResponse, self._versions["init"]
            )
            check_code(answer.error_code, "InitProducerId")
            return answer

        answer = await self._retrying("InitProducerId", attempt)
        self._producer = (answer.producer_id, answer.producer_epoch)
        self._sequences.clear()

    async def add_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        """Announce that records come; only those of version 1 do."""
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name, indexes) for name, indexes in topics.items()],
        )

        async def attempt() -> None:
            answer = await self._ask_coordinator(
                KEY_TYPE_TRANSACTION, request, AddPartitionsToTxnResponse, ADD_PARTITIONS_VERSION
            )
            codes = [
                row.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for row in topic.results_by_partition
            ]
            codes.sort(key=lambda code: code in (Code.NONE, Code.OPERATION_NOT_ATTEMPTED))
            check_code(codes[0], "AddPartitionsToTxn")

        await self._retrying("AddPartitionsToTxn", attempt)

    async def produce(self, partition: TopicPartition, records: Sequence[Record]) -> int:
        """Write one batch, and wait until it is committed. Returns its base offset, -1 if nobody knows it."""
        builder = BatchBuilder(
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=self._sequences[partition],
            transactional=True,
        )
        now_ms = self._clock.wall_ms()
        for key, value in records:
            builder.append(now_ms, key, value)
        data = PartitionProduceData(partition.partition, builder.build())
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=REQUEST_MS // 2,
            topic_data=[TopicProduceData(name=partition.topic, partition_data=[data])],
        )

        async def attempt() -> int:
            connection = await self._requests.cluster.leader(partition)
            answer = await connection.request(
                request, ProduceResponse, timeout_ms=REQUEST_MS, version=self._versions["produce"]
            )
            row = answer.responses[0].partition_responses[0]
            if row.error_code != Code.DUPLICATE_SEQUENCE_NUMBER:
                check_code(row.error_code, f"Produce to {partition}: {row.error_message}")
            return row.base_offset

        base_offset = await self._retrying("Produce", attempt)
        self._sequences[partition] += len(records)
        return base_offset

    async def commit_offset(self, group: str, partition: TopicPartition, offset: int, leader_epoch: int | None) -> None:
        """Have a group's position committed with the transaction."""
        if self.version == 1:
            await self._add_offsets(group)
        row = TxnOffsetCommitRequestPartition(
            partition_index=partition.partition,
            committed_offset=offset,
            committed_leader_epoch=-1 if leader_epoch is None else leader_epoch,
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            topics=[TxnOffsetCommitRequestTopic(partition.topic, [row])],
        )

        async def attempt() -> None:
            answer = await self._ask_coordinator(
                KEY_TYPE_GROUP, request, TxnOffsetCommitResponse, self._versions["offsets"], group
            )
            check_code(answer.topics[0].partitions[0].error_code, "TxnOffsetCommit")

        await self._retrying("TxnOffsetCommit", attempt)

    async def _add_offsets(self, group: str) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            group_id=group,
        )

        async def attempt() -> None:
            answer = await self._ask_coordinator(
                KEY_TYPE_TRANSACTION, request, AddOffsetsToTxnResponse, ADD_OFFSETS_VERSION
            )
            check_code(answer.error_code, "AddOffsetsToTxn")

        await self._retrying("AddOffsetsToTxn", attempt)

    async def end(self, *, commits: bool) -> None:
        """Commit, or abort.

        Raises:
            KafkaError: it is refused. Unless `doubts` has grown, it was never done.
        """
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            committed=commits,
        )

        async def attempt() -> EndTxnResponse:
            answer = await self._ask_coordinator(KEY_TYPE_TRANSACTION, request, EndTxnResponse, self._versions["end"])
            check_code(answer.error_code, "EndTxn")
            return answer

        answer = await self._retrying("EndTxn", attempt)
        if self.version > 1:
            self._producer = (answer.producer_id, answer.producer_epoch)
            self._sequences.clear()

    async def committed(
        self, group: str, partition: TopicPartition, *, is_stable: bool = True
    ) -> CommittedOffset | None:
        """A group's position.

        Args:
            is_stable: wait until no open transaction holds another.
        """
        topic = OffsetFetchRequestTopic(name=partition.topic, partition_indexes=[partition.partition])
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=[topic])], require_stable=is_stable
        )

        async def attempt() -> CommittedOffset | None:
            answer = await self._ask_coordinator(
                KEY_TYPE_GROUP, request, OffsetFetchResponse, OFFSET_FETCH_VERSION, group
            )
            check_code(answer.groups[0].error_code, "OffsetFetch")
            row = answer.groups[0].topics[0].partitions[0]
            check_code(row.error_code, "OffsetFetch")
            if row.committed_offset < 0:
                return None
            return CommittedOffset(
                row.committed_offset, row.committed_leader_epoch if row.committed_leader_epoch >= 0 else None
            )

        return await self._retrying("OffsetFetch", attempt)

    # How.

    async def _retrying(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        async def noted() -> T:
            try:
                return await attempt()
            except (TidelogError, asyncio.CancelledError) as error:
                self._requests.forget()
                if isinstance(error, asyncio.CancelledError) or is_retriable(error):
                    self.doubts += 1
                raise

        return await self._requests.cluster.retrying(what, noted, timeout_ms=self._patience_ms)

    async def _ask_coordinator(
        self, key_type: int, request: object, response: type[R], version: int, key: str | None = None
    ) -> R:
        """Whoever it is; after an error it is looked for anew."""
        name = self.transactional_id if key is None else key
        answer, _ = await self._requests.ask(name, key_type, request, response, version)
        return answer
