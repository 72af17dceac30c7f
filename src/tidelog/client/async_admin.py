"""The admin client for event loops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TypeVar, Unpack

from tidelog.base.errors import Code, KafkaError, UnsupportedVersionError
from tidelog.base.ids import LeaderEpoch, TopicPartition
from tidelog.client.admin_messages import config_entry, creatable, created, described, id_text, raise_first, refused
from tidelog.client.cluster import Cluster, World, real_world
from tidelog.client.consistency import ConsistencyContextStore
from tidelog.client.core.values import OffsetAndEpoch, code_of
from tidelog.client.descriptions import (
    BrokerDescription,
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
from tidelog.client.group_administration import GroupAdministration
from tidelog.client.group_descriptions import CommittedOffset, GroupDescription, GroupListing
from tidelog.client.lookups import Leaders
from tidelog.client.options import AdminConfig, AdminOptions, parse_options
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
from tidelog.wire.messages.api_32_describe_configs import (
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tidelog.wire.messages.api_37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tidelog.wire.messages.api_44_incremental_alter_configs import (
    OPERATION_DELETE,
    OPERATION_SET,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.wire.messages.api_60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse

R = TypeVar("R")

_SPECIAL_OFFSETS = {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP, "max_timestamp": MAX_TIMESTAMP}
_RESOURCE_TYPES = {"topic": RESOURCE_TOPIC, "broker": RESOURCE_BROKER}
_FIRST_DELETE_VERSION_WITH_STATES = 6


class AsyncAdmin:
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
        consistency: ConsistencyContextStore | None = None,
    ) -> None:
        self._config = config
        self._cluster = Cluster(
            parse_bootstrap(bootstrap_servers), config, world or real_world(), consistency=consistency
        )

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

        async def ask() -> None:
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
            await self._cluster.retrying("create topics", ask)
        raise_first(_creation_error(row) for row in answers.values())
        return [created(row) for row in answers.values()]

    async def delete_topics(self, topics: Iterable[str]) -> None:
        """Delete topics by name, each on its own.

        Raises:
            UnknownTopicError: there is no such topic.
            KafkaError: one was refused; says why. The others were deleted all the same.
        """
        names = list(topics)

        async def ask() -> None:
            connection = await self._controller()
            version = connection.versions.version(ApiKey.DELETE_TOPICS)
            request = DeleteTopicsRequest(topic_names=names, timeout_ms=self._config.request_timeout_ms)
            if version >= _FIRST_DELETE_VERSION_WITH_STATES:
                request.topics = [DeleteTopicState(name=name) for name in names]
            response = await self._request(connection, request, DeleteTopicsResponse)
            raise_first(refused(row.error_code, f"topic {row.name!r}", row.error_message) for row in response.responses)

        if names:
            await self._cluster.retrying("delete topics", ask)

    async def list_topics(self) -> list[TopicListing]:
        """All topics, sorted by name."""

        async def ask() -> list[TopicListing]:
            response = await self._cluster.fetch_metadata(None)
            views = self._cluster.metadata.topics
            names = sorted(topic.name for topic in response.topics if topic.name is not None and topic.name in views)
            return [
                TopicListing(name, id_text(views[name]), views[name].is_internal, views[name].partition_count)
                for name in names
            ]

        return await self._cluster.retrying("list topics", ask)

    async def describe_topics(self, topics: Iterable[str] | None = None) -> dict[str, TopicDescription]:
        """Topics with their partitions, by name: these, or all that there are.

        Raises:
            UnknownTopicError: there is no such topic.
        """
        names = None if topics is None else list(topics)

        async def ask() -> dict[str, TopicDescription]:
            await self._cluster.fetch_metadata(names)
            metadata = self._cluster.metadata
            wanted = sorted(metadata.topics) if names is None else names
            for name in wanted:
                if name not in metadata.topics:
                    code = metadata.errors.get(name, Code.UNKNOWN_TOPIC_OR_PARTITION)
                    raise_first([refused(code, f"topic {name!r}", None)])
            return {name: described(metadata.topics[name]) for name in wanted}

        return await self._cluster.retrying("describe topics", ask)

    async def describe_cluster(self, *, include_fenced_brokers: bool = False) -> ClusterDescription:
        """The cluster's id, its brokers, and the one that takes requests for the controller."""

        async def ask() -> ClusterDescription:
            connection = await self._cluster.any_broker()
            request = DescribeClusterRequest(include_fenced_brokers=include_fenced_brokers)
            try:
                response = await self._request(connection, request, DescribeClusterResponse)
            except UnsupportedVersionError:
                if include_fenced_brokers:
                    raise
                return await self._describe_by_metadata()
            raise_first([refused(response.error_code, "the cluster", response.error_message)])
            brokers = [
                BrokerDescription(row.broker_id, row.host, row.port, row.rack, row.is_fenced)
                for row in sorted(response.brokers, key=lambda row: row.broker_id)
            ]
            controller_id = response.controller_id if response.controller_id >= 0 else None
            return ClusterDescription(response.cluster_id or None, controller_id, tuple(brokers))

        return await self._cluster.retrying("describe the cluster", ask)

    async def describe_configs(
        self, resources: Iterable[ConfigResource], *, include_documentation: bool = False
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Configurations, by key, with defaults.

        Raises:
            UnknownTopicError: there is no such topic.
            KafkaError: one was refused; says why.
        """
        wanted = [ConfigResource(*resource) for resource in resources]
        rows = [DescribeConfigsResource(_RESOURCE_TYPES[kind], name) for kind, name in wanted]
        request = DescribeConfigsRequest(resources=rows, include_documentation=include_documentation)

        async def ask(connection: Connection, asked: Sequence[ConfigResource]) -> list[dict[str, ConfigEntry]]:
            request.resources = [rows[wanted.index(resource)] for resource in asked]
            request.include_documentation = include_documentation and connection.versions.serves(
                ApiKey.DESCRIBE_CONFIGS, 3
            )
            response = await self._request(connection, request, DescribeConfigsResponse)
            found = {(row.resource_type, row.resource_name): row for row in response.results}
            entries = []
            for resource in asked:
                row = found.get((_RESOURCE_TYPES[resource.type], resource.name))
                code = Code.UNKNOWN_SERVER_ERROR if row is None else row.error_code
                message = "the answer leaves it out" if row is None else row.error_message
                raise_first([refused(code, f"{resource.type} {resource.name!r}", message)])
                assert row is not None
                entries.append({config.name: config_entry(config) for config in row.configs})
            return entries

        async def ask_all() -> dict[ConfigResource, dict[str, ConfigEntry]]:
            found: dict[ConfigResource, dict[str, ConfigEntry]] = {}
            anywhere = [resource for resource in wanted if resource.type == "topic" or not resource.name]
            if anywhere:
                found.update(zip(anywhere, await ask(await self._cluster.any_broker(), anywhere), strict=True))
            for resource in wanted:  # a broker tells its own configuration only
                if resource not in found:
                    connection = await self._broker(resource.name)
                    found[resource] = (await ask(connection, [resource]))[0]
            return found

        return await self._cluster.retrying("describe configurations", ask_all)

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

        async def ask() -> None:
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
            await self._cluster.retrying("create partitions", ask)
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

        async def ask(connection: Connection, resources: list[ConfigResource]) -> list[KafkaError | None]:
            rows = [
                AlterConfigsResource(
                    _RESOURCE_TYPES[resource.type],
                    resource.name,
                    [
                        AlterableConfig(key, OPERATION_DELETE if value is None else OPERATION_SET, value)
                        for key, value in changes[resource].items()
                    ],
                )
                for resource in resources
            ]
            request = IncrementalAlterConfigsRequest(resources=rows, validate_only=validate_only)
            response = await self._request(connection, request, IncrementalAlterConfigsResponse)
            kinds = {number: kind for kind, number in _RESOURCE_TYPES.items()}
            return [
                refused(row.error_code, f"{kinds.get(row.resource_type)} {row.resource_name!r}", row.error_message)
                for row in response.responses
            ]

        async def ask_all() -> None:
            errors: list[KafkaError | None] = []
            anywhere = [resource for resource in changes if resource.type == "topic" or not resource.name]
            if anywhere:
                errors += await ask(await self._controller(), anywhere)
            for resource in changes:  # a broker checks its own configuration
                if resource not in anywhere:
                    errors += await ask(await self._broker(resource.name), [resource])
            raise_first(errors)

        if changes:
            await self._cluster.retrying("alter configurations", ask_all)

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

    async def close(self) -> None:
        """Disconnect. A second call does nothing."""
        await self._cluster.close()

    # How.
    def _groups(self) -> GroupAdministration:
        return GroupAdministration(self._cluster, request_timeout_ms=self._config.request_timeout_ms)

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

    async def _broker(self, name: str) -> Connection:
        await self._cluster.fetch_metadata([])
        brokers = self._cluster.metadata.brokers
        for broker_id in brokers:
            if str(broker_id) == name:
                return await self._cluster.broker(broker_id)
        known = ", ".join(map(str, sorted(brokers)))
        raise KafkaError(f"there is no broker {name!r}: there are {known}", code=Code.RESOURCE_NOT_FOUND)

    async def _describe_by_metadata(self) -> ClusterDescription:
        """For brokers before 2.8, which do not serve DescribeCluster."""
        await self._cluster.fetch_metadata([])
        metadata = self._cluster.metadata
        brokers = [
            BrokerDescription(found.broker_id, found.host, found.port, found.rack)
            for _, found in sorted(metadata.brokers.items())
        ]
        return ClusterDescription(metadata.cluster_id, metadata.controller_id, tuple(brokers))


def _creation_error(row: CreatableTopicResult) -> KafkaError | None:
    return refused(row.error_code, f"topic {row.name!r}", row.error_message)
