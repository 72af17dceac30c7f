"""What an operator does to a cluster: elections that are asked for, clean ones and others."""

from __future__ import annotations

from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.client.factory import AsyncFactory
from tidelog.sim.administration import refused
from tidelog.sim.cluster_witness import ClusterWitness


class ClusterOperator:
    """See the module.

    Args:
        factory: of admin clients.
        witness: knows which partitions have no leader.
    """

    def __init__(self, factory: AsyncFactory, witness: ClusterWitness) -> None:
        self._factory = factory
        self._witness = witness

    def leaderless(self) -> list[TopicPartition]:
        """Partitions that nobody leads."""
        return [
            TopicPartition(name, PartitionIndex(number))
            for name, topic in sorted(self._witness.latest.topics_by_name.items())
            for number, state in enumerate(topic.partitions)
            if state.leader is None
        ]

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
