"""What is said of transactions while nobody coordinates them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.base.errors import Code, refusal
from tidelog.base.ids import ProducerEpoch, ProducerId, TopicPartition


class NoTransactions:
    """A `TransactionsApi` that knows of none. Whoever asks was given no producer id for a transactional id either."""

    async def verify(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
    ) -> Mapping[TopicPartition, Code]:
        raise refusal(
            Code.INVALID_PRODUCER_ID_MAPPING,
            f"transactional id {transactional_id!r}: this release has no transaction coordinator",
        )
