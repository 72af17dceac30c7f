"""What a consumer asks of whom while a broker is silent, and which answers count."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.base.errors import Code
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicId, TopicPartition
from tidelog.client import fetching
from tidelog.client.core.deliveries import Deliveries
from tidelog.client.core.metadata_cache import CachedPartition, MetadataCache
from tidelog.client.core.reader import PartitionReader, Phase
from tidelog.client.core.subscription import Subscription
from tidelog.client.core.values import ResetPolicy
from tidelog.client.fetching import Fetching
from tidelog.client.options import ConsumerConfig
from tidelog.io.clock import SystemClock
from tidelog.wire.messages.api_01_fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from tidelog.wire.primitives import ZERO_UUID

P0 = TopicPartition("t", PartitionIndex(0))
LEADER, NEARBY = BrokerId(1), BrokerId(7)


class ScriptedCluster:
    """Brokers that answer when the test says so.

    Attributes:
        asked: each fetch so far: of whom, and its answer to come.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[BrokerId, asyncio.Future[FetchResponse]]] = []
        self.metadata = SimpleNamespace(brokers={LEADER})
        self.last_error = None

    def on_changes(self, told: object) -> None: ...

    def refresh_soon(self) -> None: ...

    async def close(self) -> None: ...

    async def reached(self, broker_id: BrokerId, request_class: str = "") -> Any:
        async def request(request: object, *_: object, **__: object) -> FetchResponse:
            assert isinstance(request, FetchRequest)
            future: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()
            self.asked.append((broker_id, future))
            return await future

        return SimpleNamespace(request=request, versions=SimpleNamespace(version=lambda *_, **__: 12))


def answer(code: Code) -> FetchResponse:
    row = PartitionData(partition_index=0, error_code=code, high_watermark=-1, records=b"")
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", topic_id=ZERO_UUID, partitions=[row])])


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


def of_nearby(subscription: Subscription) -> PartitionReader:
    """A reader that was sought to offset 100, and is to read from the replica nearby."""
    subscription.assign([P0], MetadataCache(), 0)
    reader = subscription.readers[P0]
    reader.on_metadata(TopicId(ZERO_UUID), CachedPartition(PartitionIndex(0), LEADER, LeaderEpoch(0)), 0)
    reader.seek(Offset(100), None)
    reader.in_flight = reader.generation
    reader.on_preferred(reader.generation, NEARBY, 1 << 62)
    return reader


@pytest.mark.parametrize("late", [Code.OFFSET_OUT_OF_RANGE, Code.NOT_LEADER_OR_FOLLOWER])
def test_what_a_replica_says_late_that_was_given_up_moves_nobody(late: Code, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lacks the offset, as it was away. The leader has been asked by then, and is waited for."""
    monkeypatch.setattr(fetching, "PATIENCE_MS_MIN", 0)
    monkeypatch.setattr(fetching, "SILENT_SECONDS", 0.001)

    async def story() -> None:
        subscription = Subscription(ResetPolicy.LATEST, 1_000, lambda failures: 1)
        reader = of_nearby(subscription)
        cluster: Any = ScriptedCluster()
        config = ConsumerConfig(fetch_max_wait_ms=0)
        consumer = Fetching(config, subscription, Deliveries(subscription), cluster, SystemClock())
        consumer.pump_soon()
        await until(lambda: len(cluster.asked) == 2)
        assert [broker_id for broker_id, _ in cluster.asked] == [NEARBY, LEADER]
        cluster.asked[0][1].set_result(answer(late))
        for _ in range(20):
            await asyncio.sleep(0)
        assert reader.phase is Phase.FETCHING
        assert not reader.is_idle
        await consumer.close()

    asyncio.run(story())
