"""How an Admin finds out what an unclean election would do: it asks every replica, and every group that it can."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from tidelog.base.errors import NetworkError, TidelogError, UnknownTopicError, UnsupportedVersionError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.client.admin.admin_messages import described
from tidelog.client.admin.cluster_descriptions import ReplicaLineage
from tidelog.client.admin.descriptions import PartitionDescription, TopicDescription
from tidelog.client.admin.election_preview import ElectionPreview, election_preview
from tidelog.client.admin.group_administration import GroupAdministration
from tidelog.client.admin.group_descriptions import GroupListing
from tidelog.client.admin.replica_administration import ReplicaAdministration
from tidelog.client.cluster import Cluster

OFFSETS_TOPIC = "__consumer_offsets"
GROUPS_MAX = 10_000
"""So many groups are asked; the rest are counted."""
GROUPS_AT_ONCE = 20
PARTITIONS_AT_ONCE = 20

Committed = dict[TopicPartition, dict[str, int]]


class PreviewAdministration:
    """See `AsyncAdmin.preview_unclean_election`.

    Args:
        timeout_ms: for all groups together. What is not answered then is unknown.
    """

    def __init__(
        self, cluster: Cluster, replicas: ReplicaAdministration, groups: GroupAdministration, *, timeout_ms: int
    ) -> None:
        self._cluster = cluster
        self._replicas = replicas
        self._groups = groups
        self._timeout_ms = timeout_ms

    async def preview(self, partitions: Iterable[TopicPartition] | None) -> dict[TopicPartition, ElectionPreview]:
        states = await self._without_leader(None if partitions is None else set(partitions))
        if not states:
            return {}
        await self._cluster.retrying("describe brokers", lambda: self._cluster.fetch_metadata([]))
        up = set(self._cluster.metadata.brokers)
        committed, groups_unknown = await self._committed(list(states))
        found = {}
        wanted = list(states)
        for start in range(0, len(wanted), PARTITIONS_AT_ONCE):
            some = wanted[start : start + PARTITIONS_AT_ONCE]
            answers = await asyncio.gather(*(self._replicas.describe_lineages([one]) for one in some))
            for partition, answer in zip(some, answers, strict=True):
                state, told = states[partition], answer[partition].replicas
                replicas = {one: told.get(one, _unasked(one)) for one in state.replicas}
                groups = committed.get(partition, {})
                found[partition] = election_preview(state, replicas, up, groups, groups_unknown)
        return found

    async def _without_leader(self, wanted: set[TopicPartition] | None) -> dict[TopicPartition, PartitionDescription]:
        """The partitions that nobody leads, in order."""
        topics = await self._described(None if wanted is None else {one.topic for one in wanted})
        return {
            partition: state
            for name, topic in sorted(topics.items())
            for state in sorted(topic.partitions, key=lambda one: one.partition)
            if state.leader is None
            and ((partition := TopicPartition(name, PartitionIndex(state.partition))) in (wanted or (partition,)))
        }

    async def _described(self, topics: Iterable[str] | None) -> Mapping[str, TopicDescription]:
        try:
            return await self._replicas.describe_partitions(topics)
        except UnsupportedVersionError:  # of a broker older than KIP-966, which knows of nobody who is eligible
            names = None if topics is None else list(topics)
            await self._cluster.retrying("describe topics", lambda: self._cluster.fetch_metadata(names))
            found = self._cluster.metadata.topics
            return {name: described(topic) for name, topic in found.items() if names is None or name in names}

    async def _committed(self, partitions: list[TopicPartition]) -> tuple[Committed, str | None]:
        """What groups have committed in partitions, by partition and group; and why that may not be all."""
        unknown: list[str] = []
        found: Committed = {}
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                unknown += await self._offline_groups()
                listings = await self._groups.list_groups(())
        except (TidelogError, TimeoutError) as error:
            return {}, f"groups could not be listed: {str(error) or 'no answer in time'}"
        if len(listings) > GROUPS_MAX:
            unknown.append(f"only {GROUPS_MAX:,} of {len(listings):,} groups were asked")
        queue = iter(listings[:GROUPS_MAX])
        left = len(listings[:GROUPS_MAX])
        errors: list[TidelogError] = []

        async def ask_some() -> None:
            nonlocal left
            for listing in queue:
                try:
                    offsets = await self._offsets(listing, partitions)
                except TidelogError as error:
                    errors.append(error)
                    continue
                left -= 1
                for partition, offset in offsets.items():
                    found.setdefault(partition, {})[listing.group_id] = offset

        try:
            async with asyncio.timeout(self._timeout_ms / 1000), asyncio.TaskGroup() as tasks:
                for _ in range(GROUPS_AT_ONCE):
                    tasks.create_task(ask_some())
        except TimeoutError:
            pass
        if left:
            reason = f" ({errors[0]})" if errors else ""
            unknown.append(f"{left:,} of {len(listings):,} groups did not answer{reason}")
        return found, "; ".join(unknown) or None

    async def _offline_groups(self) -> list[str]:
        """Whether there are groups that nobody coordinates, so that nobody lists them."""
        try:
            topics = await self._described([OFFSETS_TOPIC])
        except UnknownTopicError:
            return []
        states = topics[OFFSETS_TOPIC].partitions
        offline = sum(state.leader is None for state in states)
        if not offline:
            return []
        return [f"nobody leads {offline} of {len(states)} partitions of {OFFSETS_TOPIC}"]

    async def _offsets(self, listing: GroupListing, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        if listing.type == "share":
            starts = await self._groups.shares.list_share_group_offsets(listing.group_id)
            return {one: starts[one].start_offset for one in partitions if one in starts}
        offsets = await self._groups.list_group_offsets(listing.group_id, partitions)
        return {one: committed.offset for one, committed in offsets.items()}


def _unasked(broker_id: int) -> ReplicaLineage:
    return ReplicaLineage(broker_id, (), NetworkError(f"broker {broker_id} became a replica while others were asked"))
