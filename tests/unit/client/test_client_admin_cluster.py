"""The admin client and the cluster itself: what is asked, what answers mean, and what is tried again."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from support.fixtures.model_cluster import ModelCluster
from support.fixtures.modelled_admin import in_turn, run
from support.fixtures.scripted_broker import HANG_UP
from tidelog import Admin, KafkaError, TopicPartition, UnknownTopicError, UnsupportedVersionError, aio
from tidelog.base.errors import Code
from tidelog.base.ids import PartitionIndex, uuid_text
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.cluster_descriptions import Endpoint, FeatureDescription, FeatureUpdate, QuorumReplica
from tidelog.wire import ApiKey
from tidelog.wire.messages import api_03_metadata as metadata
from tidelog.wire.messages import api_18_api_versions as api_versions
from tidelog.wire.messages import api_23_offset_for_leader_epoch as epoch_end
from tidelog.wire.messages import api_43_elect_leaders as elect
from tidelog.wire.messages import api_55_describe_quorum as quorum
from tidelog.wire.messages import api_57_update_features as features
from tidelog.wire.messages import api_64_unregister_broker as unregister
from tidelog.wire.messages import api_75_describe_topic_partitions as partitions
from tidelog.wire.messages import api_80_add_raft_voter as add_voter
from tidelog.wire.messages import api_81_remove_raft_voter as remove_voter

P0 = TopicPartition("t", PartitionIndex(0))
P1 = TopicPartition("t", PartitionIndex(1))
DIRECTORY = UUID(int=7)


def test_the_quorum_is_described_when_its_leader_is_found() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        row = quorum.QuorumPartition(
            leader_id=2,
            leader_epoch=5,
            high_watermark=40,
            current_voters=[
                quorum.ReplicaState(replica_id=2, replica_directory_id=DIRECTORY, log_end_offset=41),
                quorum.ReplicaState(
                    replica_id=1, log_end_offset=40, last_fetch_timestamp=9, last_caught_up_timestamp=8
                ),
            ],
            observers=[quorum.ReplicaState(replica_id=4)],
        )
        listener = quorum.Node(1, [quorum.Listener("CONTROLLER", "10.0.0.1", 9093)])
        away = quorum.QuorumPartition(error_code=Code.NOT_LEADER_OR_FOLLOWER)
        cluster.on(
            ApiKey.DESCRIBE_QUORUM,
            in_turn(
                quorum.DescribeQuorumResponse(error_code=Code.NOT_CONTROLLER),
                quorum.DescribeQuorumResponse(topics=[quorum.QuorumTopic("__cluster_metadata", [away])]),
                quorum.DescribeQuorumResponse(
                    topics=[quorum.QuorumTopic("__cluster_metadata", [row])], nodes=[listener]
                ),
            ),
        )
        found = await admin.describe_quorum()
        assert (found.leader_id, found.leader_epoch, found.high_watermark) == (2, 5, 40)
        assert found.voters == (
            QuorumReplica(1, None, 40, 9, 8),
            QuorumReplica(2, uuid_text(DIRECTORY), 41, None, None),
        )
        assert found.observers == (QuorumReplica(4, None, None, None, None),)
        assert found.endpoints == {1: (Endpoint("CONTROLLER", "10.0.0.1", 9093),)}
        [first, *_] = cluster.messages(ApiKey.DESCRIBE_QUORUM)
        assert [(topic.topic_name, topic.partitions[0].partition_index) for topic in first.topics] == [
            ("__cluster_metadata", 0)
        ]

    run(work)


@pytest.mark.parametrize("lost", [HANG_UP, Code.REQUEST_TIMED_OUT], ids=["hang up", "time out"])
def test_a_voter_that_was_added_by_a_lost_request_is_no_failure(lost: Any) -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        first = lost if lost is HANG_UP else add_voter.AddRaftVoterResponse(error_code=lost)
        again = add_voter.AddRaftVoterResponse(error_code=Code.DUPLICATE_VOTER)
        cluster.on(ApiKey.ADD_RAFT_VOTER, in_turn(first, again))
        await admin.add_raft_voter(4, uuid_text(DIRECTORY), [Endpoint("CONTROLLER", "h", 1)])
        request = cluster.messages(ApiKey.ADD_RAFT_VOTER)[0]
        assert (request.voter_id, request.voter_directory_id) == (4, DIRECTORY)
        assert [(one.name, one.host, one.port) for one in request.listeners] == [("CONTROLLER", "h", 1)]

    run(work)


def test_a_voter_that_was_there_before_is_refused_at_once() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        answer = add_voter.AddRaftVoterResponse(error_code=Code.DUPLICATE_VOTER, error_message="it votes")
        cluster.on(ApiKey.ADD_RAFT_VOTER, in_turn(answer))
        with pytest.raises(KafkaError, match=r"voter 4: it votes \(DUPLICATE_VOTER\)"):
            await admin.add_raft_voter(4, uuid_text(DIRECTORY), [])

    run(work)


def test_a_voter_is_removed_though_the_answer_was_lost() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        gone = remove_voter.RemoveRaftVoterResponse(error_code=Code.VOTER_NOT_FOUND)
        cluster.on(ApiKey.REMOVE_RAFT_VOTER, in_turn(HANG_UP, gone))
        await admin.remove_raft_voter(4, uuid_text(DIRECTORY))
        with pytest.raises(KafkaError, match="voter 4"):
            await admin.remove_raft_voter(4, uuid_text(DIRECTORY))

    run(work)


def test_elections_are_answered_partition_by_partition() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        rows = [elect.PartitionResult(1, Code.ELECTION_NOT_NEEDED, "it leads"), elect.PartitionResult(0)]
        cluster.on(
            ApiKey.ELECT_LEADERS,
            in_turn(
                elect.ElectLeadersResponse(error_code=Code.NOT_CONTROLLER),
                elect.ElectLeadersResponse(replica_election_results=[elect.ReplicaElectionResult("t", rows)]),
            ),
        )
        found = await admin.elect_leaders("unclean", [P0, P1])
        assert list(found) == [P0, P1]
        assert found[P0] is None
        error = found[P1]
        assert error is not None
        assert (error.code, str(error)) == (Code.ELECTION_NOT_NEEDED, "t-1: it leads (ELECTION_NOT_NEEDED)")
        request = cluster.messages(ApiKey.ELECT_LEADERS)[-1]
        assert request.election_type == elect.UNCLEAN
        assert [(topic.topic, topic.partitions) for topic in request.topic_partitions] == [("t", [0, 1])]
        await admin.elect_leaders("preferred")
        assert cluster.messages(ApiKey.ELECT_LEADERS)[-1].topic_partitions is None

    run(work)


def test_a_broker_that_knows_one_kind_of_election_is_not_asked_for_the_other() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        cluster.versions[ApiKey.ELECT_LEADERS] = (0, 0)
        cluster.on(ApiKey.ELECT_LEADERS, in_turn(elect.ElectLeadersResponse()))
        assert await admin.elect_leaders("preferred") == {}
        with pytest.raises(UnsupportedVersionError):
            await admin.elect_leaders("unclean")

    run(work)


def test_features_are_those_supported_and_those_in_force() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        def answer(request: api_versions.ApiVersionsRequest, version: int) -> api_versions.ApiVersionsResponse:
            return api_versions.ApiVersionsResponse(
                api_keys=[api_versions.ApiVersion(key, *found) for key, found in cluster.versions.items()],
                supported_features=[
                    api_versions.SupportedFeatureKey("metadata.version", 7, 21),
                    api_versions.SupportedFeatureKey("kraft.version", 0, 1),
                ],
                finalized_features_epoch=12,
                finalized_features=[
                    api_versions.FinalizedFeatureKey("metadata.version", 20, 20),
                    api_versions.FinalizedFeatureKey("of.others", 1, 1),
                ],
            )

        cluster.on(ApiKey.API_VERSIONS, answer)
        assert await admin.describe_features() == {
            "kraft.version": FeatureDescription("kraft.version", (0, 1), None),
            "metadata.version": FeatureDescription("metadata.version", (7, 21), 20),
            "of.others": FeatureDescription("of.others", None, 1),
        }

    run(work)


@pytest.mark.parametrize("version", [1, 2])
def test_a_feature_that_cannot_be_changed_says_why(version: int) -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        cluster.versions[ApiKey.UPDATE_FEATURES] = (0, version)
        code, why = Code.INVALID_UPDATE_VERSION, "node 3 is too old"
        answer = features.UpdateFeaturesResponse(error_code=code, error_message=why)
        if version == 1:
            answer = features.UpdateFeaturesResponse(results=[features.UpdatableFeatureResult("m", code, why)])
        cluster.on(ApiKey.UPDATE_FEATURES, in_turn(answer))
        with pytest.raises(KafkaError, match="node 3 is too old"):
            await admin.update_features({"m": FeatureUpdate(9, "safe downgrade")}, validate_only=True)
        [request] = cluster.messages(ApiKey.UPDATE_FEATURES)
        [row] = request.feature_updates
        assert (row.feature, row.max_version_level, row.upgrade_type) == ("m", 9, features.SAFE_DOWNGRADE)
        assert request.validate_only

    run(work)


def test_a_broker_is_unregistered_by_the_controller() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        cluster.on(
            ApiKey.UNREGISTER_BROKER,
            in_turn(
                unregister.UnregisterBrokerResponse(error_code=Code.NOT_CONTROLLER),
                unregister.UnregisterBrokerResponse(),
            ),
        )
        await admin.unregister_broker(3)
        assert [request.broker_id for request in cluster.messages(ApiKey.UNREGISTER_BROKER)] == [3, 3]

    run(work)


def test_eligible_leaders_come_piece_by_piece() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        def piece(index: int, after: partitions.Cursor | None) -> partitions.DescribeTopicPartitionsResponse:
            row = partitions.DescribeTopicPartitionsResponsePartition(
                partition_index=index,
                leader_id=-1,
                leader_epoch=3,
                replica_nodes=[1, 2, 3],
                isr_nodes=[],
                eligible_leader_replicas=[2] if index else None,
                last_known_elr=[1] if index else None,
                offline_replicas=[1, 3],
            )
            topic = partitions.DescribeTopicPartitionsResponseTopic(name="t", topic_id=DIRECTORY, partitions=[row])
            return partitions.DescribeTopicPartitionsResponse(topics=[topic], next_cursor=after)

        cluster.on(ApiKey.DESCRIBE_TOPIC_PARTITIONS, in_turn(piece(0, partitions.Cursor("t", 1)), piece(1, None)))
        found = (await admin.describe_topics(["t"], include_eligible_leaders=True))["t"]
        assert found.topic_id == uuid_text(DIRECTORY)
        zero, one = found.partitions
        assert (zero.leader, zero.eligible_leader_replicas) == (None, None)
        assert (one.eligible_leader_replicas, one.last_known_eligible_leader_replicas) == ((2,), (1,))
        asked = cluster.messages(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
        assert [request.cursor and request.cursor.partition_index for request in asked] == [None, 1]

    run(work)


def test_without_eligible_leaders_the_metadata_tells_the_rest() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        cluster.create("t")
        del cluster.versions[ApiKey.DESCRIBE_TOPIC_PARTITIONS]
        found = (await admin.describe_topics(["t"], include_eligible_leaders=True))["t"]
        assert found.partitions[0].leader == 1
        assert found.partitions[0].eligible_leader_replicas is None

    run(work)


def test_the_lineage_of_a_replica_is_asked_for_as_one_that_debugs_does() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        log = cluster.create("t")
        log.append(b"a", b"b")
        log.elect()
        log.elect()
        log.append(b"c")
        found = (await admin.describe_lineages([P0]))[P0]
        assert (found.leader_id, found.leader_epoch, found.isr) == (1, 2, (1,))
        assert found.replicas[1].spans == ((0, 0, 2), (2, 2, 3))
        for request in cluster.messages(ApiKey.OFFSET_FOR_LEADER_EPOCH):
            assert request.replica_id == epoch_end.DEBUGGING_CONSUMER_REPLICA_ID
            assert [row.current_leader_epoch for topic in request.topics for row in topic.partitions] == [-1]
        with pytest.raises(UnknownTopicError, match="t-1"):
            await admin.describe_lineages([P1])
        with pytest.raises(UnknownTopicError, match="nope"):
            await admin.describe_lineages([TopicPartition("nope", PartitionIndex(0))])

    run(work)


def test_a_replica_that_does_not_tell_is_an_answer_too() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        cluster.create("t")

        def refuse(
            request: epoch_end.OffsetForLeaderEpochRequest, version: int
        ) -> epoch_end.OffsetForLeaderEpochResponse:
            row = epoch_end.EpochEndOffset(partition=0, error_code=Code.NOT_LEADER_OR_FOLLOWER)
            return epoch_end.OffsetForLeaderEpochResponse(topics=[epoch_end.OffsetForLeaderTopicResult("t", [row])])

        cluster.on(ApiKey.OFFSET_FOR_LEADER_EPOCH, refuse)
        replica = (await admin.describe_lineages([P0]))[P0].replicas[1]
        assert replica.spans == ()
        assert "NOT_LEADER_OR_FOLLOWER" in str(replica.error)

    run(work)


def test_who_passed_a_change_on_is_asked_what_came_of_it() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        async with ModelCluster() as other:
            brokers = [
                metadata.MetadataResponseBroker(1, "127.0.0.1", cluster.port),
                metadata.MetadataResponseBroker(2, "127.0.0.1", other.port),
            ]

            def answer(request: metadata.MetadataRequest, version: int) -> metadata.MetadataResponse:
                return metadata.MetadataResponse(brokers=brokers, cluster_id="two", controller_id=2)

            for each in (cluster, other):
                each.on(ApiKey.METADATA, answer)
            other.on(ApiKey.UNREGISTER_BROKER, in_turn(unregister.UnregisterBrokerResponse()))
            assert await admin.list_topics() == []
            asked = len(cluster.requests)
            await admin.unregister_broker(3)
            for _ in range(3):
                await admin.list_topics()
            assert len(cluster.requests) == asked
            await other.stop()
            await admin.list_topics()
            assert len(cluster.requests) > asked

    run(work)


def test_the_blocking_client_has_every_method_of_the_other() -> None:
    public = {name for name in dir(AsyncAdmin) if not name.startswith("_")}
    assert public == {name for name in dir(Admin) if not name.startswith("_")}
