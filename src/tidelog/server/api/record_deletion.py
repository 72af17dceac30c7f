"""DeleteRecords: the order in which the oldest records go.

    the log start moves: nobody is served them any more
    the log starts are written and synced: no crash brings them back
    their segments are removed
    every follower that is up has moved its log start; the answer leaves

What is answered is gone for good; what a crash kept from being answered may be there still, or not.

Kafka: `DelayedDeleteRecords`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tidelog.base.errors import Code, DiskError, KafkaError, refusal
from tidelog.base.ids import Offset
from tidelog.metadata.topic_names import INTERNAL_TOPICS
from tidelog.server.replication.partition import Partition

if TYPE_CHECKING:
    from tidelog.server.api.ports import DataApi


class RecordsToDelete(NamedTuple):
    """All records of one partition below an offset; None: all that is committed."""

    topic: str
    partition: int
    before_offset: int | None


async def delete_records(
    node: DataApi, wanted: Sequence[RecordsToDelete], *, timeout_ms: int
) -> list[Offset | KafkaError]:
    """Delete, each partition on its own: where its log starts now, or why it was refused.

    Args:
        timeout_ms: how long to wait for followers; then the answer is REQUEST_TIMED_OUT, and they delete all the same.
    """
    deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
    outcomes: list[Offset | KafkaError] = []
    moved: list[Partition] = []
    for one in wanted:
        await asyncio.sleep(0)  # a request may name a hundred thousand: let others have their turn
        try:
            outcomes.append(_move_log_start(node, one, moved))
        except KafkaError as error:
            outcomes.append(error)
    if moved:
        try:
            await node.files.served.persist_log_starts(node.broker.partitions)
        except DiskError as error:
            return [refusal(Code.KAFKA_STORAGE_ERROR, f"the log start could not be written: {error}")] * len(outcomes)
    for partition in moved:
        try:
            await node.files.served.delete_segments(partition)
        except DiskError as error:  # the records are gone all the same
            node.broker.failures.on_disk_error(partition, error)
    for index, one in enumerate(wanted):
        outcome = outcomes[index]
        if not isinstance(outcome, KafkaError):
            outcomes[index] = await _deleted_everywhere(node, one, outcome, deadline)
    return outcomes


async def _deleted_everywhere(
    node: DataApi, one: RecordsToDelete, log_start_offset: Offset, deadline: float
) -> Offset | KafkaError:
    try:
        partition = node.broker.partition(one.topic, one.partition)
        if not partition.leader().followers:
            return log_start_offset
        async with asyncio.timeout_at(deadline):
            is_done = await partition.deleted(log_start_offset)
    except KafkaError as error:
        return error
    except TimeoutError:
        return refusal(Code.REQUEST_TIMED_OUT, f"{one.topic}-{one.partition}: a follower has not deleted them yet")
    if not is_done:
        return refusal(Code.NOT_LEADER_OR_FOLLOWER, f"{one.topic}-{one.partition}: the leadership ended meanwhile")
    return log_start_offset


def _move_log_start(node: DataApi, one: RecordsToDelete, moved: list[Partition]) -> Offset:
    if one.topic in INTERNAL_TOPICS:
        raise refusal(Code.INVALID_TOPIC_EXCEPTION, f"{one.topic} belongs to the cluster: its records stay")
    partition = node.broker.partition(one.topic, one.partition)
    before = partition.log.log_start_offset
    try:
        log_start_offset = partition.delete_records(one.before_offset)
    except DiskError as error:
        node.broker.failures.on_disk_error(partition, error)
        raise refusal(Code.KAFKA_STORAGE_ERROR, f"{partition.topic_partition}: {error}") from error
    if log_start_offset != before:
        moved.append(partition)
    return log_start_offset
