"""A machine that stops without a word, as by SIGSTOP or without power: its connections stay open, and carry nothing.

Only the end of its session tells the others; whoever waits for its answer is told nothing. Clients turn to the next
leader once there is one, and not at the end of `request.timeout.ms`.
"""

from __future__ import annotations

import asyncio

import pytest

from support.nodes.cluster_stage import PARTITION, Stage, tell
from tidelog.base.ids import BrokerId
from tidelog.client.options import Isolation
from tidelog.sim.faults.cluster_fault_injector import CLIENT
from tidelog.sim.runs.cluster_plan import machine_of
from tidelog.sim.runs.workload import TOPIC

SESSION_MS = 2_000
ELECTED_SECONDS_MAX = 2.6
"""A heartbeat may have come just before; then the session ends, and the next leader is known everywhere."""
NOTICED_SECONDS_MAX = 1.0
"""A client asks every half second who leads, while somebody is silent."""


def fall_silent(stage: Stage, number: int) -> None:
    """Nothing reaches a node any more, and nothing comes from it."""
    stage.part([number], [other for other in stage.nodes if other != number])
    stage.world.network.partition(machine_of(BrokerId(number)), CLIENT)


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
def test_clients_turn_to_the_successor_of_a_leader_that_fell_silent(isolation_level: Isolation) -> None:
    async def story(stage: Stage) -> None:
        await stage.make_topic(1, 2, 3)
        await stage.until_settled()
        loop = asyncio.get_running_loop()
        factory = stage.factory_at(2, 3)
        async with (
            factory.consumer(auto_offset_reset="earliest", isolation_level=isolation_level) as consumer,
            factory.producer() as producer,
        ):
            consumer.assign([PARTITION])
            await (await producer.send(TOPIC, b"before"))
            while not await consumer.poll(timeout_ms=100):
                pass
            await asyncio.sleep(1.3)  # its fetch waits at the end, as it mostly does
            fell_silent = loop.time()
            fall_silent(stage, 1)
            acknowledged = await producer.send(TOPIC, b"after")
            await acknowledged
            written = loop.time() - fell_silent
            while not await consumer.poll(timeout_ms=100):
                pass
            read = loop.time() - fell_silent
            assert stage.leader != 1
            assert written < ELECTED_SECONDS_MAX + NOTICED_SECONDS_MAX
            assert read < ELECTED_SECONDS_MAX + NOTICED_SECONDS_MAX
        stage.heal()
        await stage.until_settled()

    tell(story, session_ms=SESSION_MS)
