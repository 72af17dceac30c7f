"""Produce requests out of batches, and what their responses say of each."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import TopicId, TopicPartition
from tidelog.client.core.accumulator import PendingBatch
from tidelog.client.core.encoding import encode_batch
from tidelog.client.core.metadata_cache import MetadataCache
from tidelog.client.core.sender import BatchAnswer
from tidelog.client.core.transaction import IMPLICIT_VERSION, ProducerTransactions
from tidelog.client.core.values import code_of
from tidelog.wire.messages.api_00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.wire.primitives import ZERO_UUID

LAST_VERSION_WITH_NAMES = 12
"""Later versions of Produce speak of topic ids alone."""

FIRST_THAT_ADDS = 12
"""From this version on, Produce adds partitions to the producer's transaction (KIP-890)."""

LEFT_OUT = BatchAnswer(Code.UNKNOWN_SERVER_ERROR, "the broker's answer leaves this partition out")


def produce_versions(
    names: dict[TopicId, str] | None, transactions: ProducerTransactions | None
) -> tuple[int, int | None]:
    """The lowest and highest version that a request may have; `names` as `produce_request` returned them."""
    highest = LAST_VERSION_WITH_NAMES if names is None else None
    if transactions is None:
        return 0, highest
    if transactions.version >= IMPLICIT_VERSION:
        return FIRST_THAT_ADDS, highest
    return 0, FIRST_THAT_ADDS - 1


def unencodable(
    batches: Iterable[PendingBatch], metadata: MetadataCache, compression: str
) -> dict[TopicPartition, KafkaError]:
    """Which of some batches cannot be encoded, and why: to be failed alone, when together they made no request."""
    reasons = {}
    for batch in batches:
        try:
            produce_request([batch], metadata, 1, 0, compression)
        except ValueError as error:
            reasons[batch.topic_partition] = refusal(Code.INVALID_RECORD, f"it cannot be encoded: {error}")
    return reasons


def produce_request(
    batches: Iterable[PendingBatch],
    metadata: MetadataCache,
    acks: int,
    timeout_ms: int,
    compression: str,
    *,
    transactional_id: str | None = None,
) -> tuple[ProduceRequest, dict[TopicId, str] | None]:
    """The request for one batch of each of some partitions.

    Returns:
        The request, and the names of the topics in it by id; None if not all ids are known, so that only versions up to
        `LAST_VERSION_WITH_NAMES` will do. `produce_versions` says which versions will.

    Raises:
        ValueError: a batch cannot be encoded.
    """
    names: dict[TopicId, str] | None = {}
    is_transactional = transactional_id is not None
    topics: dict[str, TopicProduceData] = {}
    for batch in batches:
        topic, partition = batch.topic_partition
        data = topics.get(topic)
        if data is None:
            topic_id = metadata.topic_id(topic)
            if topic_id is None:
                names = None
            elif names is not None:
                names[topic_id] = topic
            data = topics[topic] = TopicProduceData(name=topic, topic_id=topic_id or ZERO_UUID, partition_data=[])
        data.partition_data.append(PartitionProduceData(partition, encode_batch(batch, compression, is_transactional)))
    request = ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=list(topics.values())
    )
    return request, names


def read_answers(response: ProduceResponse, names: dict[TopicId, str] | None) -> dict[tuple[str, int], BatchAnswer]:
    """What the response says, by topic and partition; `names` as `produce_request` returned them."""
    answers: dict[tuple[str, int], BatchAnswer] = {}
    for topic in response.responses:
        name = topic.name or (names or {}).get(TopicId(topic.topic_id), "")
        for part in topic.partition_responses:
            message = part.error_message
            if part.record_errors:
                first = part.record_errors[0]
                why = first.batch_index_error_message or message or "refused"
                message = f"{len(part.record_errors)} records were refused, first that at {first.batch_index}: {why}"
            answers[name, part.index] = BatchAnswer(
                code_of(part.error_code),
                message,
                _known(part.base_offset),
                _known(part.log_append_time_ms),
                _known(part.log_start_offset),
            )
    return answers


def _known(number: int) -> int | None:
    return None if number < 0 else number
