"""One run from one seed: things go wrong for a while and nothing may break; then all heals, and must come to its end.

    report = run_seed(7)
    assert not report.broken

What goes wrong is drawn before the run begins; `only` takes a part of it, which is how a failure is made short.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from tidelog.client.factory import AsyncFactory
from tidelog.sim.faults import MS_PER_MINUTE, Fault, draw_faults
from tidelog.sim.loop import StuckError
from tidelog.sim.one_node import HurtNode
from tidelog.sim.own_bugs import noting_own_bugs, words_of
from tidelog.sim.replicas.run import run_replicas
from tidelog.sim.report import Report
from tidelog.sim.witness import InvariantBrokenInRunError
from tidelog.sim.workload import Plan, Workload, draw_plan
from tidelog.sim.world import SimulatedWorld

MINUTES = 1.0
"""Of virtual time, in which things go wrong."""
HEALED_SECONDS_MAX = 240.0
"""Of virtual time, in which everything that was begun must come to its end once nothing is in the way any more."""
LIMIT_SECONDS_BESIDE = 7_200.0


def run_seed(seed: int, *, nodes: int = 1, minutes: float = MINUTES, only: Collection[int] | None = None) -> Report:
    """Run one seed.

    Args:
        seed: what everything random is drawn from.
        nodes: 1 is a production node with its clients; more are replica machines, joined by a controller.
        minutes: of virtual time, in which things go wrong.
        only: places in the report's `schedule` of what goes wrong; None for all of it.
    """
    if nodes > 1:
        return run_replicas(seed, nodes=nodes, minutes=minutes, only=only)
    with SimulatedWorld(seed) as world:
        story = OneNodeStory(world, draw_plan(world.rng.stream("plan")))
        faults = draw_faults(world.rng.stream("faults"), minutes)
        return story.run(minutes, faults, only)


class OneNodeStory:
    """A production node and its clients, from the first start to the last stop.

    Args:
        world: for nothing else.
        plan: what the clients do.
    """

    def __init__(self, world: SimulatedWorld, plan: Plan) -> None:
        self._world = world
        self._plan = plan
        self._node = HurtNode(world, plan)
        self.witness = self._node.witness
        factory = AsyncFactory(self._node.bootstrap, world=world.client_world("client"))
        self._workload = Workload(factory, plan, world.rng.stream("workload"), self.witness)

    def run(self, minutes: float, faults: list[Fault], only: Collection[int] | None = None) -> Report:
        """Run it to its end, or to the first thing that breaks."""
        world, witness = self._world, self.witness
        left = [fault for place, fault in enumerate(faults) if only is None or place in only]
        world.loop.after_step = witness.after_step
        with noting_own_bugs() as bugs:
            try:
                world.run(self._tell(minutes, left), limit_seconds=minutes * 60 + LIMIT_SECONDS_BESIDE)
            except InvariantBrokenInRunError:
                pass  # the witness knows more
            except StuckError as error:
                witness.expect(False, "Progress", str(error))
            except Exception as error:  # a callback of the code under test failed
                witness.expect(False, "OwnInvariant", words_of(error))
            finally:
                world.loop.after_step = None
        witness.expect(not bugs.told, "OwnInvariant", "; ".join(bugs.told[:1]))
        return Report(
            seed=world.seed,
            nodes=1,
            minutes=minutes,
            virtual_seconds=world.elapsed_seconds,
            events=world.loop.events,
            faults=dict(self._node.injected()),
            checks=dict(sorted(witness.checks.items())),
            digest=world.trace.digest,
            broken=tuple(map(str, witness.broken)),
            schedule=tuple(map(str, faults)),
        )

    async def _tell(self, minutes: float, faults: list[Fault]) -> None:
        node = self._node
        await node.start()
        await self._workload.prepare()
        loop, started = self._world.loop, self._world.loop.time()
        for fault in faults:
            node.begin(fault)
        self._workload.start()
        for fault in faults:
            await asyncio.sleep(max(started + fault.at_ms / 1000 - loop.time(), 0.0))
            await node.suffer(fault)
        await asyncio.sleep(max(started + minutes * MS_PER_MINUTE / 1000 - loop.time(), 0.0))
        await node.heal()
        try:
            async with asyncio.timeout(HEALED_SECONDS_MAX):
                await self._workload.finish()
        except TimeoutError:
            self.witness.check_books()
            waits_for = f"{HEALED_SECONDS_MAX:.0f} s after the healing there are {self._workload.waits_for()}"
            self.witness.expect(False, "Progress", waits_for)
            return
        self.witness.expect(True, "Progress", "")
        self.witness.check_books()
        await node.stop()
