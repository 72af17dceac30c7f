"""DescribeLogDirs 1-4: this broker's log directories, what lies in each, and how much room there is.

Behaviour: every directory of `log.dirs` is told of, in their order, one that is out of use with KAFKA_STORAGE_ERROR and
nothing in it. Logs that are asked for and are not here are left out, without an error. Sizes are those of the batches;
a directory's total and usable bytes (4+) are asked of its file system, off the loop.
"""

from __future__ import annotations

import os
from collections import defaultdict
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, DiskError
from tidelog.server.dispatch import RequestContext
from tidelog.server.held_directory import HeldDirectory
from tidelog.server.partition import Partition
from tidelog.wire.messages.api_35_describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from tidelog.server.node import Node


async def handle(node: Node, request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    by_directory = _partitions_by_directory(node, request)
    held = {directory.path: directory for directory in node.files.directories}
    results = []
    for path in node.config.log_directories:
        result = DescribeLogDirsResult(log_dir=os.path.abspath(path), error_code=Code.KAFKA_STORAGE_ERROR)
        directory = held.get(path)
        if directory is not None and directory.failure is None:
            try:
                result.total_bytes, result.usable_bytes = await node.files.room_in(directory)
                result.topics = _topics(by_directory[directory])
                result.error_code = Code.NONE
            except DiskError:
                node.broker.on_suspicion(directory)
        results.append(result)
    return DescribeLogDirsResponse(results=results)


def _partitions_by_directory(node: Node, request: DescribeLogDirsRequest) -> dict[HeldDirectory, list[Partition]]:
    asked = None if request.topics is None else {(t.topic, index) for t in request.topics for index in t.partitions}
    found: dict[HeldDirectory, list[Partition]] = defaultdict(list)
    for partition in node.broker.partitions:
        directory = node.files.directory_of(partition.topic_partition)
        if directory is not None and (asked is None or partition.topic_partition in asked):
            found[directory].append(partition)
    return found


def _topics(partitions: list[Partition]) -> list[DescribeLogDirsTopic]:
    rows: dict[str, list[DescribeLogDirsPartition]] = {}
    for each in sorted(partitions, key=lambda partition: partition.topic_partition):
        topic, index = each.topic_partition
        lag = max(each.high_watermark - each.log.log_end_offset, 0)
        rows.setdefault(topic, []).append(DescribeLogDirsPartition(index, each.log.size_bytes, lag, False))
    return [DescribeLogDirsTopic(topic, its) for topic, its in rows.items()]
