"""The blocking admin client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Literal, Unpack

from tidelog.base.errors import KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.base.losses import Loss, LossId
from tidelog.client.admin.acl_admin import AclAdmin
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.cluster_descriptions import (
    ElectionType,
    Endpoint,
    FeatureDescription,
    FeatureUpdate,
    PartitionLineages,
    QuorumDescription,
)
from tidelog.client.admin.descriptions import (
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    CreatedTopic,
    EpochEnd,
    NewTopic,
    OffsetSpec,
    TopicDescription,
    TopicListing,
)
from tidelog.client.admin.election_preview import ElectionPreview
from tidelog.client.admin.group_descriptions import GroupDescription, GroupListing, ShareGroupOffset
from tidelog.client.admin.log_dirs import LogDirDescription
from tidelog.client.admin.loss_administration import LossAccount, LossReaders, ReaderResumption, keeper_of
from tidelog.client.admin.lost_records import LostRecord, end_of, lost_records
from tidelog.client.admin.reassignment import PartitionReassignment, ReassignmentOutcome
from tidelog.client.admin.token_admin import TokenAdmin
from tidelog.client.admin.transaction_admin import TransactionAdmin
from tidelog.client.admin.user_admin import UserAdmin
from tidelog.client.cluster import World
from tidelog.client.core.values import CommittedOffset, OffsetAndEpoch
from tidelog.client.loop_thread import LoopThread
from tidelog.client.options import AdminConfig, AdminOptions, parse_options


class Admin(AclAdmin, TransactionAdmin, TokenAdmin, UserAdmin):
    """Creates, deletes and describes what a cluster holds.

        with Admin("127.0.0.1:9092") as admin:
            admin.create_topics([NewTopic("flights", num_partitions=4)])

    Every call tries again while a retry can help, for `default_api_timeout_ms` at the most. Thread-safe.

    Args:
        bootstrap_servers: `host:port`, several with commas between them or as a list.
        options: see `tidelog.client.options.AdminConfig`; an unknown one is a TypeError.
    """

    def __init__(
        self, bootstrap_servers: str | Iterable[str] = "127.0.0.1:9092", **options: Unpack[AdminOptions]
    ) -> None:
        self._start(bootstrap_servers, parse_options(AdminConfig, "Admin", options))

    def _start(
        self,
        bootstrap_servers: str | Iterable[str],
        config: AdminConfig,
        *,
        world: World | None = None,
    ) -> None:
        self._is_closed = False
        self._async: AsyncAdmin = AsyncAdmin.__new__(AsyncAdmin)
        self._async._start(bootstrap_servers, config, world=world)
        self._thread = LoopThread(f"tidelog-admin-{config.client_id}")

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> list[CreatedTopic]:
        """Create topics, each on its own.

        Args:
            topics: what to create.
            validate_only: check, and create nothing.

        Raises:
            TopicAlreadyExistsError: one exists.
            KafkaError: one was refused; says why. The others were created all the same; notes name further refusals.
        """
        return self._thread.run(self._async.create_topics(topics, validate_only=validate_only))

    def delete_topics(self, topics: Iterable[str]) -> None:
        """Delete topics by name, each on its own.

        Raises:
            UnknownTopicError: there is no such topic.
            KafkaError: one was refused; says why. The others were deleted all the same.
        """
        self._thread.run(self._async.delete_topics(topics))

    def list_topics(self) -> list[TopicListing]:
        """All topics, sorted by name."""
        return self._thread.run(self._async.list_topics())

    def describe_topics(
        self, topics: Iterable[str] | None = None, *, include_eligible_leaders: bool = False
    ) -> dict[str, TopicDescription]:
        """Topics with their partitions, by name: these, or all that there are.

        Args:
            include_eligible_leaders: tell of those too (KIP-966), where brokers know of them (from 3.8 on).

        Raises:
            UnknownTopicError: there is no such topic.
        """
        return self._thread.run(self._async.describe_topics(topics, include_eligible_leaders=include_eligible_leaders))

    def describe_cluster(self, *, include_fenced_brokers: bool = False) -> ClusterDescription:
        """The cluster's id, its brokers, and the one that takes requests for the controller."""
        return self._thread.run(self._async.describe_cluster(include_fenced_brokers=include_fenced_brokers))

    def unregister_broker(self, broker_id: int) -> None:
        """Forget a broker that will not come back. It must be down.

        Raises:
            KafkaError: BROKER_ID_NOT_REGISTERED: there is none with this id.
        """
        self._thread.run(self._async.unregister_broker(broker_id))

    def describe_quorum(self) -> QuorumDescription:
        """Who leads the metadata quorum, and how far each copy of the metadata log is."""
        return self._thread.run(self._async.describe_quorum())

    def add_raft_voter(
        self, voter_id: int, directory_id: str, endpoints: Iterable[Endpoint], *, cluster_id: str | None = None
    ) -> None:
        """Let one more node vote in the metadata quorum (KIP-853). It must run, and have caught up.

        Args:
            voter_id: the node.
            directory_id: of its metadata log, as its meta.properties says.
            endpoints: its listeners for controllers.
            cluster_id: if given, that the cluster must have.

        Raises:
            KafkaError: DUPLICATE_VOTER: a voter has this id; REQUEST_TIMED_OUT: it has not caught up;
                UNSUPPORTED_VERSION: this quorum's voters are in its configuration.
        """
        self._thread.run(self._async.add_raft_voter(voter_id, directory_id, endpoints, cluster_id=cluster_id))

    def remove_raft_voter(self, voter_id: int, directory_id: str, *, cluster_id: str | None = None) -> None:
        """Let a node vote in the metadata quorum no more (KIP-853).

        Raises:
            KafkaError: VOTER_NOT_FOUND: no voter has this id and directory; UNSUPPORTED_VERSION: this quorum's voters
                are in its configuration.
        """
        self._thread.run(self._async.remove_raft_voter(voter_id, directory_id, cluster_id=cluster_id))

    def elect_leaders(
        self, election_type: ElectionType, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Have partitions elect another leader.

        Args:
            election_type: `preferred`: the first replica, if it is in sync; `unclean`: where no replica that may lead
                is left, any that lives: **what it does not hold is lost**, and reported to whoever reads.
            partitions: which; None for all that need it.

        Returns:
            For each partition None, or why it has no other leader: ELECTION_NOT_NEEDED where it has the right one.
        """
        return self._thread.run(self._async.elect_leaders(election_type, partitions))

    def describe_features(self) -> dict[str, FeatureDescription]:
        """Features by name: what the cluster works at, and what the broker that answers could work at."""
        return self._thread.run(self._async.describe_features())

    def update_features(self, updates: Mapping[str, FeatureUpdate], *, validate_only: bool = False) -> None:
        """Change the levels of features, all or none.

        Args:
            updates: by name.
            validate_only: check, and change nothing.

        Raises:
            KafkaError: FEATURE_UPDATE_FAILED, INVALID_UPDATE_VERSION: a broker cannot work at a level, or it would go
                down though that was not said.
        """
        self._thread.run(self._async.update_features(updates, validate_only=validate_only))

    def describe_lineages(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionLineages]:
        """Which leader epochs each replica's log holds. Followers of Apache Kafka do not tell: an error stands there.

        Raises:
            UnknownTopicError: there is no such partition.
        """
        return self._thread.run(self._async.describe_lineages(partitions))

    def preview_unclean_election(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, ElectionPreview]:
        """What an unclean election would do: who would lead, what would be lost, and which groups have read that.

        Asks every replica, and every group that answers within `default_api_timeout_ms`. What is not known is said.

        Args:
            partitions: which; None for all. Only those without a leader are returned.

        Raises:
            UnknownTopicError: there is no such topic.
        """
        return self._thread.run(self._async.preview_unclean_election(partitions))

    def describe_losses(self, topics: Iterable[str] | None = None, *, open_only: bool = False) -> LossAccount:
        """The account of losses: what may be lost since a leader lacked what was committed, and what is.

        Args:
            topics: only their entries; None for all, those of deleted topics included.
            open_only: leave out entries that await no replica any more.

        Raises:
            UnsupportedVersionError: the cluster keeps none; Apache Kafka does not.
        """
        return self._thread.run(self._async.describe_losses(topics, open_only=open_only))

    def describe_loss_readers(self, losses: Iterable[Loss]) -> dict[LossId, LossReaders]:
        """Who read what was lost: groups by what they committed, and readers that the brokers have told. Producers too
        that learnt it as the brokers refused their next batch.

        Every group of the cluster is asked what it committed. What brokers told is known since they started.

        Args:
            losses: as `describe_losses` returned them.
        """
        return self._thread.run(self._async.describe_loss_readers(losses))

    def report_resumptions(self, resumptions: Iterable[ReaderResumption]) -> None:
        """Tell the brokers that this reader goes on, though logs lost what it had read.

        `describe_loss_readers` then says so. The leaders remember it for as long as they run.

        Raises:
            UnsupportedVersionError: the cluster keeps no account of losses; Apache Kafka does not.
        """
        self._thread.run(self._async.report_resumptions(resumptions))

    def acknowledge_losses(self, losses: Iterable[Loss], *, note: str = "") -> None:
        """Note in entries of the account that they are dealt with.

        Args:
            losses: as `describe_losses` returned them.
            note: what was done; at most 1,000 characters.

        Raises:
            KafkaError: INVALID_REQUEST: the account has no such entry, or the note is too long.
        """
        self._thread.run(self._async.acknowledge_losses(losses, note=note))

    def read_lost_records(self, loss: Loss, *, broker_id: int | None = None) -> Iterator[LostRecord]:
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
        keeper, losses = keeper_of(loss, broker_id), self._async._of_losses()
        position = next_offset = 0
        while len(page := self._thread.run(losses.fetch_lost(loss, keeper, position))):
            yield from lost_records(loss, keeper, page, next_offset)
            position, next_offset = position + len(page), max(next_offset, end_of(page))

    def alter_partition_reassignments(
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
        return self._thread.run(
            self._async.alter_partition_reassignments(
                replicas, allow_replication_factor_change=allow_replication_factor_change
            )
        )

    def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The reassignments under way: of some partitions, or of all."""
        return self._thread.run(self._async.list_partition_reassignments(partitions))

    def describe_log_dirs(
        self, broker_ids: Iterable[int] | None = None, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[int, dict[str, LogDirDescription]]:
        """What lies in the log directories of brokers, and how much room there is, by broker and path.

        Args:
            broker_ids: which; None for all that are up.
            partitions: which logs to tell of; None for all.
        """
        return self._thread.run(self._async.describe_log_dirs(broker_ids, partitions))

    def alter_replica_log_dirs(
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
        return self._thread.run(self._async.alter_replica_log_dirs(directories))

    def describe_configs(
        self, resources: Iterable[ConfigResource], *, include_documentation: bool = False
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Configurations, by key, with defaults.

        Raises:
            UnknownTopicError: there is no such topic.
            KafkaError: one was refused; says why.
        """
        return self._thread.run(self._async.describe_configs(resources, include_documentation=include_documentation))

    def list_config_resources(self, types: Iterable[Literal["topic", "broker", "group"]] = ()) -> list[ConfigResource]:
        """Everything that has a configuration of its own, sorted; brokers are there in any case (KIP-1142).

        Args:
            types: of one of these types; by default all.

        Raises:
            UnsupportedVersionError: the broker is older than 4.1.
        """
        return self._thread.run(self._async.list_config_resources(types))

    def create_partitions(self, counts: Mapping[str, int], *, validate_only: bool = False) -> None:
        """Give topics more partitions, each topic on its own.

        Records with a key may go to another partition from then on.

        Args:
            counts: how many each topic is to have in all.
            validate_only: check, and create nothing.

        Raises:
            UnknownTopicError: there is no such topic.
            KafkaError: one was refused; says why. The others were changed all the same.
        """
        self._thread.run(self._async.create_partitions(counts, validate_only=validate_only))

    def alter_configs(
        self, changes: Mapping[ConfigResource, Mapping[str, str | None]], *, validate_only: bool = False
    ) -> None:
        """Change some keys of configurations, and leave the others as they are; each resource on its own.

        Args:
            changes: values by key; None takes a key back to its default.
            validate_only: check, and change nothing.

        Raises:
            UnknownTopicError: there is no such topic.
            KafkaError: one was refused; says why. The others were changed all the same.
        """
        self._thread.run(self._async.alter_configs(changes, validate_only=validate_only))

    def delete_records(self, before: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, int]:
        """Delete the oldest records of partitions, for good.

        Args:
            before: the first offset to keep; None deletes all that is committed by now.

        Returns:
            Where each log starts now.

        Raises:
            KafkaError: one was refused: OFFSET_OUT_OF_RANGE beyond the high watermark, POLICY_VIOLATION for a topic
                that is only compacted. Of others the records may be gone.
        """
        return self._thread.run(self._async.delete_records(before))

    def list_offsets(self, offsets: Mapping[TopicPartition, OffsetSpec]) -> dict[TopicPartition, OffsetAndEpoch | None]:
        """Offsets at one of the ends, of the largest timestamp, or at a time; None where there is no such record."""
        return self._thread.run(self._async.list_offsets(offsets))

    def offsets_for_leader_epoch(
        self, questions: Mapping[TopicPartition, tuple[int | None, int]]
    ) -> dict[TopicPartition, EpochEnd | KafkaError | None]:
        """Where leader epochs end (KIP-101, KIP-320).

        Args:
            questions: for each partition (current leader epoch, or None for the one in the metadata; the epoch).

        Returns:
            None where the leader cannot tell; an error where it refused: FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH
            too, if the current leader epoch was given.
        """
        return self._thread.run(self._async.offsets_for_leader_epoch(questions))

    def list_groups(self, states: Iterable[str] = ()) -> list[GroupListing]:
        """All groups of all brokers, sorted by id.

        Args:
            states: only those in one of these, as `Stable` or `Empty`; by default all.
        """
        return self._thread.run(self._async.list_groups(states))

    def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """Groups with their members, by id.

        Raises:
            KafkaError: one was refused; GROUP_ID_NOT_FOUND if there is no such group.
        """
        return self._thread.run(self._async.describe_groups(group_ids))

    def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups, with the offsets that they committed, each on its own.

        Raises:
            KafkaError: one was refused: GROUP_ID_NOT_FOUND, or NON_EMPTY_GROUP while it has members. The others were
                deleted all the same.
        """
        self._thread.run(self._async.delete_groups(group_ids))

    def remove_group_members(
        self, group_id: str, instance_ids: Iterable[str] | None = None, *, reason: str = "removed by an administrator"
    ) -> None:
        """Put members of a group out of it, which then goes on without them.

        Kafka: `Admin.removeMembersFromConsumerGroup` (KIP-345).

        Args:
            group_id: the group.
            instance_ids: of static members, which stay members while they are away; None for all members there are.
            reason: for the coordinator's log.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, or UNKNOWN_MEMBER_ID for one who is no member; the others are out.
        """
        self._thread.run(self._async.remove_group_members(group_id, instance_ids, reason=reason))

    def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """What a group committed: for these partitions, or all. Those without a commit are left out."""
        return self._thread.run(self._async.list_group_offsets(group_id, partitions))

    def alter_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit offsets for a group that has no members; a group that is not there begins to be.

        Raises:
            KafkaError: NON_EMPTY_GROUP while it has members.
        """
        self._thread.run(self._async.alter_group_offsets(group_id, offsets))

    def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget what a group committed.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND; GROUP_SUBSCRIBED_TO_TOPIC while its members read the topic.
        """
        self._thread.run(self._async.delete_group_offsets(group_id, partitions))

    def list_share_group_offsets(self, group_id: str) -> dict[TopicPartition, ShareGroupOffset]:
        """Where a share group stands (KIP-932), and by how much it lags, in the partitions that it has begun."""
        return self._thread.run(self._async.list_share_group_offsets(group_id))

    def alter_share_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Have a share group without members begin elsewhere; a group that is not there begins to be.

        Raises:
            KafkaError: NON_EMPTY_GROUP while it has members.
        """
        self._thread.run(self._async.alter_share_group_offsets(group_id, offsets))

    def delete_share_group_offsets(self, group_id: str, topics: Iterable[str]) -> None:
        """Forget what a share group without members has done with topics.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND; NON_EMPTY_GROUP while it has members; UNKNOWN_TOPIC_OR_PARTITION for a topic
                that it has read nothing of.
        """
        self._thread.run(self._async.delete_share_group_offsets(group_id, topics))

    def close(self) -> None:
        """Disconnect. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._thread.run(self._async.close())
        finally:
            self._thread.close()
