"""Asks one other replica for records that are damaged here, as a consumer would: its answer proves nothing of this log.

A fetch as a follower says that all below its offset is here, and is answered by a leader alone. A consumer is answered
by followers too, up to their high watermark, and never with what is damaged there.

Kafka: none.
"""

from __future__ import annotations

from typing import cast

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import BrokerId, Offset
from tidelog.base.ports import Buffer
from tidelog.server.replication.partition import Partition
from tidelog.server.replication.replica_requests import Peers
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.api_01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

FETCH_VERSION_MIN = 13
"""The first that names topics by id."""
FETCH_VERSION_MAX = 17
FETCH_BYTES_MAX = 1 << 17
TIMEOUT_MS = 30_000
REPAIRS = "repairs"


async def fetch_records(peers: Peers, source: BrokerId, partition: Partition, offset: Offset) -> Buffer:
    """Whole batches from the one that holds `offset` on, or the first above it; not checked.

    Raises:
        NetworkError: there is no answer.
        KafkaError: the replica refuses, or has nothing there.
    """
    connection = await peers.connection(source, REPAIRS)
    version = connection.versions.version(ApiKey.FETCH, min_version=FETCH_VERSION_MIN, max_version=FETCH_VERSION_MAX)
    leader_epoch = partition.role.leader_epoch
    wanted = FetchPartition(
        partition=partition.topic_partition.partition,
        current_leader_epoch=-1 if leader_epoch is None else leader_epoch,
        fetch_offset=offset,
        partition_max_bytes=FETCH_BYTES_MAX,
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=FETCH_BYTES_MAX,
        topics=[FetchTopic(topic=partition.topic_partition.topic, topic_id=partition.topic_id, partitions=[wanted])],
    )
    answer = await connection.send(request, FetchResponse, timeout_ms=TIMEOUT_MS, version=version)
    row = next((row for topic in answer.responses for row in topic.partitions), None)
    code = answer.error_code or (Code.UNKNOWN_SERVER_ERROR if row is None else row.error_code)
    if row is None or code:
        raise _refused(source, Code(code))
    if not row.records:
        raise refusal(Code.OFFSET_NOT_AVAILABLE, f"broker {source} has nothing from offset {offset} on")
    return cast(Buffer, row.records)


def _refused(source: BrokerId, code: Code) -> KafkaError:
    return refusal(code, f"broker {source} refuses: {code.name}")
