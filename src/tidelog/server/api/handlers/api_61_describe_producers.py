"""DescribeProducers 0: the idempotent and transactional producers that a replica of a partition remembers (KIP-664).

Behaviour: answered by followers too, who may be behind. The last sequence is -1 for a producer that has written nothing
in its epoch, the start of its transaction -1 where none is open. A partition that is named again is refused: its
producers are many, and a request names it 262,080 times.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.server.transport.turns import in_turns
from tidelog.wire.messages.api_61_describe_producers import (
    DescribedProducersPartition,
    DescribedProducerState,
    DescribedProducersTopic,
    DescribeProducersRequest,
    DescribeProducersResponse,
)

if TYPE_CHECKING:
    from tidelog.log.producer_state import ProducerState
    from tidelog.server.api.ports import DataApi


TOLD_AT_ONCE_MAX = 500
"""Producers, before others have their turn."""


async def handle(
    node: DataApi, request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    """A partition may know very many producers, and a request may name many: others have their turn in between."""
    answered: set[tuple[str, int]] = set()
    response = DescribeProducersResponse(topics=[])
    async for topic, index in in_turns(_named(request, response)):
        rows = response.topics[-1].partitions
        if (topic, index) in answered:
            rows.append(
                DescribedProducersPartition(
                    partition_index=index,
                    error_code=Code.INVALID_REQUEST,
                    error_message=f"the request names {topic}-{index} more than once",
                )
            )
        else:
            answered.add((topic, index))
            rows.append(await _row(node, topic, index))
    return response


def _named(request: DescribeProducersRequest, response: DescribeProducersResponse) -> Iterator[tuple[str, int]]:
    """What is named, in order; the response is given each topic before its partitions."""
    for topic in request.topics:
        response.topics.append(DescribedProducersTopic(name=topic.name, partitions=[]))
        for index in topic.partition_indexes:
            yield topic.name, index


async def _row(node: DataApi, topic: str, index: int) -> DescribedProducersPartition:
    try:
        partition = node.broker.partition(topic, index)
    except KafkaError as error:
        code = code_of(error, f"DescribeProducers {topic}-{index}")
        return DescribedProducersPartition(partition_index=index, error_code=code, error_message=str(error))
    known = list(partition.log.producers)
    producers = [_producer(state) async for state in in_turns(known, turn_size=TOLD_AT_ONCE_MAX)]
    return DescribedProducersPartition(partition_index=index, active_producers=producers)


def _producer(state: ProducerState) -> DescribedProducerState:
    return DescribedProducerState(
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        last_sequence=state.batches[-1].last_sequence if state.batches else -1,
        last_timestamp=state.last_timestamp,
        coordinator_epoch=-1 if state.coordinator_epoch is None else state.coordinator_epoch,
        current_txn_start_offset=-1 if state.transaction_first_offset is None else state.transaction_first_offset,
    )
