"""Markers, the ends of transactions: written to partitions that are led here, and sent to the leaders of the others.

```
 coordinator ──► MarkerSends ──┬── led here ──────────────────────► MarkerWriter ──► log of the partition
                               └── led elsewhere: one request a          ▲
                                   broker and turn of the loop           │
 another broker's coordinator ──► WriteTxnMarkers ───────────────────────┘
```

Kafka: `TransactionMarkerChannelManager`, `KafkaApis.handleWriteTxnMarkersRequest`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tidelog.base.errors import Code, DiskError, InvariantBrokenError, NetworkError, TidelogError, refusal
from tidelog.base.ids import BrokerId, LeaderEpoch, TopicPartition
from tidelog.base.invariant import invariant
from tidelog.base.ports import Clock
from tidelog.metadata.topic_names import CONSUMER_OFFSETS_TOPIC
from tidelog.records.transaction_marker import TransactionMarker
from tidelog.server.broker.broker import Broker
from tidelog.server.replication.leader_driver import LeaderDriver
from tidelog.server.replication.partition import Partition

if TYPE_CHECKING:
    from tidelog.server.groups.group_coordinators import GroupCoordinators
    from tidelog.wire.messages.api_27_write_txn_markers import WriteTxnMarkersRequest

logger = logging.getLogger("tidelog.server.transactions")

TIMEOUT_MS = 30_000
REQUEST_CLASS = "markers"

FINAL = frozenset((Code.INVALID_PRODUCER_EPOCH, Code.TRANSACTION_COORDINATOR_FENCED))
"""What a partition says of a marker that it will never take. Whatever else it says, it is asked again."""


class PendingMarker(NamedTuple):
    """One that is about to be sent, or was."""

    destination: TopicPartition
    leader_epoch: LeaderEpoch
    marker: TransactionMarker
    answer: asyncio.Future[Code]


WriteMarker = Callable[[TopicPartition, TransactionMarker, int], Awaitable[None]]


class MarkerWriter:
    """Writes markers to the partitions that this broker leads.

    A request whose connection broke is sent again, and the first may come later than the second, when the producer's
    next transaction has begun. From transaction version 2 on that is told by the epoch. Before, it would end the next
    transaction: so the numbers of those that were written are kept as long as this broker leads the partition, and a
    marker that was sent to an earlier leader is refused.

    Args:
        groups: whose coordinators write those of `__consumer_offsets`.
    """

    def __init__(self, broker: Broker, groups: GroupCoordinators, clock: Clock) -> None:
        self._broker = broker
        self._groups = groups
        self._clock = clock

    async def write(self, topic_partition: TopicPartition, marker: TransactionMarker, leader_epoch: int = -1) -> None:
        """Return once the marker is committed.

        Args:
            leader_epoch: of the partition, as the coordinator knows it; -1 where it says none.

        Raises:
            KafkaError: TRANSACTION_COORDINATOR_FENCED or INVALID_PRODUCER_EPOCH: it is not to be written at all;
                NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH and others: it may be, elsewhere or later.
        """
        partition = self._broker.partition(topic_partition.topic, topic_partition.partition)
        leading = partition.role.leading(leader_epoch)
        self._check_due(partition, leading, marker)
        if topic_partition.topic == CONSUMER_OFFSETS_TOPIC:
            code = await self._groups.write_marker(topic_partition.partition, marker)
            if code:
                raise refusal(code, f"{topic_partition}: the marker is not written")
            leading.note_marker(marker)
            return
        try:
            end_offset = partition.append_marker(marker, now_ms=self._clock.wall_ms())
        except DiskError as error:
            self._broker.failures.on_disk_error(partition, error)
            raise refusal(Code.KAFKA_STORAGE_ERROR, str(error)) from error
        except InvariantBrokenError as error:
            self._broker.failures.on_bug(partition, error)
            raise
        leading.note_marker(marker)
        if end_offset > partition.high_watermark:
            code = await partition.committed(end_offset, TIMEOUT_MS)
            if code:
                raise refusal(code, f"{topic_partition}: the marker is written, and not known to be committed")

    @staticmethod
    def _check_due(partition: Partition, leading: LeaderDriver, marker: TransactionMarker) -> None:
        """Raises KafkaError: INVALID_PRODUCER_EPOCH: it was written, and a later transaction has begun."""
        if marker.number is None:
            return
        last = leading.last_markers.get(marker.producer_id)
        producer = partition.log.producers.get(marker.producer_id)
        is_open = producer is not None and producer.transaction_first_offset is not None
        if last is not None and is_open and (marker.coordinator_epoch, marker.number) <= last:
            what = f"a marker of producer {marker.producer_id} was written already"
            raise refusal(
                Code.INVALID_PRODUCER_EPOCH,
                f"{partition.topic_partition}: {what}, and comes again when another transaction has begun",
            )


class MarkerSends:
    """Sends markers to the leaders of partitions, on the behalf of the coordinators of this broker.

    Args:
        write_here: for partitions that this broker leads.
    """

    def __init__(self, broker: Broker, write_here: WriteMarker) -> None:
        self._broker = broker
        self._write_here = write_here
        self._pending: dict[BrokerId, list[PendingMarker]] = {}
        self._tasks = broker.tasks.branch("markers")

    async def send_to_leader(self, destination: TopicPartition, request: object) -> object:
        """Have the leader of a partition write a marker.

        Returns:
            `Code.NONE` once it is committed, or if the topic was deleted: nobody waits for what is no more.

        Raises:
            KafkaError: one of `FINAL`; or a retriable one: nobody leads, or the leader cannot commit.
            NetworkError: the leader cannot be reached, or refuses without a good reason.
        """
        invariant(isinstance(request, TransactionMarker), "not a marker: {}", request)
        assert isinstance(request, TransactionMarker)
        state = self._broker.image.partition(destination.topic, destination.partition)
        if state is None:
            return Code.NONE
        if state.leader is None:
            raise refusal(Code.LEADER_NOT_AVAILABLE, f"nobody leads {destination}")
        if state.leader == self._broker.broker_id:
            await self._write_here(destination, request, state.leader_epoch)
            return Code.NONE
        future: asyncio.Future[Code] = asyncio.get_running_loop().create_future()
        pending = self._pending.get(state.leader)
        if pending is None:
            pending = self._pending[state.leader] = []
            asyncio.get_running_loop().call_soon(self._flush, state.leader)
        pending.append(PendingMarker(destination, state.leader_epoch, request, future))
        code = await future
        if code in FINAL or Code(code).retriable:
            raise refusal(code, f"broker {state.leader} does not write the marker of {destination}")
        if code:
            raise NetworkError(f"broker {state.leader} refuses the marker of {destination}: {code.name}")
        return code

    async def stop(self) -> None:
        """Send nothing any more."""
        await self._tasks.end()

    def _flush(self, leader: BrokerId) -> None:
        """What the coordinators sent in this turn of the loop goes together."""
        pending = self._pending.pop(leader)
        self._tasks.start(self._send(leader, pending), on_bug=partial(self._on_unanswered, leader, pending))

    def _on_unanswered(self, leader: BrokerId, pending: Sequence[PendingMarker], error: Exception) -> None:
        for *_, future in pending:
            if not future.done():
                future.set_exception(NetworkError(f"broker {leader} has not answered: {error}"))

    async def _send(self, leader: BrokerId, pending: Sequence[PendingMarker]) -> None:
        from tidelog.wire.messages.api_27_write_txn_markers import WriteTxnMarkersResponse

        try:
            connection = await self._broker.replication.peers.connection(leader, REQUEST_CLASS)
            answer = await connection.request(_request(pending), WriteTxnMarkersResponse, timeout_ms=TIMEOUT_MS)
        except TidelogError as error:
            self._on_unanswered(leader, pending, error)
            return
        except asyncio.CancelledError:
            for *_, future in pending:
                future.cancel()
            raise
        codes = {
            (marker.producer_id, topic.name, row.partition_index): row.error_code
            for marker in answer.markers
            for topic in marker.topics
            for row in topic.partitions
        }
        for (topic, index), _, marker, future in pending:
            if not future.done():
                code = codes.get((marker.producer_id, topic, index), Code.UNKNOWN_SERVER_ERROR)
                future.set_result(Code(code))


def _request(pending: Sequence[PendingMarker]) -> WriteTxnMarkersRequest:
    from tidelog.wire.messages.api_27_write_txn_markers import (
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
    )

    rows: dict[TransactionMarker, dict[str, WritableTxnMarkerTopic]] = {}
    for (topic, index), leader_epoch, marker, _ in pending:
        row = rows.setdefault(marker, {}).setdefault(topic, WritableTxnMarkerTopic(topic, [], leader_epochs=[]))
        row.partition_indexes.append(index)
        row.leader_epochs.append(leader_epoch)
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.is_commit,
                topics=list(topics.values()),
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
                number=-1 if marker.number is None else marker.number,
            )
            for marker, topics in rows.items()
        ]
    )
