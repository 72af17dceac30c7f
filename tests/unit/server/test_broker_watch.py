"""The active controller fences whoever is silent for a session; a controller that slept blames nobody for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import BrokerEpoch, BrokerId, Offset
from tidelog.controller import BrokerToRegister, Heartbeat, TopicToCreate
from tidelog.io.clock import SystemClock
from tidelog.io.executor import InlineExecutor
from tidelog.io.network import RealNetwork
from tidelog.io.rng import SystemRng
from tidelog.metadata import RegisteredEndpoint
from tidelog.metadata.features import own_features
from tidelog.server.node import Node
from tidelog.server.settings.config import NodeConfig

SECONDS_MAX = 60.0
US, OTHER = BrokerId(1), BrokerId(2)


class JumpingClock(SystemClock):
    """The machine's, which the test can set forward, as when a laptop wakes up."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


def run(scenario: Callable[[Node, JumpingClock], Awaitable[None]], **settings: str) -> None:
    async def main() -> None:
        properties = {
            "node.id": str(US),
            "process.roles": "broker,controller",
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{US}@127.0.0.1:0",
            "log.dirs": "logs",
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        clock = JumpingClock()
        node = Node(
            NodeConfig.from_properties(properties),
            disk=MemoryDisk(),
            network=RealNetwork(),
            clock=clock,
            rng=SystemRng(),
            executor=InlineExecutor(),
        )
        async with asyncio.timeout(SECONDS_MAX):
            await node.start()
            await scenario(node, clock)
            await node.stop()

    asyncio.run(main())


async def join(node: Node, broker_id: BrokerId) -> BrokerEpoch:
    """A broker that registers and is let in, and is not heard of again."""
    controller, sessions = node.controller, node.broker_watch.sessions
    broker = BrokerToRegister(
        broker_id=broker_id,
        incarnation_id=UUID(int=broker_id),
        endpoints=(RegisteredEndpoint("PLAINTEXT", "127.0.0.1", 9),),
        features=own_features(),
    )
    registered = await controller.request(
        lambda state: state.decide_register_broker(
            broker, next_offset=controller.journal.next_offset, sessions=sessions, now_ms=node.clock.now_ms()
        )
    )
    epoch: BrokerEpoch = registered.broker_epoch
    heartbeat = Heartbeat(broker_id, epoch, Offset(epoch))
    await controller.request(
        lambda state: state.decide_heartbeat(
            heartbeat, sessions, next_offset=controller.journal.next_offset, now_ms=node.clock.now_ms()
        )
    )
    await node.caught_up()
    assert not node.image.brokers[broker_id].is_fenced
    return epoch


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_who_is_silent_for_a_session_is_fenced_and_who_is_heard_of_is_not() -> None:
    async def scenario(node: Node, _: JumpingClock) -> None:
        await join(node, OTHER)
        await until(lambda: node.image.brokers[OTHER].is_fenced)
        assert not node.image.brokers[US].is_fenced

    run(scenario, broker_session_timeout_ms="2000", broker_heartbeat_interval_ms="20")


def test_a_controller_that_did_nothing_for_long_gives_everybody_another_session() -> None:
    async def scenario(node: Node, clock: JumpingClock) -> None:
        await node.create_topics([TopicToCreate("flights", 1, 1)])
        before = node.broker_watch.sessions
        clock.ahead_ms += 3_600_000
        await until(lambda: node.broker_watch.sessions is not before)
        leadership = node.image.topics_by_name["flights"].partitions[0]
        assert (leadership.leader, leadership.leader_epoch) == (US, 0)
        assert not node.image.brokers[US].is_fenced

    run(scenario, broker_session_timeout_ms="60000", broker_heartbeat_interval_ms="1000000")


def test_only_the_active_controller_watches() -> None:
    async def scenario(node: Node, _: JumpingClock) -> None:
        assert node.broker_watch.sessions is node.broker_watch.sessions
        await node.quorum.resign()
        with pytest.raises(KafkaError) as refused:
            node.broker_watch.sessions.next_deadline_ms()
        assert refused.value.code == Code.NOT_CONTROLLER

    run(scenario)
