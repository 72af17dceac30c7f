"""DescribeLogDirs 1-5: this broker's log directories, what lies in each, and how much room there is.

Behaviour: every directory of `log.dirs` is told of, in their order, one that is out of use with KAFKA_STORAGE_ERROR and
nothing in it. Logs that are asked for and are not here are left out, without an error. A copy that is to take the place
of a log says so, and how far it is behind that (KIP-113). A log is told of once the published image has its partition:
whoever is told of it finds that at every broker (KIP-1243). Sizes are those of the batches; a directory's total and
usable bytes (4+) are asked of its file system, off the loop.
"""

from __future__ import annotations

import os
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, DiskError
from tidelog.base.ids import TopicPartition
from tidelog.server.api.request_context import RequestContext
from tidelog.server.storage.log_dir import LogDir
from tidelog.server.transport.turns import in_turns
from tidelog.wire.messages.api_35_describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from tidelog.metadata import MetadataImage
    from tidelog.server.api.ports import DataApi

TOLD_AT_ONCE_MAX = 500
"""Replicas, before others have their turn."""


async def handle(node: DataApi, request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    by_directory = await _rows_by_directory(node, context.read(node).image, request, context)
    held = {directory.path: directory for directory in node.files.directories}
    results = []
    for path in node.config.log_directories:
        result = DescribeLogDirsResult(log_dir=os.path.abspath(path), error_code=Code.KAFKA_STORAGE_ERROR)
        directory = held.get(path)
        if directory is not None and directory.failure is None:
            try:
                result.total_bytes, result.usable_bytes = await node.files.room_in(directory)
                topics = partial(_topics, by_directory[directory])
                result.topics = await node.executor.compute(topics) if context.is_long else topics()
                result.error_code = Code.NONE
            except DiskError:
                node.broker.failures.on_suspicion(directory)
        results.append(result)
    return DescribeLogDirsResponse(results=results)


async def _rows_by_directory(
    node: DataApi, image: MetadataImage, request: DescribeLogDirsRequest, context: RequestContext
) -> dict[LogDir, list[tuple[TopicPartition, DescribeLogDirsPartition]]]:
    asked = partial(_requested, request)
    requested = await node.executor.compute(asked) if context.is_long else asked()
    found: dict[LogDir, list[tuple[TopicPartition, DescribeLogDirsPartition]]] = defaultdict(list)
    partitions = node.broker.partitions
    if len(partitions) > TOLD_AT_ONCE_MAX:
        context.is_long = True
    async for partition in in_turns(partitions, turn_size=TOLD_AT_ONCE_MAX):
        topic_partition, log = partition.topic_partition, partition.log
        directory = node.files.directory_of(topic_partition)
        topic = image.topic_by_id(partition.topic_id)
        is_known = topic is not None and topic_partition.partition < len(topic.partitions)
        if is_known and directory is not None and (requested is None or topic_partition in requested):
            lag = max(partition.high_watermark - log.log_end_offset, 0)
            row = DescribeLogDirsPartition(topic_partition.partition, log.segments.size_bytes, lag, False)
            found[directory].append((topic_partition, row))
    for directory, future in node.broker.moves.copies:
        topic_partition = future.log.topic_partition
        if requested is None or topic_partition in requested:
            row = DescribeLogDirsPartition(
                topic_partition.partition, future.log.segments.size_bytes, future.offset_lag, True
            )
            found[directory].append((topic_partition, row))
    return found


def _requested(request: DescribeLogDirsRequest) -> set[tuple[str, int]] | None:
    return (
        None if request.topics is None else {(one.topic, index) for one in request.topics for index in one.partitions}
    )


def _topics(rows: list[tuple[TopicPartition, DescribeLogDirsPartition]]) -> list[DescribeLogDirsTopic]:
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for topic_partition, row in sorted(rows, key=lambda each: each[0]):
        topics.setdefault(topic_partition.topic, []).append(row)
    return [DescribeLogDirsTopic(topic, its) for topic, its in topics.items()]
