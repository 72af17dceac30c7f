"""What the admin client for event loops asks about transactions, and the end of those that hang."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.base.ids import TopicPartition
from tidelog.base.ports import Clock
from tidelog.client.admin.transaction_administration import TransactionAdministration
from tidelog.client.admin.transaction_descriptions import (
    HangingTransaction,
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
)
from tidelog.client.cluster import Cluster
from tidelog.client.leader_requests import Leaders
from tidelog.client.options import AdminConfig

IDLE_MS_MIN = 900_000
"""By default, a transaction hangs if it was written to no more for so long: the largest time-out that brokers allow."""


class AsyncTransactionAdmin:
    """The part of `AsyncAdmin` that is about transactions."""

    _cluster: Cluster
    _config: AdminConfig
    _clock: Clock

    async def list_transactions(
        self,
        states: Iterable[str] = (),
        *,
        producer_ids: Iterable[int] = (),
        open_longer_than_ms: int | None = None,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids of all brokers, sorted; those that pass every filter.

        Args:
            states: in one of these, as `Ongoing`; by default all.
            producer_ids: of one of these producers; by default all.
            open_longer_than_ms: with a transaction that has been open for longer (KIP-994, brokers from 3.8 on).
            pattern: whose whole name matches this regular expression of RE2 (KIP-1152, brokers from 4.1 on).

        Raises:
            ValueError: there is no such state.
            UnsupportedVersionError: a broker is too old for a filter.
            KafkaError: INVALID_REGULAR_EXPRESSION.
        """
        return await self._transactions().list_transactions(
            states, producer_ids, open_longer_than_ms=open_longer_than_ms, pattern=pattern
        )

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """Where transactions stand with their coordinators, by transactional id.

        Raises:
            KafkaError: one was refused; TRANSACTIONAL_ID_NOT_FOUND if there is no such id.
        """
        return await self._transactions().describe_transactions(transactional_ids)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[ProducerDescription, ...]]:
        """The idempotent and transactional producers that the leaders of partitions remember, sorted by id.

        Raises:
            UnknownTopicError: there is no such partition.
        """
        return await self._transactions().describe_producers(partitions)

    async def fence_producers(self, transactional_ids: Iterable[str]) -> None:
        """Fence whoever writes with these transactional ids, and abort the transactions that they have open.

        Kafka: `Admin.fenceProducers`.

        Raises:
            KafkaError: one was refused; says why. The others are fenced all the same.
        """
        await self._transactions().fence_producers(transactional_ids)

    async def find_hanging_transactions(
        self, partitions: Iterable[TopicPartition] | None = None, *, idle_ms_min: int | None = IDLE_MS_MIN
    ) -> list[HangingTransaction]:
        """Transactions that are open on partitions, and that no coordinator will end.

        Readers of what is committed stop where one begins, until `abort_transaction` ends it. What is reported was
        open while its coordinator was asked, and no coordinator held it open there.

        Args:
            partitions: which to look at; None for all that there are.
            idle_ms_min: whose last batch has a timestamp that is older; None for any. The timestamps are the
                producers'.

        Returns:
            Sorted by partition and offset.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE if a coordinator is out of reach, which may know of them.
        """
        return await self._transactions().find_hanging(partitions, idle_ms_min=idle_ms_min)

    async def abort_transaction(
        self,
        partition: TopicPartition,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int | None = None,
    ) -> None:
        """Abort what a producer has open on one partition, without its coordinator: for a transaction that hangs.

        Of one that does not hang, a part is aborted, whatever becomes of the rest: `find_hanging_transactions` tells.

        Args:
            producer_epoch: as `describe_producers` has it, like the two others.
            coordinator_epoch: None where none is known.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH: a newer instance of the producer has written there.
                TRANSACTION_COORDINATOR_FENCED: a newer coordinator has.
        """
        await self._transactions().abort(
            partition,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
        )

    def _transactions(self) -> TransactionAdministration:
        leaders = Leaders(
            self._cluster,
            request_timeout_ms=self._config.request_timeout_ms,
            timeout_ms=self._config.default_api_timeout_ms,
        )
        return TransactionAdministration(
            self._cluster, leaders, self._clock, request_timeout_ms=self._config.request_timeout_ms
        )
