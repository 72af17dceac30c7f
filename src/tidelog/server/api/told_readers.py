"""Which readers this broker has told that what they read is gone, and which producers that what they wrote may be.

Fetch carries no group, so a reader is known by its client id and its host. What a group committed says more. A producer
is told by its sequence numbers: of a batch that does not follow what the log has of it.

Counterpart in Kafka: none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, ProducerId, TopicId, TopicPartition

READERS_MAX = 10_000
"""Rows that are remembered; of more, those go that were told longest ago."""
READERS_PER_HOST_MAX = 1_000
"""So that no stranger makes this broker forget others."""
CLIENT_ID_LENGTH_MAX = 200


_Key = tuple[TopicId, PartitionIndex, str, str, ProducerId | None]


class ReaderName(NamedTuple):
    """What is known of whoever fetches, or produces."""

    client_id: str
    host: str


@dataclass(slots=True)
class ToldReader:
    """A reader of one partition, or a producer.

    Attributes:
        host: where it is.
        producer_id: whose batch was refused, as out of order; None for a reader.
        leader_epoch: the largest of this log up to that of the reader's last record; and `end_offset`, where it ends:
            so much of what was read is there.
        has_compared: whether it asked where its epoch ends (OffsetForLeaderEpoch), last. Where its position is, it
            alone knows then: it may have read nothing that is gone.
        count: how often it was told.
        first_ms: when it was told first, since 1970.
        last_ms: when it was told last.
    """

    topic_partition: TopicPartition
    topic_id: TopicId
    client_id: str
    host: str
    producer_id: ProducerId | None
    leader_epoch: LeaderEpoch
    end_offset: Offset
    has_compared: bool
    count: int
    first_ms: int
    last_ms: int


class ToldReaders:
    """See the module. To be used on one event loop."""

    def __init__(self) -> None:
        self._rows: dict[_Key, ToldReader] = {}  # told last comes last
        self._by_host: dict[str, dict[_Key, None]] = {}  # likewise

    def __iter__(self) -> Iterator[ToldReader]:
        return iter(self._rows.values())

    def note(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        reader: ReaderName,
        diverging: tuple[LeaderEpoch, Offset],
        now_ms: int,
        *,
        has_compared: bool = False,
        producer_id: ProducerId | None = None,
    ) -> None:
        """It was answered that its position is none of this log's, or where its epoch ends, or that its batch is out of
        order.
        """
        client_id, host = reader.client_id[:CLIENT_ID_LENGTH_MAX], reader.host
        key = topic_id, topic_partition.partition, client_id, host, producer_id
        row = self._rows.pop(key, None)
        of_host = self._by_host.setdefault(host, {})
        if row is None:
            names = topic_partition, topic_id, client_id, host, producer_id
            row = ToldReader(*names, *diverging, has_compared, 0, now_ms, now_ms)
        of_host.pop(key, None)
        of_host[key] = None
        row.leader_epoch, row.end_offset = diverging
        row.has_compared = has_compared
        row.count += 1
        row.last_ms = now_ms
        self._rows[key] = row
        if len(of_host) > READERS_PER_HOST_MAX:
            self._forget(next(iter(of_host)))
        elif len(self._rows) > READERS_MAX:
            self._forget(next(iter(self._rows)))

    def _forget(self, key: _Key) -> None:
        del self._rows[key]
        of_host = self._by_host[key[3]]
        del of_host[key]
        if not of_host:
            del self._by_host[key[3]]
