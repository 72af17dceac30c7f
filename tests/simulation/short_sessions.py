"""Busy hours of a cluster whose brokers have sessions of two seconds: is one that lives ever taken for dead?

Three nodes on a virtual clock. Nothing ends or stops; but packets are lost and sent again by TCP, after 0.2 s and twice
as long each time; some take ten times as long as others; and the disk of each node stalls. Producers with acks=all
write meanwhile. What a busy processor does to a node is not part of this: steps take no time here.

python tests/simulation/short_sessions.py [--hours=1] [--session=2000] [--loss=0.01] [--seed=1]

It ends with status 1 if a broker was fenced.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from dataclasses import dataclass, replace
from random import Random

from support.nodes.cluster_stage import PLAN, Stage
from tidelog.base.errors import TidelogError
from tidelog.base.ids import BrokerId, PartitionIndex
from tidelog.client.admin.descriptions import NewTopic
from tidelog.sim.runs.cluster_views import running
from tidelog.sim.runs.workload import TOPIC
from tidelog.sim.world.network import NetworkFaults
from tidelog.sim.world.world import SimulatedWorld

PRODUCERS = 2
PAUSE_SECONDS = 0.5
"""Between two records of a producer, on average."""
STALL_RATE, STALL_MS_MAX = 0.01, 1_000


@dataclass(frozen=True, slots=True)
class Busy:
    """What came of it.

    Attributes:
        seconds: of virtual time.
        fenced: brokers that were fenced, each time.
        elected: changes of the partition's leader.
        controllers: elections of the quorum's leader.
        written: records that were acknowledged.
        injected: packets lost, and so on.
    """

    seconds: float
    fenced: int
    elected: int
    controllers: int
    written: int
    injected: Counter[str]


def run_busy(seconds: float, *, seed: int = 1, session_ms: int = 2_000, loss_rate: float = 0.01) -> Busy:
    """Let three nodes be busy for so long, of virtual time."""
    with SimulatedWorld(seed) as world:
        plan = replace(PLAN, session_ms=session_ms, lag_ms_max=10_000)
        stage = Stage(world, plan)
        random = Random(seed)
        written = 0

        async def write(number: int) -> None:
            nonlocal written
            async with stage.factory.producer() as producer:
                while True:
                    try:
                        await (await producer.send(TOPIC, b"of %d" % number))
                        written += 1
                    except TidelogError:
                        pass
                    await asyncio.sleep(2 * PAUSE_SECONDS * random.random())

        async def play() -> Busy:
            await stage.start()
            async with stage.factory.admin() as admin:
                await admin.create_topics([NewTopic(TOPIC, replica_assignments={0: [1, 2, 3]})])
            watch = Watch(stage)
            world.network.faults = NetworkFaults(loss_rate=loss_rate, straggle_rate=0.05, delay_ms_max=5.0)
            for node in stage.nodes.values():
                faults = node.machine.executor.faults
                faults.stall_rate, faults.stall_ms_max = STALL_RATE, STALL_MS_MAX
            writing = [asyncio.create_task(write(number)) for number in range(PRODUCERS)]
            for _ in range(round(seconds * 10)):
                await asyncio.sleep(0.1)
                watch.look()
            for task in writing:
                assert not task.done(), task
                task.cancel()
            await asyncio.wait(writing)
            return Busy(seconds, watch.fenced, watch.elected, watch.controllers, written, world.network.injected)

        return world.run(play(), limit_seconds=seconds + 600)


class Watch:
    """Counts changes of what is committed."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._leader_epoch = 0
        self._fenced: set[BrokerId] = set()
        self._controller = stage.controller
        self.fenced = self.elected = self.controllers = 0

    def look(self) -> None:
        """Ten times a second: nobody is let in again as quickly as that."""
        stage = self._stage
        images = [found.broker.image for found in map(running, stage.nodes.values()) if found is not None]
        image = max(images, key=lambda one: one.last_offset or -1)
        fenced = {broker_id for broker_id, one in image.brokers.items() if one.is_fenced}
        self.fenced += len(fenced - self._fenced)
        self._fenced = fenced
        state = image.partition(TOPIC, PartitionIndex(0))
        if state is not None and state.leader_epoch != self._leader_epoch:
            self.elected += 1
            self._leader_epoch = state.leader_epoch
        if stage.controller not in (0, self._controller):
            self.controllers += 1
            self._controller = stage.controller


def option(name: str, default: float) -> float:
    return next((float(one.partition("=")[2]) for one in sys.argv[1:] if one.startswith(f"--{name}=")), default)


def main() -> None:
    found = run_busy(
        option("hours", 1.0) * 3600,
        seed=int(option("seed", 1)),
        session_ms=int(option("session", 2_000)),
        loss_rate=option("loss", 0.01),
    )
    print(
        f"{found.seconds / 3600:.2f} h: {found.fenced} fenced, {found.elected} times another leader, "
        f"{found.controllers} times another controller, {found.written} records written; {dict(found.injected)}"
    )
    sys.exit(1 if found.fenced else 0)


if __name__ == "__main__":
    main()
