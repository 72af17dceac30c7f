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
from tidelog.replica import AskEpochEnd, AskLogStart
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


class ReplicaQuestions:
    """OffsetForLeaderEpoch and ListOffsets to one leader; all that are there go together.

    Args:
        timeout_ms: how long an answer may take.
    """

    def __init__(self, broker_id: BrokerId, leader: BrokerId, peers: Peers, *, timeout_ms: int) -> None:
        self._broker_id = broker_id
        self._leader = leader
        self._peers = peers
        self._timeout_ms = timeout_ms
        self._questions: dict[FollowerDriver, AskEpochEnd | AskLogStart] = {}  # not sent yet
        self._sent: dict[FollowerDriver, AskEpochEnd | AskLogStart] = {}
        self._asked = asyncio.Event()

    def ask(self, following: FollowerDriver, question: AskEpochEnd | AskLogStart) -> None:
        """Send this, together with what others ask."""
        self._questions[following] = question
        self._asked.set()

    def forget(self, following: FollowerDriver) -> None:
        """It wants to know nothing any more."""
        self._questions.pop(following, None)

    def give_up(self) -> None:
        """Nobody will be told any more: whoever waits is to ask somewhere else."""
        waiting, self._questions, self._sent = self._sent | self._questions, {}, {}
        for following, asked in waiting.items():
            following.on_unanswered(asked.number)

    async def run(self) -> None:
        """Ask, for ever."""
        while True:
            await self._asked.wait()
            await asyncio.sleep(0)  # what is asked in one step goes together
            self._asked.clear()
            questions, self._questions = self._questions, {}
            self._sent = questions
            ends = {one: asked for one, asked in questions.items() if isinstance(asked, AskEpochEnd)}
            starts = {one: asked for one, asked in questions.items() if isinstance(asked, AskLogStart)}
            try:
                connection = await self._peers.connection(self._leader, REPLICA_REQUESTS)
                if ends:
                    await self._ask_epoch_ends(connection, ends)
                if starts:
                    await self._ask_log_starts(connection, starts)
            except TidelogError as error:
                if not isinstance(error, NetworkError):
                    logger.warning("broker %s cannot be followed: %s", self._leader, error)
            self._sent = {}
            for following, asked in questions.items():
                following.on_unanswered(asked.number)  # where there was no answer

    async def _ask_epoch_ends(self, connection: Connection, asked: Mapping[FollowerDriver, AskEpochEnd]) -> None:
        topics: dict[str, OffsetForLeaderTopic] = {}
        for following, one in asked.items():
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
        for following, one in asked.items():
            row = rows.get(following.partition.topic_partition)
            if row is None:
                continue
            if row.error_code:
                following.on_refused(one.number, Code(row.error_code))
            else:
                is_known = row.leader_epoch >= 0 and row.end_offset >= 0
                end = (LeaderEpoch(row.leader_epoch), Offset(row.end_offset)) if is_known else None
                following.on_epoch_end(one.number, end)

    async def _ask_log_starts(self, connection: Connection, asked: Mapping[FollowerDriver, AskLogStart]) -> None:
        topics: dict[str, ListOffsetsTopic] = {}
        for following, one in asked.items():
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
        for following, one in asked.items():
            row = rows.get(following.partition.topic_partition)
            if row is None or (not row.error_code and row.offset < 0):
                continue
            if row.error_code:
                following.on_refused(one.number, Code(row.error_code))
            else:
                following.on_log_start(one.number, row.offset)
