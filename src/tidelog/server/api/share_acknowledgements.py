"""What the handlers of ShareFetch and ShareAcknowledge do alike.

Kafka: `KafkaApis.handleShareFetchRequest`, `handleShareAcknowledgeRequest`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar
from uuid import UUID

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ports import Executor
from tidelog.metadata import MetadataImage
from tidelog.metadata.features import SHARE_VERSION, SHARE_VERSION_SERVED
from tidelog.server.api.leader_hints import WRONG_LEADER, leader_of
from tidelog.server.api.request_context import code_of
from tidelog.server.api.rights import ReadableTopics
from tidelog.server.transport.turns import TURN_SIZE
from tidelog.share import AcknowledgedRecords, check_acknowledged
from tidelog.wire.messages.api_78_share_fetch import ShareAcknowledgementBatch, ShareFetchLeader

if TYPE_CHECKING:
    from tidelog.server.share_fetching.share_fetching import ShareFetching
    from tidelog.server.share_fetching.share_sessions import PartitionId


ROWS_MAX = 200
"""Of an answer that is written on the event loop: a longer one is written on another thread."""


class NamedPartition(Protocol):
    """A partition that a request names, and what it acknowledges of it."""

    @property
    def partition_index(self) -> int: ...
    @property
    def acknowledgement_batches(self) -> list[ShareAcknowledgementBatch]: ...


P_co = TypeVar("P_co", covariant=True)


class OfTopic(Protocol[P_co]):
    """A topic that a request names."""

    @property
    def topic_id(self) -> UUID: ...
    @property
    def partitions(self) -> Sequence[P_co]: ...


async def portions(topics: Iterable[OfTopic[P_co]]) -> AsyncGenerator[tuple[UUID, Sequence[P_co]], None]:
    """The partitions that a request names, topic by topic, with turns for others in between."""
    count = 0
    for topic in topics:
        for start in range(0, len(topic.partitions), TURN_SIZE):
            portion = topic.partitions[start : start + TURN_SIZE]
            yield topic.topic_id, portion
            count += 1 + len(portion)
            if count >= TURN_SIZE:
                count = 0
                await asyncio.sleep(0)


def check_served(image: MetadataImage, group_id: str | None, member_id: str | None) -> tuple[str, str]:
    """Return the group and the member, if they are served.

    Raises:
        KafkaError: UNSUPPORTED_VERSION: the cluster does not have share groups. INVALID_REQUEST.
    """
    if image.features.get(SHARE_VERSION, 0) < SHARE_VERSION_SERVED:
        raise refusal(
            Code.UNSUPPORTED_VERSION,
            f"share groups are served from {SHARE_VERSION} {SHARE_VERSION_SERVED} on: upgrade the feature",
        )
    if not group_id or not member_id:
        raise refusal(Code.INVALID_REQUEST, "the request names no group, or no member of it")
    return group_id, member_id


def _acknowledged(rows: list[ShareAcknowledgementBatch], *, may_renew: bool) -> list[AcknowledgedRecords]:
    batches = [AcknowledgedRecords(row.first_offset, row.last_offset, row.acknowledge_types) for row in rows]
    check_acknowledged(batches, is_renewal_allowed=may_renew)
    return batches


class Acknowledgements:
    """What one request acknowledges, partition by partition.

    Args:
        readable: the topics that the member may read; None for all.

    Attributes:
        errors: what became of each; None where it is kept.
        leaders: whom those are told of that asked the wrong broker.
    """

    def __init__(
        self,
        fetching: ShareFetching,
        executor: Executor,
        group_id: str,
        member_id: str,
        *,
        is_renewing: bool,
        readable: ReadableTopics | None = None,
    ) -> None:
        self.errors: dict[PartitionId, tuple[Code, str | None]] = {}
        self.leaders: list[int] = []
        self._fetching = fetching
        self._executor = executor
        self._group_id = group_id
        self._member_id = member_id
        self._is_renewing = is_renewing
        self._readable = readable
        self._waiting: dict[PartitionId, asyncio.Future[Code]] = {}
        self._count = 0

    @property
    def is_done(self) -> bool:
        return not self._waiting

    async def add(self, topics: Iterable[OfTopic[NamedPartition]]) -> None:
        """Take in what is said of partitions."""
        async for topic_id, partitions in portions(topics):
            for one in partitions:
                if one.acknowledgement_batches:
                    await self._add(topic_id, one)

    async def _add(self, topic_id: UUID, one: NamedPartition) -> None:
        key = topic_id, one.partition_index
        self._count += 1 + len(one.acknowledgement_batches)
        if self._count > TURN_SIZE:
            self._count = 0
            await asyncio.sleep(0)
        try:
            if key in self.errors:
                raise refusal(Code.INVALID_REQUEST, "the request names this partition more than once")
            if self._readable is not None:
                self._readable.check(topic_id)
            self.errors[key] = (Code.NONE, None)
            batches = await self._understood(one.acknowledgement_batches)
            self._waiting[key] = self._fetching.acknowledge(self._group_id, self._member_id, key, batches)
        except KafkaError as error:
            self.errors[key] = (code_of(error, f"{self._group_id} {topic_id}-{one.partition_index}"), str(error))

    async def _understood(self, rows: list[ShareAcknowledgementBatch]) -> list[AcknowledgedRecords]:
        """What is acknowledged of a partition. Raises KafkaError: INVALID_REQUEST."""
        may_renew = self._is_renewing and self._fetching.settings_of(self._group_id).may_renew
        if len(rows) <= TURN_SIZE:
            return _acknowledged(rows, may_renew=may_renew)
        return await self._executor.compute(partial(_acknowledged, rows, may_renew=may_renew))

    async def kept(self) -> None:
        """Return once it is known of each whether it is kept."""
        for key, future in self._waiting.items():
            code = future.result() if future.done() else await future
            if code != Code.NONE:
                self.errors[key] = (code, code.meaning)
        self._waiting.clear()

    def leader_for(self, key: PartitionId) -> ShareFetchLeader | None:
        """Who leads, where the member asked the wrong broker."""
        return leader_hint(self._fetching.broker.image, key, self.errors[key][0], self.leaders)


def leader_hint(image: MetadataImage, key: PartitionId, code: Code, leaders: list[int]) -> ShareFetchLeader | None:
    """Who leads, where an error says that another broker is to be asked; it is added to `leaders`."""
    if code not in WRONG_LEADER:
        return None
    leader_id, leader_epoch = leader_of(image, *key)
    leaders.append(leader_id)
    return ShareFetchLeader(leader_id=leader_id, leader_epoch=leader_epoch)
