"""Metadata, where the broker that a client is connected to is cut off from the others and does not know it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from support.fixtures.scripted_broker import HANG_UP, SILENT, ScriptedBroker
from support.fixtures.waiting import until
from tidelog.base.errors import Code, refusal
from tidelog.base.ids import BrokerId, PartitionIndex, TopicPartition
from tidelog.client.cluster import Cluster, real_world
from tidelog.client.coordinators import Coordinators
from tidelog.client.options import AdminConfig
from tidelog.net.address import Address
from tidelog.net.connection import Connection
from tidelog.wire import ApiKey
from tidelog.wire.messages import api_03_metadata as metadata
from tidelog.wire.messages import api_10_find_coordinator as find

SECONDS_MAX = 60.0
PARTITION = TopicPartition("flights", PartitionIndex(0))


class Told(ScriptedBroker):
    """A broker that says who leads the partition.

    Attributes:
        leader: its id and the leader epoch; or what it does in place of an answer.
    """

    def __init__(self, leader: tuple[int, int] | object) -> None:
        super().__init__()
        self.leader = leader
        self.brokers: list[Told] = []
        self.on(ApiKey.METADATA, self._metadata)

    @property
    def times_asked(self) -> int:
        return len(self.messages(ApiKey.METADATA))

    def _metadata(self, request: metadata.MetadataRequest, version: int) -> object:
        if not isinstance(self.leader, tuple):
            return self.leader
        leader_id, leader_epoch = self.leader
        partition = metadata.MetadataResponsePartition(
            partition_index=0, leader_id=leader_id, leader_epoch=leader_epoch, replica_nodes=[0, 1], isr_nodes=[0, 1]
        )
        topic = metadata.MetadataResponseTopic(name="flights", topic_id=UUID(int=1), partitions=[partition])
        brokers = [
            metadata.MetadataResponseBroker(number, "127.0.0.1", one.port) for number, one in enumerate(self.brokers)
        ]
        return metadata.MetadataResponse(brokers=brokers, cluster_id="one", controller_id=0, topics=[topic])


def run(scenario: Callable[[Cluster, Told, Told], Awaitable[None]]) -> None:
    """Of a client that is connected to the first of two brokers."""

    async def main() -> None:
        async with Told((0, 4)) as first, Told((1, 5)) as second, asyncio.timeout(SECONDS_MAX):
            first.brokers = second.brokers = [first, second]
            config = AdminConfig(retry_backoff_ms=5, reconnect_backoff_ms=5)
            cluster = Cluster((Address("127.0.0.1", first.port),), config, real_world())
            cluster.want(["flights"])
            await cluster.refreshed()
            assert leader_of(cluster) == 0
            try:
                await scenario(cluster, first, second)
            finally:
                await cluster.close()

    asyncio.run(main())


def leader_of(cluster: Cluster) -> BrokerId | None:
    view = cluster.metadata.partition(PARTITION)
    return None if view is None else view.leader_id


async def until_known(cluster: Cluster) -> None:
    """As somebody does whom the leader does not answer."""
    while leader_of(cluster) != 1:
        await cluster.refreshed()


def test_who_has_nothing_new_to_say_is_not_asked_again_before_the_others() -> None:
    async def scenario(cluster: Cluster, first: Told, second: Told) -> None:
        asked = first.times_asked
        await until_known(cluster)
        assert first.times_asked == asked + 1
        assert second.times_asked == 1

    run(scenario)


def test_who_says_nothing_is_not_waited_for() -> None:
    """A request takes 30 s to time out."""

    async def scenario(cluster: Cluster, first: Told, second: Told) -> None:
        first.leader = SILENT
        await until_known(cluster)
        assert second.times_asked == 1

    run(scenario)


@pytest.mark.parametrize("is_gone", [False, True])
def test_who_hangs_up_is_not_asked_again_before_the_others(is_gone: bool) -> None:
    async def scenario(cluster: Cluster, first: Told, second: Told) -> None:
        first.leader = HANG_UP
        if is_gone:
            await first.stop()
        await until_known(cluster)
        assert second.times_asked == 1

    run(scenario)


def test_where_all_have_nothing_new_to_say_all_are_asked_again() -> None:
    async def scenario(cluster: Cluster, first: Told, second: Told) -> None:
        second.leader = (0, 4)
        while first.times_asked < 4 or second.times_asked < 4:
            await cluster.refreshed()
        assert leader_of(cluster) == 0
        second.leader = (1, 5)
        await until_known(cluster)

    run(scenario)


def test_a_broker_that_takes_long_to_connect_to_does_not_hold_up_the_next() -> None:
    async def main() -> None:
        async with Told((0, 4)) as silent, Told((0, 4)) as other, asyncio.timeout(SECONDS_MAX):
            silent.on(ApiKey.API_VERSIONS, lambda request, version: SILENT)
            other.brokers = [other]
            addresses = tuple(Address("127.0.0.1", one.port) for one in (silent, other))
            for _ in range(4):  # whom it begins with is drawn
                config = AdminConfig(socket_connection_setup_timeout_ms=3_600_000)
                cluster = Cluster(addresses, config, real_world())
                assert (await cluster.any_broker()).address == addresses[1]
                await cluster.close()

    asyncio.run(main())


def test_while_a_leader_cannot_be_reached_others_are_asked_who_leads() -> None:
    async def scenario(cluster: Cluster, first: Told, second: Told) -> None:
        first.on(ApiKey.API_VERSIONS, lambda request, version: SILENT)
        reaching = asyncio.ensure_future(cluster.reached(BrokerId(0), "another lane"))
        await until(lambda: leader_of(cluster) == 1)
        assert not reaching.done()
        reaching.cancel()

    run(scenario)


def test_whoever_tries_again_does_so_at_once_when_another_leads() -> None:
    async def scenario(cluster: Cluster, first: Told, second: Told) -> None:
        attempts = 0

        async def attempt() -> BrokerId | None:
            nonlocal attempts
            attempts += 1
            await cluster.leader(PARTITION)
            if leader_of(cluster) == 0:
                raise refusal(Code.NOT_LEADER_OR_FOLLOWER, "another leads")
            return leader_of(cluster)

        cluster.backoff = type(cluster.backoff)(60_000, 60_000, real_world().rng)
        asyncio.get_running_loop().call_later(0.05, first.__setattr__, "leader", (1, 5))
        refreshing = asyncio.ensure_future(until_told(cluster, first))
        assert await cluster.retrying("asking", attempt, timeout_ms=50_000) == 1
        assert attempts == 2
        await refreshing

    run(scenario)


async def until_told(cluster: Cluster, first: Told) -> None:
    while leader_of(cluster) != 1:
        await cluster.fetch_metadata(["flights"])
        await asyncio.sleep(0.001)


def test_a_leader_that_is_none_of_the_brokers_is_looked_for_anew() -> None:
    """A broker that had just come back was named as a leader, and not yet as a broker."""

    async def scenario(cluster: Cluster, first: Told, second: Told) -> None:
        first.leader, first.brokers = (1, 5), [first]
        await cluster.refreshed()
        second.leader, first.brokers = (1, 5), [first, second]
        connection = await cluster.retrying("look for the leader", lambda: cluster.leader(PARTITION))
        assert connection.address.port == second.port

    run(scenario)


@pytest.mark.parametrize("said", ["nothing", "not available"])
def test_the_coordinator_is_found_though_the_broker_that_is_asked_first_cannot_say(said: str) -> None:
    """It is cut off from the controller. If it says nothing, it would be waited for until the request times out."""

    async def scenario(cluster: Cluster, first: Told, second: Told) -> None:
        row = find.Coordinator(key="g", error_code=Code.COORDINATOR_NOT_AVAILABLE)
        first.on(
            ApiKey.FIND_COORDINATOR,
            lambda request, version: SILENT if said == "nothing" else find.FindCoordinatorResponse(coordinators=[row]),
        )
        there = find.Coordinator(key="g", node_id=1, host="127.0.0.1", port=second.port)
        second.on(ApiKey.FIND_COORDINATOR, lambda request, version: find.FindCoordinatorResponse(coordinators=[there]))
        coordinators = Coordinators(cluster, find.KEY_TYPE_GROUP, noun="group")

        async def asked(coordinator: BrokerId, connection: Connection) -> BrokerId:
            return coordinator

        assert await coordinators.request("find", "g", asked) == 1
        assert len(first.messages(ApiKey.FIND_COORDINATOR)) == 1

    run(scenario)
