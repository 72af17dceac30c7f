"""Where share groups stand in partitions, and how many records they lag behind (KIP-932, KIP-1226).

Share coordinators tell where a group stands, and the leaders of partitions where these end.
Kafka: `GroupCoordinatorService`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.base.errors import KafkaError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.server.broker.broker import Broker
from tidelog.server.groups.partition_ends import PartitionEnds, Place
from tidelog.server.share_state.persister import SharePersister
from tidelog.share.summary import ShareSummary

NOT_KNOWN = -1
PORTION = 500
"""Partitions that are asked about at once: each waits by itself."""


class SharePosition(NamedTuple):
    """Where a group stands in one partition.

    Attributes:
        start: all before it is done; None if the group has not begun, or nobody could tell.
        lag: how many records it has not done; None if it is not known.
        error: why the end of the partition is not known.
    """

    start: Offset | None = None
    leader_epoch: LeaderEpoch = LeaderEpoch(0)
    lag: int | None = None
    error: KafkaError | None = None


class ShareGroupPositions:
    """See the module."""

    def __init__(self, broker: Broker, persister: SharePersister) -> None:
        self._ends = PartitionEnds(broker)
        self._persister = persister

    async def of(self, group_id: str, places: Sequence[Place]) -> dict[Place, SharePosition]:
        """Where a group stands. As in Kafka, what share coordinators do not tell counts as if nothing were kept."""
        found: dict[Place, SharePosition] = {}
        for start in range(0, len(places), PORTION):
            some = places[start : start + PORTION]
            summaries = dict(zip(some, await self._persister.summarize(group_id, some), strict=True))
            ends = await self._ends.of(place for place, one in summaries.items() if _has_lag(one))
            for place, summary in summaries.items():
                found[place] = _position(summary, ends.get(place))
        return found


def _has_lag(summary: ShareSummary | KafkaError) -> bool:
    return (
        isinstance(summary, ShareSummary) and summary.start is not None and summary.delivery_complete_count != NOT_KNOWN
    )


def _position(summary: ShareSummary | KafkaError, end: Offset | KafkaError | None) -> SharePosition:
    if isinstance(summary, KafkaError):
        return SharePosition()
    if isinstance(end, KafkaError):
        return SharePosition(error=end)
    if end is None or summary.start is None:
        return SharePosition(summary.start, summary.leader_epoch)
    lag = end - summary.start - summary.delivery_complete_count
    return SharePosition(summary.start, summary.leader_epoch, lag)
