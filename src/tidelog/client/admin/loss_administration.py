"""How an Admin asks for the account of losses (`base/losses.py`), which Tidelog's brokers keep and Kafka's do not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from tidelog.base.errors import Code, KafkaError, TidelogError, UnsupportedVersionError
from tidelog.base.ids import BrokerId, TopicId, TopicPartition
from tidelog.base.losses import Loss, LossId
from tidelog.base.ports import Buffer
from tidelog.client.admin.group_administration import GroupAdministration
from tidelog.client.cluster import Cluster
from tidelog.client.core.loss_standings import GroupStanding, standing_of
from tidelog.client.core.values import CommittedOffset
from tidelog.client.leader_requests import Leaders
from tidelog.client.refusals import raise_first, refused
from tidelog.net.connection import Connection
from tidelog.wire.messages.api_10000_describe_losses import DescribeLossesRequest, DescribeLossesResponse, LossCursor
from tidelog.wire.messages.api_10001_acknowledge_losses import (
    AcknowledgeLossesRequest,
    AcknowledgeLossesResponse,
    LossToAcknowledge,
)
from tidelog.wire.messages.api_10003_fetch_lost_records import FetchLostRecordsRequest, FetchLostRecordsResponse
from tidelog.wire.messages.api_10004_describe_told_readers import (
    DescribeToldReadersRequest,
    DescribeToldReadersResponse,
)
from tidelog.wire.messages.api_10005_report_resumptions import (
    ReportResumptionsRequest,
    ReportResumptionsResponse,
    ResumptionRow,
)
from tidelog.wire.messages.losses import loss_of

R = TypeVar("R")

LOSSES_PER_REQUEST_MAX = 100
GROUPS_AT_ONCE = 16
RESUMPTIONS_PER_REQUEST_MAX = 1_000


class LossAccount(NamedTuple):
    """The account of losses.

    Attributes:
        losses: the entries that were asked for, the oldest first.
        open_count: entries that await a replica, of all topics.
        closed_count: entries that await nobody.
    """

    losses: tuple[Loss, ...]
    open_count: int
    closed_count: int


class ToldReader(NamedTuple):
    """A reader that a broker told that what it read is gone, or a producer that learnt it from its sequence numbers.

    Attributes:
        producer_id: of a producer whose batch was refused with OUT_OF_ORDER_SEQUENCE_NUMBER; None for a reader.
        leader_epoch: the newest epoch that the reader's branch shares with the log, which ends at `end_offset`.
        has_compared: whether it asked where its epoch ends: it may have read nothing that is gone, as its position is
            its own. Otherwise its position was beyond that.
        times_told: how often; 0 if this broker knows of it by the reader's own word alone.
        last_ms: when it was told last, since 1970; `first_ms` when first.
        position: where it stood, if it went on and said so, as Tidelog's Spark source does; else None, as the next two.
        resumed_offset: where it went on.
        policy: why it went on: `rewind`, `earliest` or `latest`.
    """

    topic_partition: TopicPartition
    topic_id: TopicId
    client_id: str
    host: str
    producer_id: int | None
    broker_id: int
    leader_epoch: int
    end_offset: int
    has_compared: bool
    times_told: int
    first_ms: int
    last_ms: int
    position: int | None = None
    resumed_offset: int | None = None
    policy: str | None = None


class ReaderResumption(NamedTuple):
    """That a reader goes on although what it had read is gone.

    Attributes:
        position: where it stood: all below was read.
        leader_epoch: of the record before that; None if that is not known.
        divergent_offset: from here on what it had read is gone; None if that cannot be told.
        resumed_offset: where it goes on.
        policy: why it goes on, in a word, such as `rewind`.
    """

    topic_partition: TopicPartition
    topic_id: TopicId
    position: int
    leader_epoch: int | None
    divergent_offset: int | None
    resumed_offset: int
    policy: str


class LossReaders(NamedTuple):
    """Who read what was lost, as far as anybody knows.

    Attributes:
        groups: those that committed in the partition, by name.
        told: readers that brokers told, since those brokers started; a reader that commits nothing is known by this
            alone. Producers likewise, if the entry names them, or does not name all that it might.
        unanswered: brokers and groups that could not be asked, and why: there may be more.
    """

    groups: tuple[GroupStanding, ...]
    told: tuple[ToldReader, ...]
    unanswered: tuple[str, ...] = ()


def keeper_of(loss: Loss, broker_id: int | None) -> BrokerId:
    """The broker to ask for lost records: the one that is named, else the one that keeps most.

    Raises:
        KafkaError: RESOURCE_NOT_FOUND; no broker keeps any, as far as the entry says.
    """
    if broker_id is not None:
        return BrokerId(broker_id)
    most = max(loss.cut, key=lambda one: one.kept_size_bytes, default=None)
    if most is None or not most.kept_size_bytes:
        raise KafkaError(
            f"no broker keeps records of loss {loss.name}: none were cut off yet, or they were removed by retention.ms "
            "or by losses.kept.bytes",
            code=Code.RESOURCE_NOT_FOUND,
        )
    return most.broker_id


class LossAdministration:
    """See `AsyncAdmin`, whose methods these are.

    Args:
        groups: tells what groups committed.
        request_timeout_ms: of one request; `cluster` knows how long all attempts may take together.
    """

    def __init__(self, cluster: Cluster, groups: GroupAdministration, *, request_timeout_ms: int) -> None:
        self._cluster = cluster
        self._groups = groups
        self._request_timeout_ms = request_timeout_ms

    async def describe(self, topics: Iterable[str] | None, *, open_only: bool) -> LossAccount:
        names = None if topics is None else sorted(set(topics))

        async def send_request() -> LossAccount:
            found: dict[LossId, Loss] = {}  # a page may come twice, where entries were forgotten meanwhile
            after: list[LossCursor] = []
            connection = await self._cluster.any_broker()
            while True:
                request = DescribeLossesRequest(topics=names, open_only=open_only, after=after)
                response = await self._request(connection, request, DescribeLossesResponse)
                raise_first([refused(response.error_code, "the account of losses", response.error_message)])
                found.update((loss.id, loss) for loss in map(loss_of, response.losses))
                after = response.next
                if not after:
                    return LossAccount(tuple(found.values()), response.open_count, response.closed_count)

        return await self._cluster.retrying("describe losses", send_request)

    async def acknowledge(self, losses: Sequence[Loss], note: str) -> None:
        for start in range(0, len(losses), LOSSES_PER_REQUEST_MAX):
            some = losses[start : start + LOSSES_PER_REQUEST_MAX]

            async def send_request(some: Sequence[Loss] = some) -> None:
                request = AcknowledgeLossesRequest(
                    losses=[LossToAcknowledge(*loss.id) for loss in some],
                    note=note,
                    timeout_ms=self._request_timeout_ms,
                )
                response = await self._request(await self._cluster.any_broker(), request, AcknowledgeLossesResponse)
                raise_first([refused(response.error_code, "the account of losses", response.error_message)])
                raise_first(
                    refused(row.error_code, f"loss {loss.name}", "the account has no such entry")
                    for row, loss in zip(response.results, some, strict=True)
                )

            await self._cluster.retrying("acknowledge losses", send_request)

    async def readers(self, losses: Sequence[Loss]) -> dict[LossId, LossReaders]:
        topics = sorted({loss.topic for loss in losses})
        await self._cluster.retrying("list brokers", lambda: self._cluster.fetch_metadata(topics))
        known = self._cluster.metadata.topics
        present = {name: known[name].topic_id for name in topics if name in known}
        unanswered: list[str] = []
        told = await self._told(topics, unanswered)
        committed = await self._committed(
            sorted({loss.topic_partition for loss in losses if present.get(loss.topic) == loss.topic_id}), unanswered
        )
        return {
            loss.id: LossReaders(
                tuple(
                    GroupStanding(group_id, standing_of(loss, found), found.offset, found.leader_epoch)
                    for group_id, offsets in sorted(committed.items())
                    if present.get(loss.topic) == loss.topic_id
                    and (found := offsets.get(loss.topic_partition)) is not None
                ),
                tuple(
                    one
                    for one in told
                    if one.topic_id == loss.topic_id
                    and one.topic_partition.partition == loss.partition
                    and one.leader_epoch < loss.leader_epoch
                    and (one.producer_id is None or loss.may_name(one.producer_id))
                ),
                tuple(unanswered),
            )
            for loss in losses
        }

    async def _committed(
        self, partitions: list[TopicPartition], unanswered: list[str]
    ) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """What each group committed, by group. A topic that was made anew has other records, and other commits."""
        if not partitions:
            return {}
        try:
            listed = [each.group_id for each in await self._groups.list_groups(()) if each.type != "share"]
        except TidelogError as error:
            unanswered.append(f"the list of groups: {error}")
            return {}
        committed = {}
        for start in range(0, len(listed), GROUPS_AT_ONCE):
            some = listed[start : start + GROUPS_AT_ONCE]
            asked = (self._groups.list_group_offsets(each, partitions) for each in some)
            for group_id, answer in zip(some, await asyncio.gather(*asked, return_exceptions=True), strict=True):
                if isinstance(answer, TidelogError):
                    unanswered.append(f"group {group_id}: {answer}")
                elif isinstance(answer, BaseException):
                    raise answer
                else:
                    committed[group_id] = answer
        return committed

    async def _told(self, topics: list[str], unanswered: list[str]) -> list[ToldReader]:
        """By every broker that is up, who was told longest ago first."""
        told: list[ToldReader] = []
        for broker_id in sorted(self._cluster.metadata.brokers):
            try:
                connection = await self._cluster.broker(broker_id)
                response = await self._request(
                    connection, DescribeToldReadersRequest(topics=topics), DescribeToldReadersResponse
                )
                raise_first([refused(response.error_code, "readers that were told", None)])
            except TidelogError as error:
                unanswered.append(f"broker {broker_id}: {error}")
                continue
            told += (
                ToldReader(
                    TopicPartition(row.topic, row.partition_index),
                    TopicId(row.topic_id),
                    row.client_id,
                    row.host,
                    None if row.producer_id < 0 else row.producer_id,
                    broker_id,
                    *(row.leader_epoch, row.end_offset, row.has_compared, row.count, row.first_ms, row.last_ms),
                    *((row.position, row.resumed_offset, row.policy) if row.resumed_offset >= 0 else ()),
                )
                for row in response.readers
            )
        return sorted(told, key=lambda one: one.last_ms)

    async def report(self, resumptions: Iterable[ReaderResumption], leaders: Leaders) -> None:
        by_partition = {one.topic_partition: one for one in resumptions}

        async def send_request(
            connection: Connection, partitions: list[TopicPartition]
        ) -> dict[TopicPartition, KafkaError | None]:
            for start in range(0, len(partitions), RESUMPTIONS_PER_REQUEST_MAX):
                rows = [_resumption_row(by_partition[key]) for key in partitions[start:][:RESUMPTIONS_PER_REQUEST_MAX]]
                request = ReportResumptionsRequest(resumptions=rows)
                response = await self._request(connection, request, ReportResumptionsResponse)
                raise_first([refused(response.error_code, "resumptions", None)])
            return dict.fromkeys(partitions)

        await leaders.request_all("report resumptions", by_partition, send_request)

    async def fetch_lost(self, loss: Loss, broker_id: BrokerId, position: int) -> Buffer:
        """A page of the batches that a broker keeps, from a position in bytes on; empty at the end."""
        request = FetchLostRecordsRequest(
            topic_id=loss.topic_id,
            partition_index=loss.partition,
            leader_epoch=loss.leader_epoch,
            position=position,
        )

        async def send_request() -> Buffer:
            if broker_id not in self._cluster.metadata.brokers:
                await self._cluster.fetch_metadata([])
            connection = await self._cluster.broker(broker_id)
            response = await self._request(connection, request, FetchLostRecordsResponse)
            raise_first([refused(response.error_code, f"lost records of {loss.name}", response.error_message)])
            return b"" if response.records is None else memoryview(response.records)

        return await self._cluster.retrying(f"fetch lost records from broker {broker_id}", send_request)

    async def _request(self, connection: Connection, request: object, response: type[R]) -> R:
        try:
            return await connection.request(request, response, timeout_ms=self._request_timeout_ms)
        except UnsupportedVersionError as error:
            said = "this broker keeps no account of losses: Apache Kafka has none, and Tidelog had none at first"
            raise UnsupportedVersionError(said) from error


def _resumption_row(one: ReaderResumption) -> ResumptionRow:
    return ResumptionRow(
        one.topic_id,
        one.topic_partition.partition,
        -1 if one.leader_epoch is None else one.leader_epoch,
        one.position,
        -1 if one.divergent_offset is None else one.divergent_offset,
        one.resumed_offset,
        one.policy,
    )
