"""One run of several nodes from one seed: things go wrong for a while and nothing may break; then all heals, and every
replica must be in sync, every consumer at the end, and a producer be served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from tidelog.base.errors import TidelogError
from tidelog.base.ids import BrokerId
from tidelog.metadata.image import PartitionImage
from tidelog.sim.loop import StuckError
from tidelog.sim.own_bugs import words_of
from tidelog.sim.replicas.clients import Producer
from tidelog.sim.replicas.faults import MS_PER_MINUTE, Fault, draw_faults
from tidelog.sim.replicas.hurt import Hurt
from tidelog.sim.replicas.messages import ReplicaName
from tidelog.sim.replicas.plan import draw_plan
from tidelog.sim.replicas.world import ReplicaCluster
from tidelog.sim.report import Report
from tidelog.sim.world import SimulatedWorld

NODES_MIN = 2
HEALED_SECONDS_MAX = 120.0
START_SECONDS_MAX = 30.0
LIMIT_SECONDS_BESIDE = 600.0


def run_replicas(seed: int, *, nodes: int = 3, minutes: float = 1.0, only: Collection[int] | None = None) -> Report:
    """Run one seed.

    Args:
        seed: what everything random is drawn from.
        nodes: brokers; two or more.
        minutes: of virtual time, in which things go wrong.
        only: places in the report's `schedule` of what goes wrong; None for all of it.
    """
    with SimulatedWorld(seed) as world:
        plan = draw_plan(world.rng.stream("plan"), nodes)
        faults = draw_faults(world.rng.stream("faults"), nodes, minutes)
        story = ReplicaStory(world, ReplicaCluster(world, plan))
        return story.run(minutes, faults, only)


class ReplicaStory:
    """A cluster and its clients, from the first start to the last demand."""

    def __init__(self, world: SimulatedWorld, cluster: ReplicaCluster) -> None:
        self.cluster = cluster
        self._world = world
        self._hurt = Hurt(cluster, world.rng.stream("hurt"))

    def run(self, minutes: float, faults: list[Fault], only: Collection[int] | None) -> Report:
        """Run it to its end, or to the first thing that breaks."""
        world, watch, hurt = self._world, self.cluster.watch, self._hurt
        left = [fault for place, fault in enumerate(faults) if only is None or place in only]

        def after_step() -> None:
            watch.after_step()
            if watch.broken:
                raise _BrokenError

        world.loop.after_step = after_step
        try:
            world.run(self._tell(minutes, left), limit_seconds=minutes * 60 + LIMIT_SECONDS_BESIDE)
        except _BrokenError:
            pass  # the watch knows more
        except StuckError as error:
            watch.expect(False, "Progress", str(error))
        except Exception as error:  # a callback of the code under test failed
            watch.expect(False, "OwnInvariant", words_of(error))
        finally:
            world.loop.after_step = None
        injected = hurt.injected + self.cluster.fabric.counts
        return Report(
            seed=world.seed,
            nodes=self.cluster.plan.nodes,
            minutes=minutes,
            virtual_seconds=world.elapsed_seconds,
            events=world.loop.events,
            faults=dict(sorted(injected.items())),
            checks=dict(sorted(watch.checks.items())),
            digest=world.trace.digest,
            broken=tuple(map(str, watch.broken)),
            schedule=tuple(map(str, faults)),
        )

    async def _tell(self, minutes: float, faults: list[Fault]) -> None:
        await self._begin()
        loop, started = self._world.loop, self._world.loop.time()
        for fault in faults:
            if not fault.at_ms and fault.lasts_ms == 0:
                self._hurt.begin(fault)
        for fault in faults:
            if fault.at_ms or fault.lasts_ms:
                await asyncio.sleep(max(started + fault.at_ms / 1000 - loop.time(), 0.0))
                self._hurt.suffer(fault)
        await asyncio.sleep(max(started + minutes * MS_PER_MINUTE / 1000 - loop.time(), 0.0))
        await self._finish()

    async def _begin(self) -> None:
        """All brokers are there; make the topics, and let the clients begin."""
        cluster, plan = self.cluster, self.cluster.plan
        async with asyncio.timeout(START_SECONDS_MAX):
            while sum(broker.is_active for broker in cluster.latest.brokers.values()) < plan.nodes:
                await asyncio.sleep(0.05)
        cluster.controller.is_generous = plan.allows_unclean
        everybody = [BrokerId(number) for number in range(1, plan.nodes + 1)]
        for number in range(plan.topics):
            cluster.rng.random_source.shuffle(everybody)
            cluster.controller.create_topic(f"topic-{number}", everybody[: plan.replication_factor])
        cluster.start_clients()

    async def _finish(self) -> None:
        """Nothing is in the way any more."""
        cluster = self.cluster
        self._hurt.heal()
        self._hurt.create_deleted()
        last: dict[str, Producer] = {}
        waits_for = "?"
        for _ in range(round(HEALED_SECONDS_MAX * 5)):
            await asyncio.sleep(0.2)
            for producer in cluster.producers:
                producer.is_stopping = True
            waits_for = self._unsettled() or self._unserved(last) or self._unread() or ""
            if not waits_for:
                break
        for producer in (*cluster.producers, *last.values()):
            producer.is_stopping = True
        cluster.watch.expect(not waits_for, "Progress", f"{HEALED_SECONDS_MAX:.0f} s after the healing {waits_for}")
        if not waits_for:
            cluster.watch.check_settled()

    def _states(self) -> dict[str, tuple[ReplicaName, PartitionImage]]:
        return {
            name: (ReplicaName(topic.topic_id, 0), topic.partitions[0])  # type: ignore[arg-type]
            for name, topic in sorted(self.cluster.latest.topics_by_name.items())
        }

    def _unsettled(self) -> str | None:
        """Which replica is not in sync, if one is not."""
        states = self._states()
        if len(states) < self.cluster.plan.topics:
            return "a topic is not there again"
        for topic, (name, state) in states.items():
            if state.leader is None or set(state.isr) != set(state.replicas):
                return f"{topic} is led by {state.leader}, in sync are {state.isr} of {state.replicas}"
            leader = (
                self.cluster.brokers[state.leader].replicas.get(name) if state.leader in self.cluster.brokers else None
            )
            if leader is None or leader.leader is None or leader.high_watermark < leader.log.log_end_offset:
                return f"not all of {topic} is committed"
        return None

    def _unserved(self, last: dict[str, Producer]) -> str | None:
        """Which topic takes no fresh records with acks=all, if one does not."""
        for topic in self._states():
            if topic not in last:
                last[topic] = self.cluster.start_last_producer(topic)
            last[topic].is_stopping = last[topic].acknowledged > 0
            if not last[topic].acknowledged:
                return f"no producer was served in {topic}"
        return None

    def _unread(self) -> str | None:
        """Which consumer is not at the end, if one is not."""
        states = self._states()
        for consumer in self.cluster.consumers:
            name, state = states[consumer.topic]
            assert state.leader is not None
            replica = self.cluster.brokers[state.leader].replicas[name]
            is_there = consumer.reader.offset == replica.high_watermark and consumer.topic_id == name.topic_id
            if not is_there:
                return f"{consumer.name} is at {consumer.reader.offset} of {replica.high_watermark} of {consumer.topic}"
        return None


class _BrokenError(TidelogError):
    """What must hold does not: the run ends here."""
