"""What an operator does to a cluster: elections that are asked for, clean ones and others; partitions are moved."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tidelog.base.ids import BrokerId, PartitionIndex, TopicPartition
from tidelog.client.admin.descriptions import NewTopic
from tidelog.client.factory import AsyncFactory
from tidelog.sim.runs.administration import refused
from tidelog.sim.runs.cluster_recorder import ClusterRecorder

PARTITIONS_AT_ONCE_MAX = 3
MORE_REPLICAS = 0.2
"""How often a partition gets one replica more than it had at first."""


class ClusterOperator:
    """See the module.

    Args:
        factory: of admin clients.
        recorder: knows which partitions have no leader.
        broker_ids: who may hold partitions.
        replication_factor: how many at least hold each.
    """

    def __init__(
        self,
        factory: AsyncFactory,
        recorder: ClusterRecorder,
        broker_ids: Sequence[BrokerId] = (),
        replication_factor: int = 1,
    ) -> None:
        self._factory = factory
        self._recorder = recorder
        self._broker_ids = broker_ids
        self._replication_factor = replication_factor

    def leaderless(self) -> list[TopicPartition]:
        """Partitions that nobody leads."""
        return [
            TopicPartition(name, PartitionIndex(number))
            for name, topic in sorted(self._recorder.latest.topics_by_name.items())
            for number, state in enumerate(topic.partitions)
            if state.leader is None
        ]

    async def make_topics(self, name: str, count: int) -> list[str]:
        """Many at once. Returns their names, whatever became of each."""
        names = [f"{name}-{number}" for number in range(count)]
        self._recorder.may_be_deleted.update(names)
        with refused():
            async with self._factory.admin() as admin:
                await admin.create_topics([NewTopic(each, 1, self._replication_factor) for each in names])
        return names

    async def delete_topics(self, names: Sequence[str]) -> None:
        """Those of them that are there."""
        for each in names:
            if each in self._recorder.latest.topics_by_name:
                with refused():
                    async with self._factory.admin() as admin:
                        await admin.delete_topics([each])

    async def elect_preferred(self) -> None:
        """Everywhere."""
        with refused():
            async with self._factory.admin() as admin:
                await admin.elect_leaders("preferred")

    async def elect_uncleanly(self) -> None:
        """Let anybody lead where nobody may. Internal topics take part because they are named."""
        partitions = self.leaderless()
        if partitions:
            with refused():
                async with self._factory.admin() as admin:
                    await admin.elect_leaders("unclean", partitions)

    async def reassign(self, random: Random) -> None:
        """Move some partitions to other brokers, whether those live or not, be they on their way elsewhere already."""
        there = [
            TopicPartition(name, PartitionIndex(number))
            for name, topic in sorted(self._recorder.latest.topics_by_name.items())
            for number in range(len(topic.partitions))
        ]
        targets: dict[TopicPartition, Sequence[int] | None] = {}
        for partition in random.sample(there, min(len(there), random.randrange(1, PARTITIONS_AT_ONCE_MAX + 1))):
            factor = min(self._replication_factor + (random.random() < MORE_REPLICAS), len(self._broker_ids))
            targets[partition] = random.sample(self._broker_ids, factor)
        with refused():
            async with self._factory.admin() as admin:
                await admin.alter_partition_reassignments(targets)

    async def cancel_reassignments(self) -> None:
        """All that are under way."""
        with refused():
            async with self._factory.admin() as admin:
                moving = await admin.list_partition_reassignments()
                await admin.alter_partition_reassignments(dict.fromkeys(moving))
