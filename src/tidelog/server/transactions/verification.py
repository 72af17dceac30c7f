"""Asks transaction coordinators, for the leaders of partitions, whether a producer's batch belongs to a transaction.

Without that, a batch that comes after its transaction ended would begin another one, which nobody ends: readers of what
is committed would wait for it for ever (KIP-890). A producer of version 2 does not announce its partitions; then the
leader's request is what adds them.

Kafka: `AddPartitionsToTxnManager`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple

from tidelog.base.errors import Code, KafkaError, TidelogError, refusal
from tidelog.base.ids import BrokerId, ProducerEpoch, ProducerId, TopicPartition
from tidelog.server.broker.broker import Broker
from tidelog.server.transactions.transaction_coordinators import TransactionCoordinators

if TYPE_CHECKING:
    from tidelog.wire.messages.api_24_add_partitions_to_txn import AddPartitionsToTxnRequest

REQUEST_CLASS = "verification"
"""A connection of its own: markers must not wait behind what waits for them."""
TIMEOUT_MS = 10_000
RETRY_MS = 20
RETRIES_MAX = 5
"""While the transaction before is still being ended; then the producer asks again, as it does of Kafka."""
VERSION_MIN = 4
"""The first that one broker sends another."""


class Verified(NamedTuple):
    """What is asked of a coordinator.

    Attributes:
        adds: whether the partitions are added to the transaction, rather than looked for in it.
    """

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: frozenset[TopicPartition]
    adds: bool


class TransactionVerification:
    """One for each broker. Equal questions that are asked while one is under way share its answer, in their order."""

    def __init__(self, broker: Broker, coordinators: TransactionCoordinators) -> None:
        self._broker = broker
        self._coordinators = coordinators
        self._tasks = broker.tasks.branch("verification")
        self._under_way: dict[Verified, asyncio.Future[dict[TopicPartition, Code]]] = {}

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        adds: bool,
    ) -> dict[TopicPartition, Code]:
        """Ask the coordinator of an id.

        Returns:
            By partition, NONE or why the batch is not to be appended. A coordinator that cannot be reached, or is only
            loading, is a code that producers retry.
        """
        asked = Verified(
            transactional_id, ProducerId(producer_id), ProducerEpoch(producer_epoch), frozenset(partitions), adds
        )
        under_way = self._under_way.get(asked)
        if under_way is None:
            under_way = self._under_way[asked] = self._tasks.share(self._ask_for_all(asked))
        return await asyncio.shield(under_way)

    async def _ask_for_all(self, asked: Verified) -> dict[TopicPartition, Code]:
        """Until this is over, whoever asks the same waits along."""
        try:
            return await self._ask(asked)
        finally:
            del self._under_way[asked]

    async def _ask(self, asked: Verified) -> dict[TopicPartition, Code]:
        for _ in range(RETRIES_MAX):
            found = await self._ask_once(asked)
            if Code.CONCURRENT_TRANSACTIONS not in found.values():
                break
            await asyncio.sleep(RETRY_MS / 1000)
        return found

    async def _ask_once(self, asked: Verified) -> dict[TopicPartition, Code]:
        try:
            place = self._coordinators.partition_for(asked.transactional_id)
            state = None if place is None else self._broker.image.partition(place.topic, place.partition)
            if state is None or state.leader is None:
                raise refusal(Code.COORDINATOR_NOT_AVAILABLE, "nobody coordinates that transactional id")
            if state.leader == self._broker.broker_id:
                return await self._ask_here(asked)
            return await self._ask_there(state.leader, asked)
        except KafkaError as error:
            return dict.fromkeys(asked.partitions, error.code)
        except TidelogError:
            return dict.fromkeys(asked.partitions, Code.COORDINATOR_NOT_AVAILABLE)

    async def _ask_here(self, asked: Verified) -> dict[TopicPartition, Code]:
        from tidelog.coordinator.transactions import ProducerIdentity

        producer = ProducerIdentity(asked.producer_id, asked.producer_epoch)
        if asked.adds:
            answer = self._coordinators.submit(
                asked.transactional_id,
                lambda machine, request_id, now_ms, wall_ms: machine.on_add_partitions(
                    request_id,
                    asked.transactional_id,
                    producer,
                    asked.partitions,
                    client_version=2,
                    now_ms=now_ms,
                    wall_ms=wall_ms,
                ),
            )
        else:
            answer = self._coordinators.submit(
                asked.transactional_id,
                lambda machine, request_id, now_ms, wall_ms: machine.on_verify_partitions(
                    request_id, asked.transactional_id, producer, now_ms=now_ms, wall_ms=wall_ms
                ),
            )
        if isinstance(answer, asyncio.Future):
            answer = await answer
        if isinstance(answer, KafkaError):
            raise answer
        return codes_of(asked.partitions, answer)

    async def _ask_there(self, leader: BrokerId, asked: Verified) -> dict[TopicPartition, Code]:
        from tidelog.wire.messages.api_24_add_partitions_to_txn import AddPartitionsToTxnResponse

        connection = await self._broker.replication.peers.connection(leader, REQUEST_CLASS)
        answer = await connection.request(
            _request(asked), AddPartitionsToTxnResponse, timeout_ms=TIMEOUT_MS, min_version=VERSION_MIN
        )
        if answer.error_code:
            raise refusal(Code(answer.error_code), "the coordinator refuses")
        codes = {
            (topic.name, row.partition_index): Code(row.partition_error_code)
            for result in answer.results_by_transaction
            for topic in result.topic_results
            for row in topic.results_by_partition
        }
        return {one: codes.get((one.topic, one.partition), Code.UNKNOWN_SERVER_ERROR) for one in asked.partitions}


def codes_of(partitions: Iterable[TopicPartition], answer: object) -> dict[TopicPartition, Code]:
    """What a coordinator's answer says of each partition: those that are added, or that the transaction is open on."""
    if isinstance(answer, frozenset):
        return {one: Code.NONE if one in answer else Code.TRANSACTION_ABORTABLE for one in partitions}
    return dict.fromkeys(partitions, Code.NONE)


def _request(asked: Verified) -> AddPartitionsToTxnRequest:
    from tidelog.wire.messages.api_24_add_partitions_to_txn import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnTopic,
        AddPartitionsToTxnTransaction,
    )

    topics: dict[str, list[int]] = {}
    for topic, index in sorted(asked.partitions):
        topics.setdefault(topic, []).append(index)
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=asked.transactional_id,
                producer_id=asked.producer_id,
                producer_epoch=asked.producer_epoch,
                verify_only=not asked.adds,
                topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()],
            )
        ]
    )
