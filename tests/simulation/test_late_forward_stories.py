"""A broker's connection to the controller ends for the broker alone, and what it sent arrives a second later."""

from __future__ import annotations

import asyncio

from support.nodes.cluster_stage import Stage, tell
from tidelog.base.errors import Code
from tidelog.base.ids import BrokerId
from tidelog.metadata import ResourceType
from tidelog.net.address import parse_address
from tidelog.net.connection import ConnectionSettings, open_connection
from tidelog.sim.faults.cluster_fault_injector import CLIENT
from tidelog.wire.messages.api_44_incremental_alter_configs import (
    OPERATION_SET,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

KEY = "consumer.session.timeout.ms"
LATE_SECONDS = 1.0
TIMEOUT_MS = 10_000


def lose_connection_of(stage: Stage, value: str) -> None:
    """The broker that forwards this value first takes its connection for lost; the controller gets it late."""
    network = stage.world.network
    tell_trace, is_next = network.tell, False

    def on_sent(event: str, data: bytes) -> None:
        nonlocal is_next
        tell_trace(event, data)
        if value.encode() in data and b"broker-" in data:
            network.tell, is_next = tell_trace, True  # type: ignore[method-assign]

    def draws_half_reset() -> bool:
        nonlocal is_next
        drawn, is_next = is_next, False
        return drawn

    network.tell, network.draws_half_reset = on_sent, draws_half_reset  # type: ignore[method-assign]
    network.late_seconds = lambda: LATE_SECONDS  # type: ignore[method-assign]


async def change(stage: Stage, number: int, value: str) -> None:
    """At this node."""
    address = parse_address(stage.nodes[BrokerId(number)].bootstrap)
    connection = await open_connection(
        stage.world.client_world(CLIENT).network, address, ConnectionSettings("an operator")
    )
    resource = AlterConfigsResource(ResourceType.GROUP, "g", [AlterableConfig(KEY, OPERATION_SET, value)])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    answer = await connection.request(request, IncrementalAlterConfigsResponse, timeout_ms=TIMEOUT_MS)
    assert [row.error_code for row in answer.responses] == [Code.NONE]
    connection.close()


def test_what_a_broker_forwarded_twice_undoes_no_later_change_of_another() -> None:
    async def story(stage: Stage) -> None:
        first, second = (int(number) for number in stage.nodes if number != stage.controller)
        lose_connection_of(stage, "45026")
        begun = asyncio.get_running_loop().time()
        await change(stage, first, "45026")
        await change(stage, second, "45027")
        assert asyncio.get_running_loop().time() < begun + LATE_SECONDS
        await asyncio.sleep(2 * LATE_SECONDS)
        assert stage.recorder.latest.group_configs("g") == {KEY: "45027"}

    tell(story)
