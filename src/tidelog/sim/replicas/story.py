"""A run of several nodes: once all is healed every replica must be in sync, every consumer at the end, and a producer
be served.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from tidelog.base.ids import BrokerId
from tidelog.metadata.image import PartitionImage
from tidelog.replica import ReplicaId
from tidelog.sim.faults.faults import Fault
from tidelog.sim.replicas.clients import Producer
from tidelog.sim.replicas.faults import REPLICA_FAULTS
from tidelog.sim.replicas.hurt import Hurt
from tidelog.sim.replicas.messages import PARTITION
from tidelog.sim.replicas.plan import Plan
from tidelog.sim.replicas.world import ReplicaCluster
from tidelog.sim.runs.story import Story
from tidelog.sim.world.world import SimulatedWorld

HEALED_SECONDS_MAX = 120.0
"""Of virtual time, in which everything must come to its end once nothing is in the way any more."""
START_SECONDS_MAX = 30.0


class ReplicaStory(Story):
    """A cluster and its clients.

    Args:
        world: for nothing else.
        plan: how large, how patient, how bad.
    """

    def __init__(self, world: SimulatedWorld, plan: Plan) -> None:
        self.cluster = ReplicaCluster(world, plan)
        self._hurt = Hurt(self.cluster, world.rng.stream("hurt"))
        super().__init__(world, plan.nodes, REPLICA_FAULTS, self.cluster.watch)

    def _begin(self, rate: Fault) -> None:
        self._hurt.begin(rate)

    async def _suffer(self, step: Fault) -> None:
        self._hurt.suffer(step)

    def _injected(self) -> Counter[str]:
        return self._hurt.injected + self.cluster.fabric.counts

    async def _start(self) -> None:
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

    def _states(self) -> dict[str, tuple[ReplicaId, PartitionImage]]:
        return {
            name: (ReplicaId(topic.topic_id, PARTITION), topic.partitions[PARTITION])
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
