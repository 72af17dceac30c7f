"""How an Admin asks for the cluster itself, and changes it: brokers, quorum, elections, features."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from tidelog.base.errors import Code, KafkaError, NetworkError, TidelogError, UnsupportedVersionError
from tidelog.base.ids import PartitionIndex, TopicPartition, parse_uuid, uuid_text
from tidelog.client.admin.cluster_descriptions import (
    ElectionType,
    Endpoint,
    FeatureDescription,
    FeatureUpdate,
    QuorumDescription,
    QuorumReplica,
)
from tidelog.client.admin.descriptions import BrokerDescription, ClusterDescription
from tidelog.client.cluster import Cluster
from tidelog.client.refusals import raise_first, refused
from tidelog.net.connection import Connection
from tidelog.wire.messages.api_18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.api_43_elect_leaders import (
    PREFERRED,
    UNCLEAN,
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from tidelog.wire.messages.api_55_describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
    ReplicaState,
)
from tidelog.wire.messages.api_57_update_features import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tidelog.wire.messages.api_60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidelog.wire.messages.api_64_unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from tidelog.wire.messages.api_80_add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from tidelog.wire.messages.api_81_remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

R = TypeVar("R")

METADATA_TOPIC = "__cluster_metadata"
_ELECTION_TYPES = {"preferred": PREFERRED, "unclean": UNCLEAN}
_UPGRADE_TYPES = {"upgrade": UPGRADE, "safe downgrade": SAFE_DOWNGRADE, "unsafe downgrade": UNSAFE_DOWNGRADE}
_API_VERSIONS_WITH_FEATURES = 3
_UPDATE_FEATURES_WITH_TYPES = 1
_ELECT_LEADERS_WITH_TYPES = 1


class ClusterAdministration:
    """See `AsyncAdmin`, whose methods these are.

    Args:
        request_timeout_ms: of one request; `cluster` knows how long all attempts may take together.
    """

    def __init__(self, cluster: Cluster, *, request_timeout_ms: int) -> None:
        self._cluster = cluster
        self._request_timeout_ms = request_timeout_ms

    # Brokers.
    async def describe_cluster(self, *, include_fenced_brokers: bool) -> ClusterDescription:
        async def send_request() -> ClusterDescription:
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

        return await self._cluster.retrying("describe the cluster", send_request)

    async def unregister_broker(self, broker_id: int) -> None:
        async def send_request() -> None:
            request = UnregisterBrokerRequest(broker_id=broker_id)
            response = await self._request(await self._controller(), request, UnregisterBrokerResponse)
            raise_first([refused(response.error_code, f"broker {broker_id}", response.error_message)])

        await self._cluster.retrying("unregister a broker", send_request)

    # The quorum.
    async def describe_quorum(self) -> QuorumDescription:
        return await self._cluster.retrying("describe the quorum", self._describe_quorum_once)

    async def _describe_quorum_once(self) -> QuorumDescription:
        requested = DescribeQuorumTopic(METADATA_TOPIC, [DescribeQuorumPartition(0)])
        request = DescribeQuorumRequest(topics=[requested])
        response = await self._request(await self._controller(), request, DescribeQuorumResponse)
        raise_first([refused(response.error_code, "the quorum", response.error_message)])
        rows = [row for topic in response.topics for row in topic.partitions]
        raise_first(refused(row.error_code, "the quorum", row.error_message) for row in rows)
        if not rows:
            raise_first([refused(Code.UNKNOWN_SERVER_ERROR, "the quorum", "the answer leaves it out")])
        [row] = rows
        return QuorumDescription(
            row.leader_id if row.leader_id >= 0 else None,
            row.leader_epoch,
            row.high_watermark if row.high_watermark >= 0 else None,
            tuple(map(_replica, sorted(row.current_voters, key=lambda state: state.replica_id))),
            tuple(map(_replica, sorted(row.observers, key=lambda state: state.replica_id))),
            {
                node.node_id: tuple(Endpoint(each.name, each.host, each.port) for each in node.listeners)
                for node in response.nodes
            },
        )

    async def _why_uncontrolled(self) -> str | None:
        """What is wrong with the quorum, for an answer that has no room to say so; None if that is not known."""
        try:
            await self._describe_quorum_once()
        except TidelogError as error:
            return str(error) if isinstance(error, KafkaError) and error.code is Code.REQUEST_TIMED_OUT else None
        return None

    async def add_raft_voter(
        self, voter_id: int, directory_id: str, endpoints: Iterable[Endpoint], *, cluster_id: str | None
    ) -> None:
        request = AddRaftVoterRequest(
            cluster_id=cluster_id,
            timeout_ms=self._request_timeout_ms,
            voter_id=voter_id,
            voter_directory_id=parse_uuid(directory_id),
            listeners=[Listener(*endpoint) for endpoint in endpoints],
        )

        async def send_request() -> KafkaError | None:
            response = await self._request(await self._controller(), request, AddRaftVoterResponse)
            return refused(response.error_code, f"voter {voter_id}", response.error_message)

        await self._once("add a voter", send_request, Code.DUPLICATE_VOTER)

    async def remove_raft_voter(self, voter_id: int, directory_id: str, *, cluster_id: str | None) -> None:
        request = RemoveRaftVoterRequest(
            cluster_id=cluster_id, voter_id=voter_id, voter_directory_id=parse_uuid(directory_id)
        )

        async def send_request() -> KafkaError | None:
            response = await self._request(await self._controller(), request, RemoveRaftVoterResponse)
            return refused(response.error_code, f"voter {voter_id}", response.error_message)

        await self._once("remove a voter", send_request, Code.VOTER_NOT_FOUND)

    # Elections.
    async def elect_leaders(
        self, election_type: ElectionType, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, KafkaError | None]:
        wanted = None
        if partitions is not None:
            by_topic: dict[str, list[int]] = {}
            for partition in partitions:
                by_topic.setdefault(partition.topic, []).append(partition.partition)
            wanted = [TopicPartitions(topic, indexes) for topic, indexes in by_topic.items()]

        async def send_request() -> dict[TopicPartition, KafkaError | None]:
            request = ElectLeadersRequest(
                topic_partitions=wanted,
                timeout_ms=self._request_timeout_ms,
                election_type=_ELECTION_TYPES[election_type],
            )
            response = await self._request(
                await self._controller(),
                request,
                ElectLeadersResponse,
                min_version=0 if election_type == "preferred" else _ELECT_LEADERS_WITH_TYPES,
            )
            if response.error_code == Code.REQUEST_TIMED_OUT:
                rows = (row for topic in response.replica_election_results for row in topic.partition_result)
                why = next((row.error_message for row in rows if row.error_message), None)
                raise_first([refused(response.error_code, "the election", why or await self._why_uncontrolled())])
            raise_first([refused(response.error_code, "the election", None)])
            results = {}
            for topic in response.replica_election_results:
                for row in topic.partition_result:
                    partition = TopicPartition(topic.topic, PartitionIndex(row.partition_id))
                    results[partition] = refused(row.error_code, str(partition), row.error_message)
            raise_first(error for error in results.values() if error is not None and error.code is Code.NOT_CONTROLLER)
            return dict(sorted(results.items()))

        return await self._cluster.retrying("elect leaders", send_request)

    # Features.
    async def describe_features(self) -> dict[str, FeatureDescription]:
        async def send_request() -> dict[str, FeatureDescription]:
            if self._cluster.seen.has_store and self._cluster.seen.token is None:
                await self._cluster.fetch_metadata([])  # the answer below says of no cluster
            connection = await self._cluster.any_broker()
            before = self._cluster.seen.token
            response = await self._request(
                connection,
                ApiVersionsRequest(client_software_name="tidelog", client_software_version="1"),
                ApiVersionsResponse,
                min_version=_API_VERSIONS_WITH_FEATURES,
            )
            raise_first([refused(response.error_code, "features", None)])
            self._cluster.see(connection, response.finalized_features_epoch, before)
            supported = {row.name: (row.min_version, row.max_version) for row in response.supported_features}
            in_force = {}
            if response.finalized_features_epoch >= 0:
                in_force = {row.name: row.max_version_level for row in response.finalized_features}
            return {
                name: FeatureDescription(name, supported.get(name), in_force.get(name) or None)
                for name in sorted({*supported, *in_force})
            }

        return await self._cluster.retrying("describe features", send_request)

    async def update_features(self, updates: Mapping[str, FeatureUpdate], *, validate_only: bool) -> None:
        rows = [
            FeatureUpdateKey(name, update.level, upgrade_type=_UPGRADE_TYPES[update.upgrade_type])
            for name, update in updates.items()
        ]

        async def send_request() -> None:
            request = UpdateFeaturesRequest(
                timeout_ms=self._request_timeout_ms, feature_updates=rows, validate_only=validate_only
            )
            response = await self._request(
                await self._controller(),
                request,
                UpdateFeaturesResponse,
                min_version=_UPDATE_FEATURES_WITH_TYPES,
            )
            raise_first([refused(response.error_code, "features", response.error_message)])
            raise_first(
                refused(row.error_code, f"feature {row.feature}", row.error_message) for row in response.results
            )

        if rows:
            await self._cluster.retrying("update features", send_request)

    # How.
    async def _request(self, connection: Connection, request: object, response: type[R], *, min_version: int = 0) -> R:
        return await connection.request(request, response, timeout_ms=self._request_timeout_ms, min_version=min_version)

    async def _controller(self) -> Connection:
        if self._cluster.metadata.controller_id is None:
            await self._cluster.fetch_metadata([])
        return await self._cluster.controller()

    async def _once(self, what: str, send_request: Callable[[], Awaitable[KafkaError | None]], done: Code) -> None:
        """Make a change that is refused with `done` where it was made: after a lost answer, that is success."""
        may_be_done = False

        async def attempt() -> None:
            nonlocal may_be_done
            try:
                error = await send_request()
            except NetworkError:
                may_be_done = True
                raise
            if error is not None and error.code is Code.REQUEST_TIMED_OUT:
                may_be_done = True
            if error is not None and not (may_be_done and error.code is done):
                raise error

        await self._cluster.retrying(what, attempt)

    async def _describe_by_metadata(self) -> ClusterDescription:
        """For brokers before 2.8, which do not serve DescribeCluster."""
        await self._cluster.fetch_metadata([])
        metadata = self._cluster.metadata
        brokers = [
            BrokerDescription(found.broker_id, found.host, found.port, found.rack)
            for _, found in sorted(metadata.brokers.items())
        ]
        return ClusterDescription(metadata.cluster_id, metadata.controller_id, tuple(brokers))


def _replica(state: ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        state.replica_id,
        uuid_text(state.replica_directory_id) if state.replica_directory_id.int else None,
        _known(state.log_end_offset),
        _known(state.last_fetch_timestamp),
        _known(state.last_caught_up_timestamp),
    )


def _known(number: int) -> int | None:
    return number if number >= 0 else None
