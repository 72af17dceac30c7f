"""Asks one leader on another node where epochs and logs end: what followers want to know beside records.

Kafka: `RemoteLeaderEndPoint`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol

from tidelog.base.errors import Code, NetworkError, TidelogError
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.net.connection import Connection
from tidelog.replica import EpochEndRequest, LogStartRequest
from tidelog.server.replication.follower_driver import FollowerDriver
from tidelog.wire.messages.api_02_list_offsets import (
    EARLIEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.wire.messages.api_23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

logger = logging.getLogger("tidelog.server.replication")

REPLICA_REQUESTS = "replica questions"


class Peers(Protocol):
    """Connections to the other nodes: `ConnectionPool` is one."""

    async def connection(self, target: BrokerId, request_class: str = ...) -> Connection: ...


class ReplicaRequests:
    """OffsetForLeaderEpoch and ListOffsets to one leader; all that are there go together.

    Args:
        timeout_ms: how long an answer may take.
    """

    def __init__(self, broker_id: BrokerId, leader: BrokerId, peers: Peers, *, timeout_ms: int) -> None:
        self._broker_id = broker_id
        self._leader = leader
        self._peers = peers
        self._timeout_ms = timeout_ms
        self._unsent: dict[FollowerDriver, EpochEndRequest | LogStartRequest] = {}  # not sent yet
        self._sent: dict[FollowerDriver, EpochEndRequest | LogStartRequest] = {}
        self._has_unsent = asyncio.Event()

    def send(self, following: FollowerDriver, request: EpochEndRequest | LogStartRequest) -> None:
        """Queue a request, to be sent together with those of others."""
        self._unsent[following] = request
        self._has_unsent.set()

    def forget(self, following: FollowerDriver) -> None:
        """Drop the request of a follower."""
        self._unsent.pop(following, None)

    def give_up(self) -> None:
        """Fail all requests: their followers retry somewhere else."""
        waiting, self._unsent, self._sent = self._sent | self._unsent, {}, {}
        for following, request in waiting.items():
            following.on_unanswered(request.number)

    async def run(self) -> None:
        """Send what is queued, for ever."""
        while True:
            await self._has_unsent.wait()
            await asyncio.sleep(0)  # what is asked in one step goes together
            self._has_unsent.clear()
            unsent, self._unsent = self._unsent, {}
            self._sent = unsent
            ends = {one: request for one, request in unsent.items() if isinstance(request, EpochEndRequest)}
            starts = {one: request for one, request in unsent.items() if isinstance(request, LogStartRequest)}
            try:
                connection = await self._peers.connection(self._leader, REPLICA_REQUESTS)
                if ends:
                    await self._request_epoch_ends(connection, ends)
                if starts:
                    await self._request_log_starts(connection, starts)
            except TidelogError as error:
                if not isinstance(error, NetworkError):
                    logger.warning("broker %s cannot be followed: %s", self._leader, error)
            self._sent = {}
            for following, request in unsent.items():
                following.on_unanswered(request.number)  # where there was no answer

    async def _request_epoch_ends(
        self, connection: Connection, requests: Mapping[FollowerDriver, EpochEndRequest]
    ) -> None:
        topics: dict[str, OffsetForLeaderTopic] = {}
        for following, one in requests.items():
            name, index = following.partition.topic_partition
            topic = topics.setdefault(name, OffsetForLeaderTopic(name, []))
            topic.partitions.append(
                OffsetForLeaderPartition(
                    partition=index, current_leader_epoch=one.current_leader_epoch, leader_epoch=one.leader_epoch
                )
            )
        request = OffsetForLeaderEpochRequest(replica_id=self._broker_id, topics=list(topics.values()))
        answer = await connection.send(request, OffsetForLeaderEpochResponse, timeout_ms=self._timeout_ms)
        rows = {(topic.topic, row.partition): row for topic in answer.topics for row in topic.partitions}
        for following, one in requests.items():
            row = rows.get(following.partition.topic_partition)
            if row is None:
                continue
            if row.error_code:
                following.on_refused(one.number, Code(row.error_code))
            else:
                is_known = row.leader_epoch >= 0 and row.end_offset >= 0
                end = (LeaderEpoch(row.leader_epoch), Offset(row.end_offset)) if is_known else None
                following.on_epoch_end(one.number, end)

    async def _request_log_starts(
        self, connection: Connection, requests: Mapping[FollowerDriver, LogStartRequest]
    ) -> None:
        topics: dict[str, ListOffsetsTopic] = {}
        for following, one in requests.items():
            name, index = following.partition.topic_partition
            topic = topics.setdefault(name, ListOffsetsTopic(name, []))
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=index,
                    current_leader_epoch=one.current_leader_epoch,
                    timestamp=EARLIEST_TIMESTAMP,
                )
            )
        request = ListOffsetsRequest(replica_id=self._broker_id, topics=list(topics.values()))
        answer = await connection.send(request, ListOffsetsResponse, timeout_ms=self._timeout_ms)
        rows = {(topic.name, row.partition_index): row for topic in answer.topics for row in topic.partitions}
        for following, one in requests.items():
            row = rows.get(following.partition.topic_partition)
            if row is None or (not row.error_code and row.offset < 0):
                continue
            if row.error_code:
                following.on_refused(one.number, Code(row.error_code))
            else:
                following.on_log_start(one.number, row.offset)
