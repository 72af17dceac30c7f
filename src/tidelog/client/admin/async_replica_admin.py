"""What the admin client for event loops asks of replicas: their epochs, their directories, and who is to hold what."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

from tidelog.base.errors import KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.base.losses import Loss, LossId
from tidelog.client.admin.cluster_descriptions import PartitionLineages
from tidelog.client.admin.election_preview import ElectionPreview
from tidelog.client.admin.group_administration import GroupAdministration
from tidelog.client.admin.log_dir_administration import LogDirAdministration
from tidelog.client.admin.log_dirs import LogDirDescription
from tidelog.client.admin.loss_administration import (
    LossAccount,
    LossAdministration,
    LossReaders,
    ReaderResumption,
    keeper_of,
)
from tidelog.client.admin.lost_records import LostRecord, end_of, lost_records
from tidelog.client.admin.preview_administration import PreviewAdministration
from tidelog.client.admin.reassignment import PartitionReassignment, ReassignmentOutcome
from tidelog.client.admin.reassignment_administration import ReassignmentAdministration
from tidelog.client.admin.replica_administration import ReplicaAdministration
from tidelog.client.cluster import Cluster
from tidelog.client.leader_requests import Leaders
from tidelog.client.options import AdminConfig


class AsyncReplicaAdmin:
    """The part of `AsyncAdmin` that is about replicas."""

    _cluster: Cluster
    _config: AdminConfig

    async def describe_lineages(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionLineages]:
        """Which leader epochs each replica's log holds. Followers of Apache Kafka do not tell: an error stands there.

        Raises:
            UnknownTopicError: there is no such partition.
        """
        return await self._of_replicas().describe_lineages(partitions)

    async def preview_unclean_election(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, ElectionPreview]:
        """What an unclean election would do: who would lead, what would be lost, and which groups have read that.

        Asks every replica, and every group that answers within `default_api_timeout_ms`. What is not known is said.

        Args:
            partitions: which; None for all. Only those without a leader are returned.

        Raises:
            UnknownTopicError: there is no such topic.
        """
        groups = GroupAdministration(self._cluster, request_timeout_ms=self._config.request_timeout_ms)
        preview = PreviewAdministration(
            self._cluster, self._of_replicas(), groups, timeout_ms=self._config.default_api_timeout_ms
        )
        return await preview.preview(partitions)

    async def describe_losses(self, topics: Iterable[str] | None = None, *, open_only: bool = False) -> LossAccount:
        """The account of losses: what may be lost since a leader lacked what was committed, and what is.

        Args:
            topics: only their entries; None for all, those of deleted topics included.
            open_only: leave out entries that await no replica any more.

        Raises:
            UnsupportedVersionError: the cluster keeps none; Apache Kafka does not.
        """
        return await self._of_losses().describe(topics, open_only=open_only)

    async def describe_loss_readers(self, losses: Iterable[Loss]) -> dict[LossId, LossReaders]:
        """Who read what was lost: groups by what they committed, and readers that the brokers have told. Producers too
        that learnt it as the brokers refused their next batch.

        Every group of the cluster is asked what it committed. What brokers told is known since they started.

        Args:
            losses: as `describe_losses` returned them.
        """
        return await self._of_losses().readers(list(losses))

    async def report_resumptions(self, resumptions: Iterable[ReaderResumption]) -> None:
        """Tell the brokers that this reader goes on, though logs lost what it had read.

        `describe_loss_readers` then says so. The leaders remember it for as long as they run.

        Raises:
            UnsupportedVersionError: the cluster keeps no account of losses; Apache Kafka does not.
        """
        timeout_ms = self._config.default_api_timeout_ms
        leaders = Leaders(self._cluster, request_timeout_ms=self._config.request_timeout_ms, timeout_ms=timeout_ms)
        await self._of_losses().report(resumptions, leaders)

    async def acknowledge_losses(self, losses: Iterable[Loss], *, note: str = "") -> None:
        """Note in entries of the account that they are dealt with.

        Args:
            losses: as `describe_losses` returned them.
            note: what was done; at most 1,000 characters.

        Raises:
            KafkaError: INVALID_REQUEST: the account has no such entry, or the note is too long.
        """
        await self._of_losses().acknowledge(list(losses), note)

    async def read_lost_records(self, loss: Loss, *, broker_id: int | None = None) -> AsyncIterator[LostRecord]:
        """The records that a replica cut off, in the order of their offsets, as its broker kept them.

        They are fetched and decoded while the loop goes on, a MiB at a time.

        Args:
            loss: as `describe_losses` returned it.
            broker_id: whose replica's; None for the broker that keeps most of it.

        Raises:
            KafkaError: RESOURCE_NOT_FOUND; they are not kept, or not any more.
            MalformedBatchError: what was kept is damaged.
            UnsupportedVersionError: the broker does not hand them back.
        """
        keeper, losses = keeper_of(loss, broker_id), self._of_losses()
        position = next_offset = 0
        while len(page := await losses.fetch_lost(loss, keeper, position)):
            for record in lost_records(loss, keeper, page, next_offset):
                yield record
            position, next_offset = position + len(page), max(next_offset, end_of(page))

    async def alter_partition_reassignments(
        self,
        replicas: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> dict[TopicPartition, ReassignmentOutcome]:
        """Have partitions held by other brokers; return once that has begun.

        Args:
            replicas: of each partition, the preferred leader first; None gives up the reassignment that is under way.
            allow_replication_factor_change: whether a partition may get more replicas than it has, or fewer. Without
                it, brokers of Apache Kafka before 4.1 cannot be asked.

        Returns:
            What became of each: refused, begun, or begun and waiting for brokers that do not live.
        """
        return await self._of_reassignments().alter(
            replicas, allow_replication_factor_change=allow_replication_factor_change
        )

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The reassignments under way: of some partitions, or of all."""
        return await self._of_reassignments().list(partitions)

    async def describe_log_dirs(
        self, broker_ids: Iterable[int] | None = None, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[int, dict[str, LogDirDescription]]:
        """What lies in the log directories of brokers, and how much room there is, by broker and path.

        Args:
            broker_ids: which; None for all that are up.
            partitions: which logs to tell of; None for all.
        """
        return await self._of_log_dirs().describe(broker_ids, partitions)

    async def alter_replica_log_dirs(
        self, directories: Mapping[tuple[int, TopicPartition], str]
    ) -> dict[tuple[int, TopicPartition], KafkaError | None]:
        """Have replicas moved to other log directories of their brokers; return once that has begun.

        `describe_log_dirs` tells of the copies, and how far they are behind.

        Args:
            directories: for (broker, partition) the absolute path; that where it lies ends a move.

        Returns:
            For each None, or why it is not moved: LOG_DIR_NOT_FOUND; KAFKA_STORAGE_ERROR where the directory or the
            replica is out of use; REPLICA_NOT_AVAILABLE where the broker has no such replica yet, which will be made
            there.
        """
        return await self._of_log_dirs().alter(directories)

    def _of_replicas(self) -> ReplicaAdministration:
        return ReplicaAdministration(self._cluster, request_timeout_ms=self._config.request_timeout_ms)

    def _of_losses(self) -> LossAdministration:
        timeout_ms = self._config.request_timeout_ms
        groups = GroupAdministration(self._cluster, request_timeout_ms=timeout_ms)
        return LossAdministration(self._cluster, groups, request_timeout_ms=timeout_ms)

    def _of_reassignments(self) -> ReassignmentAdministration:
        return ReassignmentAdministration(self._cluster, request_timeout_ms=self._config.request_timeout_ms)

    def _of_log_dirs(self) -> LogDirAdministration:
        return LogDirAdministration(self._cluster, request_timeout_ms=self._config.request_timeout_ms)
