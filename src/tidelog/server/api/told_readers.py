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
POLICY_LENGTH_MAX = 20


_Key = tuple[TopicId, PartitionIndex, str, str, ProducerId | None]


class ReaderName(NamedTuple):
    """What is known of whoever fetches, or produces."""

    client_id: str
    host: str


class Resumption(NamedTuple):
    """That a reader went on although what it had read is gone. It says so itself.

    Attributes:
        position: where it stood: all below was read.
        resumed_offset: where it went on.
        policy: why it went on, in a word.
    """

    position: Offset
    resumed_offset: Offset
    policy: str


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
        resumption: what it said last of where it went on. A reader that says so was told somehow: by another broker,
            or before this one started. Its epoch and `end_offset` are its own words then.
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
    resumption: Resumption | None = None


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
        row = self._last_told(
            topic_partition, topic_id, reader, diverging, now_ms, has_compared=has_compared, producer_id=producer_id
        )
        row.leader_epoch, row.end_offset = diverging
        row.has_compared = has_compared
        row.count += 1

    def note_resumption(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        reader: ReaderName,
        diverging: tuple[LeaderEpoch, Offset],
        resumption: Resumption,
        *,
        now_ms: int,
    ) -> None:
        """It says that it goes on, and where its epoch ends as it was told."""
        row = self._last_told(topic_partition, topic_id, reader, diverging, now_ms, has_compared=True)
        row.resumption = resumption._replace(policy=resumption.policy[:POLICY_LENGTH_MAX])

    def _last_told(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        reader: ReaderName,
        diverging: tuple[LeaderEpoch, Offset],
        now_ms: int,
        *,
        has_compared: bool,
        producer_id: ProducerId | None = None,
    ) -> ToldReader:
        """Its row, which is the last to be forgotten now."""
        client_id, host = reader.client_id[:CLIENT_ID_LENGTH_MAX], reader.host
        key = topic_id, topic_partition.partition, client_id, host, producer_id
        row = self._rows.pop(key, None)
        of_host = self._by_host.setdefault(host, {})
        if row is None:
            names = topic_partition, topic_id, client_id, host, producer_id
            row = ToldReader(*names, *diverging, has_compared, 0, now_ms, now_ms)
        of_host.pop(key, None)
        of_host[key] = None
        row.last_ms = now_ms
        self._rows[key] = row
        if len(of_host) > READERS_PER_HOST_MAX:
            self._forget(next(iter(of_host)))
        elif len(self._rows) > READERS_MAX:
            self._forget(next(iter(self._rows)))
        return row

    def _forget(self, key: _Key) -> None:
        del self._rows[key]
        of_host = self._by_host[key[3]]
        del of_host[key]
        if not of_host:
            del self._by_host[key[3]]
