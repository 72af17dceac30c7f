"""What it costs a node to measure how far groups lag: 1,000 groups that read ten partitions each.

The event loop is busy for so long at each measure; it rests for ten seconds, and a hundred times as long as it was
busy. Once all groups stand where nothing is left to read, once each stands somewhere else in the log, and once more
where none has moved since.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable

from harness import figure, say

from support.clients.wire_client import batch_of
from support.load.group_member import commit_request
from tidelog.io.clock import SystemClock
from tidelog.io.disk import RealDisk
from tidelog.io.executor import ThreadExecutor
from tidelog.io.network import RealNetwork
from tidelog.io.rng import SystemRng
from tidelog.server.api.handlers import api_08_offset_commit
from tidelog.server.groups.group_lags import COST_INVERSE, INTERVAL_SECONDS
from tidelog.server.node import Node
from tidelog.server.settings.config import NodeConfig
from tidelog.wire import ApiKey
from unit.server.test_several_directories import context, create

TOPIC = "read"
GROUPS, PARTITIONS, BATCHES = 1_000, 10, 2_000


async def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        properties = {
            "node.id": "1",
            "process.roles": "broker,controller",
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@127.0.0.1:0",
            "log.dirs": home,
            "log.segment.bytes": str(1 << 20),
            "metrics.listener": "HTTP://127.0.0.1:0",
        }
        node = Node(
            NodeConfig.from_properties(properties),
            disk=RealDisk(),
            network=RealNetwork(),
            clock=SystemClock(),
            rng=SystemRng(),
            executor=ThreadExecutor(),
        )
        await node.start()
        await create(node, TOPIC, PARTITIONS)
        batch = batch_of(b"x" * 1_000)
        for index in range(PARTITIONS):
            partition = node.broker.partition(TOPIC, index)
            for _ in range(BATCHES):
                partition.append(memoryview(bytearray(batch)), acks_all=False, now_ms=node.clock.wall_ms())
        await node.groups.create_topic()
        for name, place in (("nothing is left", 0), ("each elsewhere", 1)):
            for number in range(GROUPS):
                await commit(node, number, BATCHES - place * (1 + number * 7 % (BATCHES - 1)))
            await report(node, name)
        await report(node, "none has moved")
        await node.stop()


async def commit(node: Node, number: int, offset: int) -> None:
    while True:
        request = commit_request(f"group-{number}", {(TOPIC, index): offset for index in range(PARTITIONS)})
        answer = api_08_offset_commit.handle(node, request, context(ApiKey.OFFSET_COMMIT, 8))
        response = await answer if isinstance(answer, Awaitable) else answer
        if not response.topics[0].partitions[0].error_code:
            return
        await asyncio.sleep(0.01)


async def report(node: Node, name: str) -> None:
    lags = node.group_lags
    assert lags is not None
    lags._due_at = 0
    await lags.measure()
    found = lags.measured
    assert len(found.by_topic) == GROUPS, len(found.by_topic)
    assert (found.unknown_records, found.unknown_seconds) == (0, 0)
    rest_seconds = max(INTERVAL_SECONDS, COST_INVERSE * found.busy_seconds)
    say(f"{name}: at most {found.turn_seconds_max * 1000:.1f} ms at once, again after {rest_seconds:.0f} s")
    figure(f"measuring the lag of {GROUPS} groups, {name}", found.busy_seconds * 1000, "ms of a core")


asyncio.run(main())
