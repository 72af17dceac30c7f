"""How an Admin asks for the account of losses (`base/losses.py`), which Tidelog's brokers keep and Kafka's do not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from tidelog.base.errors import UnsupportedVersionError
from tidelog.base.losses import Loss
from tidelog.client.cluster import Cluster
from tidelog.client.refusals import raise_first, refused
from tidelog.net.connection import Connection
from tidelog.wire.messages.api_10000_describe_losses import DescribeLossesRequest, DescribeLossesResponse, LossCursor
from tidelog.wire.messages.api_10001_acknowledge_losses import (
    AcknowledgeLossesRequest,
    AcknowledgeLossesResponse,
    LossToAcknowledge,
)
from tidelog.wire.messages.losses import loss_of

R = TypeVar("R")

LOSSES_PER_REQUEST_MAX = 1_000


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


class LossAdministration:
    """See `AsyncAdmin`, whose methods these are.

    Args:
        request_timeout_ms: of one request; `cluster` knows how long all attempts may take together.
    """

    def __init__(self, cluster: Cluster, *, request_timeout_ms: int) -> None:
        self._cluster = cluster
        self._request_timeout_ms = request_timeout_ms

    async def describe(self, topics: Iterable[str] | None, *, open_only: bool) -> LossAccount:
        names = None if topics is None else sorted(set(topics))

        async def send_request() -> LossAccount:
            found: list[Loss] = []
            after: list[LossCursor] = []
            connection = await self._cluster.any_broker()
            while True:
                request = DescribeLossesRequest(topics=names, open_only=open_only, after=after)
                response = await self._request(connection, request, DescribeLossesResponse)
                raise_first([refused(response.error_code, "the account of losses", response.error_message)])
                found += map(loss_of, response.losses)
                if not response.has_more or not response.losses:
                    return LossAccount(tuple(found), response.open_count, response.closed_count)
                last = response.losses[-1]
                after = [LossCursor(last.topic_id, last.partition_index, last.leader_epoch)]

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

    async def _request(self, connection: Connection, request: object, response: type[R]) -> R:
        try:
            return await connection.request(request, response, timeout_ms=self._request_timeout_ms)
        except UnsupportedVersionError as error:
            said = "this broker keeps no account of losses: Apache Kafka has none, and Tidelog had none at first"
            raise UnsupportedVersionError(said) from error
