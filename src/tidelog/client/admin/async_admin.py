"""The admin client for event loops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Literal, TypeVar, Unpack

from tidelog.base.errors import Code, KafkaError, UnsupportedVersionError
from tidelog.base.ids import LeaderEpoch, TopicPartition
from tidelog.client.admin.admin_messages import creatable, created, described, id_text
from tidelog.client.admin.async_acl_admin import AsyncAclAdmin
from tidelog.client.admin.async_replica_admin import AsyncReplicaAdmin
from tidelog.client.admin.async_token_admin import AsyncTokenAdmin
from tidelog.client.admin.async_transaction_admin import AsyncTransactionAdmin
from tidelog.client.admin.async_user_admin import AsyncUserAdmin
from tidelog.client.admin.cluster_administration import ClusterAdministration
from tidelog.client.admin.cluster_descriptions import (
    ElectionType,
    Endpoint,
    FeatureDescription,
    FeatureUpdate,
    QuorumDescription,
)
from tidelog.client.admin.config_administration import ConfigAdministration
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
from tidelog.client.admin.group_administration import GroupAdministration
from tidelog.client.admin.group_descriptions import GroupDescription, GroupListing, ShareGroupOffset
from tidelog.client.cluster import Cluster, World, real_world
from tidelog.client.core.values import CommittedOffset, OffsetAndEpoch, code_of
from tidelog.client.leader_requests import Leaders
from tidelog.client.options import AdminConfig, AdminOptions, parse_options
from tidelog.client.refusals import raise_first, refused
from tidelog.net.address import parse_bootstrap
from tidelog.net.connection import Connection
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_02_list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP
from tidelog.wire.messages.api_19_create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.messages.api_20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidelog.wire.messages.api_37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)

R = TypeVar("R")

_SPECIAL_OFFSETS = {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP, "max_timestamp": MAX_TIMESTAMP}
_FIRST_DELETE_VERSION_WITH_STATES = 6


class AsyncAdmin(AsyncAclAdmin, AsyncReplicaAdmin, AsyncTransactionAdmin, AsyncTokenAdmin, AsyncUserAdmin):
    """Creates, deletes and describes what a cluster holds.

        async with aio.Admin("127.0.0.1:9092") as admin:
            await admin.create_topics([NewTopic("flights", num_partitions=4)])

    Every call tries again while a retry can help, for `default_api_timeout_ms` at the most.

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
        self._config = config
        world = world or real_world()
        self._clock = world.clock
        self._cluster = Cluster(parse_bootstrap(bootstrap_servers), config, world)

    async def __aenter__(self) -> AsyncAdmin:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> list[CreatedTopic]:
        """Create topics, each on its own.

        Args:
            topics: what to create.
            validate_only: check, and create nothing.

        Raises:
            TopicAlreadyExistsError: one exists.
            KafkaError: one was refused; says why. The others were created all the same; notes name further refusals.
        """
        left = {topic.name: creatable(topic) for topic in topics}
        answers: dict[str, CreatableTopicResult] = {}

        async def send_request() -> None:
            request = CreateTopicsRequest(
                topics=list(left.values()), timeout_ms=self._config.request_timeout_ms, validate_only=validate_only
            )
            response = await self._request(await self._controller(), request, CreateTopicsResponse)
            for row in response.topics:
                if not code_of(row.error_code).retriable:
                    left.pop(row.name, None)
                    answers[row.name] = row
            raise_first(_creation_error(row) for row in response.topics if row.name in left)

        if left:
            await self._cluster.retrying("create topics", send_request)
        raise_first(_creation_error(row) for row in answers.values())
        return [created(row) for row in answers.values()]

    async def delete_topics(self, topics: Iterable[str]) -> None:
        """Delete topics by name, each on its own.

        Raises:
            UnknownTopicError: there is no such topic.
            KafkaError: one was refused; says why. The others were deleted all the same.
        """
        names = list(topics)

        async def send_request() -> None:
            connection = await self._controller()
            version = connection.versions.version(ApiKey.DELETE_TOPICS)
            request = DeleteTopicsRequest(topic_names=names, timeout_ms=self._config.request_timeout_ms)
            if version >= _FIRST_DELETE_VERSION_WITH_STATES:
                request.topics = [DeleteTopicState(name=name) for name in names]
            response = await self._request(connection, request, DeleteTopicsResponse)
            raise_first(refused(row.error_code, f"topic {row.name!r}", row.error_message) for row in response.responses)

        if names:
            await self._cluster.retrying("delete topics", send_request)

    async def list_topics(self) -> list[TopicListing]:
        """All topics, sorted by name."""

        async def send_request() -> list[TopicListing]:
            response = await self._cluster.fetch_metadata(None)
            views = self._cluster.metadata.topics
            names = sorted(topic.name for topic in response.topics if topic.name is not None and topic.name in views)
            return [
                TopicListing(name, id_text(views[name]), views[name].is_internal, views[name].partition_count)
                for name in names
            ]

        return await self._cluster.retrying("list topics", send_request)

    async def describe_topics(
        self, topics: Iterable[str] | None = None, *, include_eligible_leaders: bool = False
    ) -> dict[str, TopicDescription]:
        """Topics with their partitions, by name: these, or all that there are.

        Args:
            include_eligible_leaders: tell of those too (KIP-966), where brokers know of them (from 3.8 on).

        Raises:
            UnknownTopicError: there is no such topic.
        """
        names = None if topics is None else list(topics)
        if include_eligible_leaders:
            with suppress(UnsupportedVersionError):
                return await self._of_replicas().describe_partitions(names)

        async def send_request() -> dict[str, TopicDescription]:
            await self._cluster.fetch_metadata(names)
            metadata = self._cluster.metadata
            wanted = sorted(metadata.topics) if names is None else names
            for name in wanted:
                if name not in metadata.topics:
                    code = metadata.errors.get(name, Code.UNKNOWN_TOPIC_OR_PARTITION)
                    raise_first([refused(code, f"topic {name!r}", None)])
            return {name: described(metadata.topics[name]) for name in wanted}

        return await self._cluster.retrying("describe topics", send_request)

    async def describe_cluster(self, *, include_fenced_brokers: bool = False) -> ClusterDescription:
        """The cluster's id, its brokers, and the one that takes requests for the controller."""
        return await self._of_cluster().describe_cluster(include_fenced_brokers=include_fenced_brokers)

    async def unregister_broker(self, broker_id: int) -> None:
        """Forget a broker that will not come back. It must be down.

        Raises:
            KafkaError: BROKER_ID_NOT_REGISTERED: there is none with this id.
        """
        await self._of_cluster().unregister_broker(broker_id)

    async def describe_quorum(self) -> QuorumDescription:
        """Who leads the metadata quorum, and how far each copy of the metadata log is."""
        return await self._of_cluster().describe_quorum()

    async def add_raft_voter(
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
        await self._of_cluster().add_raft_voter(voter_id, directory_id, endpoints, cluster_id=cluster_id)

    async def remove_raft_voter(self, voter_id: int, directory_id: str, *, cluster_id: str | None = None) -> None:
        """Let a node vote in the metadata quorum no more (KIP-853).

        Raises:
            KafkaError: VOTER_NOT_FOUND: no voter has this id and directory; UNSUPPORTED_VERSION: this quorum's voters
                are in its configuration.
        """
        await self._of_cluster().remove_raft_voter(voter_id, directory_id, cluster_id=cluster_id)

    async def elect_leaders(
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
        return await self._of_cluster().elect_leaders(election_type, partitions)

    async def describe_features(self) -> dict[str, FeatureDescription]:
        """Features by name: what the cluster works at, and what the broker that answers could work at."""
        return await self._of_cluster().describe_features()

    async def update_features(self, updates: Mapping[str, FeatureUpdate], *, validate_only: bool = False) -> None:
        """Change the levels of features, all or none.

        Args:
            updates: by name.
            validate_only: check, and change nothing.

        Raises:
            KafkaError: FEATURE_UPDATE_FAILED, INVALID_UPDATE_VERSION: a broker cannot work at a level, or it would go
                down though that was not said.
        """
        await self._of_cluster().update_features(updates, validate_only=validate_only)

    async def describe_configs(
        self, resources: Iterable[ConfigResource], *, include_documentation: bool = False
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Configurations, by key, with defaults.

        Raises:
            UnknownTopicError: there is no such topic.
            KafkaError: one was refused; says why.
        """
        return await self._configs().describe_configs(resources, include_documentation=include_documentation)

    async def list_config_resources(
        self, types: Iterable[Literal["topic", "broker", "group"]] = ()
    ) -> list[ConfigResource]:
        """Everything that has a configuration of its own, sorted; brokers are there in any case (KIP-1142).

        Args:
            types: of one of these types; by default all.

        Raises:
            UnsupportedVersionError: the broker is older than 4.1.
        """
        return await self._configs().list_config_resources(types)

    async def create_partitions(self, counts: Mapping[str, int], *, validate_only: bool = False) -> None:
        """Give topics more partitions, each topic on its own.

        Records with a key may go to another partition from then on.

        Args:
            counts: how many each topic is to have in all.
            validate_only: check, and create nothing.

        Raises:
            UnknownTopicError: there is no such topic.
            KafkaError: one was refused; says why. The others were changed all the same.
        """
        left = dict(counts)
        errors: dict[str, KafkaError | None] = {}

        async def send_request() -> None:
            request = CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name, count) for name, count in left.items()],
                timeout_ms=self._config.request_timeout_ms,
                validate_only=validate_only,
            )
            response = await self._request(await self._controller(), request, CreatePartitionsResponse)
            for row in response.results:
                error = refused(row.error_code, f"topic {row.name!r}", row.error_message)
                if error is None or not error.retriable:
                    left.pop(row.name, None)
                errors[row.name] = error
            raise_first(errors.get(name) for name in left)

        if left:
            await self._cluster.retrying("create partitions", send_request)
        raise_first(errors.values())

    async def alter_configs(
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
        await self._configs().alter_configs(changes, validate_only=validate_only)

    async def delete_records(self, before: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, int]:
        """Delete the oldest records of partitions, for good.

        Args:
            before: the first offset to keep; None deletes all that is committed by now.

        Returns:
            Where each log starts now.

        Raises:
            KafkaError: one was refused: OFFSET_OUT_OF_RANGE beyond the high watermark, POLICY_VIOLATION for a topic
                that is only compacted. Of others the records may be gone.
        """
        offsets = {TopicPartition(*partition): -1 if offset is None else offset for partition, offset in before.items()}
        return dict(await self._leaders().delete_records(offsets))

    async def list_offsets(
        self, offsets: Mapping[TopicPartition, OffsetSpec]
    ) -> dict[TopicPartition, OffsetAndEpoch | None]:
        """Offsets at one of the ends, of the largest timestamp, or at a time; None where there is no such record."""
        timestamps = {}
        for partition, spec in offsets.items():
            timestamp = _SPECIAL_OFFSETS.get(spec, -9) if isinstance(spec, str) else spec
            if (timestamp < 0 and not isinstance(spec, str)) or timestamp == -9:
                allowed = ", ".join(map(repr, _SPECIAL_OFFSETS))
                raise ValueError(f"{partition}: {spec!r}: one of {allowed} is expected, or ms since 1970")
            timestamps[TopicPartition(*partition)] = timestamp
        return await self._leaders().list_offsets(timestamps)

    async def offsets_for_leader_epoch(
        self, questions: Mapping[TopicPartition, tuple[int | None, int]]
    ) -> dict[TopicPartition, EpochEnd | KafkaError | None]:
        """Where leader epochs end (KIP-101, KIP-320).

        Args:
            questions: for each partition (current leader epoch, or None for the one in the metadata; the epoch).

        Returns:
            None where the leader cannot tell; an error where it refused: FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH
            too, if the current leader epoch was given.
        """
        wanted = {
            TopicPartition(*partition): (None if current is None else LeaderEpoch(current), LeaderEpoch(epoch))
            for partition, (current, epoch) in questions.items()
        }
        answers = await self._leaders().epoch_ends(wanted)
        return {
            partition: EpochEnd(*answer) if isinstance(answer, tuple) else answer
            for partition, answer in answers.items()
        }

    async def list_groups(self, states: Iterable[str] = ()) -> list[GroupListing]:
        """All groups of all brokers, sorted by id.

        Args:
            states: only those in one of these, as `Stable` or `Empty`; by default all.
        """
        return await self._groups().list_groups(states)

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """Groups with their members, by id.

        Raises:
            KafkaError: one was refused; GROUP_ID_NOT_FOUND if there is no such group.
        """
        return await self._groups().describe_groups(group_ids)

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups, with the offsets that they committed, each on its own.

        Raises:
            KafkaError: one was refused: GROUP_ID_NOT_FOUND, or NON_EMPTY_GROUP while it has members. The others were
                deleted all the same.
        """
        await self._groups().delete_groups(group_ids)

    async def remove_group_members(
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
        await self._groups().remove_members(group_id, instance_ids, reason)

    async def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """What a group committed: for these partitions, or all. Those without a commit are left out."""
        return await self._groups().list_group_offsets(group_id, partitions)

    async def alter_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit offsets for a group that has no members; a group that is not there begins to be.

        Raises:
            KafkaError: NON_EMPTY_GROUP while it has members.
        """
        await self._groups().alter_group_offsets(group_id, offsets)

    async def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget what a group committed.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND; GROUP_SUBSCRIBED_TO_TOPIC while its members read the topic.
        """
        await self._groups().delete_group_offsets(group_id, partitions)

    async def list_share_group_offsets(self, group_id: str) -> dict[TopicPartition, ShareGroupOffset]:
        """Where a share group stands (KIP-932), and by how much it lags, in the partitions that it has begun."""
        return await self._groups().shares.list_share_group_offsets(group_id)

    async def alter_share_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Have a share group without members begin elsewhere; a group that is not there begins to be.

        Raises:
            KafkaError: NON_EMPTY_GROUP while it has members.
        """
        await self._groups().shares.alter_share_group_offsets(group_id, offsets)

    async def delete_share_group_offsets(self, group_id: str, topics: Iterable[str]) -> None:
        """Forget what a share group without members has done with topics.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND; NON_EMPTY_GROUP while it has members; UNKNOWN_TOPIC_OR_PARTITION for a topic
                that it has read nothing of.
        """
        await self._groups().shares.delete_share_group_offsets(group_id, topics)

    async def close(self) -> None:
        """Disconnect. A second call does nothing."""
        await self._cluster.close()

    # How.
    def _groups(self) -> GroupAdministration:
        return GroupAdministration(self._cluster, request_timeout_ms=self._config.request_timeout_ms)

    def _of_cluster(self) -> ClusterAdministration:
        return ClusterAdministration(self._cluster, request_timeout_ms=self._config.request_timeout_ms)

    def _configs(self) -> ConfigAdministration:
        return ConfigAdministration(self._cluster, request_timeout_ms=self._config.request_timeout_ms)

    def _leaders(self) -> Leaders:
        return Leaders(
            self._cluster,
            request_timeout_ms=self._config.request_timeout_ms,
            timeout_ms=self._config.default_api_timeout_ms,
        )

    async def _request(self, connection: Connection, request: object, response: type[R]) -> R:
        return await connection.request(request, response, timeout_ms=self._config.request_timeout_ms)

    async def _controller(self) -> Connection:
        if self._cluster.metadata.controller_id is None:
            await self._cluster.fetch_metadata([])
        return await self._cluster.controller()


def _creation_error(row: CreatableTopicResult) -> KafkaError | None:
    return refused(row.error_code, f"topic {row.name!r}", row.error_message)
