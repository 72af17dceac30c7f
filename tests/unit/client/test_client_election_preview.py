"""What an unclean election would do: who would lead, what would be lost, and which groups have read it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from support.fixtures.model_cluster import ModelCluster
from support.fixtures.modelled_admin import run
from tidelog import TopicPartition, aio
from tidelog.base.errors import Code, KafkaError, NetworkError
from tidelog.base.ids import BrokerId, LeaderEpoch, PartitionEpoch, PartitionIndex
from tidelog.client.admin.cluster_descriptions import EpochSpan, ReplicaLineage
from tidelog.client.admin.descriptions import PartitionDescription
from tidelog.client.admin.election_preview import election_preview, would_lead
from tidelog.controller.partition_changes import elected
from tidelog.metadata.image import PartitionImage
from tidelog.wire import ApiKey
from tidelog.wire.messages import api_09_offset_fetch as fetch
from tidelog.wire.messages import api_10_find_coordinator as find
from tidelog.wire.messages import api_16_list_groups as listing
from tidelog.wire.messages import api_75_describe_topic_partitions as describe

P0 = TopicPartition("t", PartitionIndex(0))


def partition(
    *replicas: int, isr: tuple[int, ...] = (), eligible: tuple[int, ...] = (), known: tuple[int, ...] = ()
) -> PartitionDescription:
    return PartitionDescription(0, None, 7, replicas, isr, (), eligible, known)


def log(broker_id: int, *spans: tuple[int, int, int]) -> ReplicaLineage:
    return ReplicaLineage(broker_id, tuple(EpochSpan(*span) for span in spans))


def down(broker_id: int) -> ReplicaLineage:
    return ReplicaLineage(broker_id, (), NetworkError("it is down"))


brokers = st.permutations([1, 2, 3, 4])
some = st.sets(st.sampled_from([1, 2, 3, 4]))


@given(brokers, some, some, some, some)
def test_who_would_lead_is_who_the_controller_elects(
    replicas: list[int], isr: set[int], eligible: set[int], known: set[int], alive: set[int]
) -> None:
    def ids(found: set[int]) -> tuple[BrokerId, ...]:
        return tuple(BrokerId(one) for one in replicas if one in found)

    image = PartitionImage(
        replicas=ids(set(replicas)),
        isr=ids(isr),
        leader=None,
        leader_epoch=LeaderEpoch(7),
        partition_epoch=PartitionEpoch(3),
        eligible_leader_replicas=ids(eligible - isr),
        last_known_eligible_leader_replicas=ids(known - isr - eligible),
    )
    state = partition(
        *image.replicas,
        isr=image.isr,
        eligible=image.eligible_leader_replicas,
        known=image.last_known_eligible_leader_replicas,
    )
    led = elected(image, min_insync_replicas=2, is_active=lambda one: one in alive, is_unclean_allowed=True)
    assert would_lead(state, alive) == (None if led is None else led.leader)


def test_what_a_candidate_lacks_is_lost_if_it_leads() -> None:
    replicas = {1: log(1, (3, 0, 10)), 2: log(2, (3, 0, 10), (5, 10, 20)), 3: down(3)}
    found = election_preview(partition(1, 2, 3, isr=(3,)), replicas, [1, 2], {"shop": 15, "slow": 10}, None)
    assert (found.would_lead, found.unknown) == (1, (3,))
    stale, longest, away = found.candidates
    assert (stale.end_offset, stale.last_epoch, stale.lost_from, stale.lost_end_offset) == (10, 3, 10, 20)
    assert (stale.lost_count, stale.groups) == (10, {"shop": 15})
    assert (longest.end_offset, longest.lost_count, longest.groups) == (20, 0, {})
    assert not away.is_alive
    assert (away.end_offset, away.groups) == (None, None)
    assert found.loses_less is longest


def test_nobody_loses_less_than_the_elected_who_is_dead_or_holds_no_more() -> None:
    replicas = {1: log(1, (3, 0, 10)), 2: log(2, (3, 0, 20))}
    assert election_preview(partition(1, 2), replicas, [1], {}, None).loses_less is None
    assert election_preview(partition(2, 1), replicas, [1, 2], {}, None).loses_less is None
    assert election_preview(partition(1, 2, eligible=(1,)), replicas, [1, 2], {}, None).loses_less is None


def test_a_candidate_whose_history_differs_loses_from_there_on() -> None:
    """It is longer than the other one, and lacks five records all the same."""
    replicas = {1: log(1, (3, 0, 10), (5, 10, 30)), 2: log(2, (3, 0, 12), (6, 12, 15))}
    found = election_preview(partition(1, 2), replicas, [1, 2], {"shop": 11}, None)
    first, second = found.candidates
    assert (first.lost_from, first.lost_end_offset, first.groups) == (10, 15, {"shop": 11})
    assert (second.lost_from, second.lost_end_offset) == (10, 30)


def test_who_is_in_sync_or_eligible_loses_nothing() -> None:
    replicas = {1: log(1, (3, 0, 10)), 2: log(2, (3, 0, 12))}
    found = election_preview(partition(1, 2, eligible=(1,)), replicas, [1, 2], {}, None)
    assert found.elected is found.candidates[0]
    assert found.elected.is_clean
    assert found.elected.lost_count == 0


def test_an_empty_log_lacks_all_that_others_still_have() -> None:
    replicas = {1: log(1), 2: log(2, (3, 40, 50))}
    found = election_preview(partition(1, 2), replicas, [1], {"shop": 45}, None)
    assert (found.candidates[0].lost_from, found.candidates[0].lost_end_offset) == (40, 50)
    assert (found.candidates[0].end_offset, found.candidates[0].groups) == (0, {"shop": 45})


def test_a_replica_in_a_failed_directory_cannot_lead() -> None:
    failed = ReplicaLineage(1, (), KafkaError("offline", code=Code.KAFKA_STORAGE_ERROR))
    found = election_preview(partition(1, 2), {1: failed, 2: log(2, (3, 0, 9))}, [1, 2], {}, None)
    assert found.would_lead == 2


# What is asked.


def described(topic: str, *partitions: describe.DescribeTopicPartitionsResponsePartition) -> Any:
    return describe.DescribeTopicPartitionsResponseTopic(name=topic, partitions=list(partitions))


def without_leader(index: int) -> describe.DescribeTopicPartitionsResponsePartition:
    return describe.DescribeTopicPartitionsResponsePartition(
        partition_index=index, leader_id=-1, leader_epoch=0, replica_nodes=[1, 2], isr_nodes=[2], offline_replicas=[2]
    )


def led_by(leader_id: int, *, index: int = 0) -> describe.DescribeTopicPartitionsResponsePartition:
    return describe.DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=leader_id,
        leader_epoch=0,
        replica_nodes=[1],
        isr_nodes=[1],
        offline_replicas=[],
    )


def script(cluster: ModelCluster, groups: dict[str, int | Code], *, offsets_leader: int = 1) -> None:
    """A topic of two partitions, the first without a leader; groups with what each committed there, or an error."""
    cluster.create("t", 2).append(b"a", b"b")
    rows = {"t": [without_leader(0), led_by(1, index=1)], "__consumer_offsets": [led_by(offsets_leader)]}
    topics = {name: described(name, *its) for name, its in rows.items()}

    def describes(request: describe.DescribeTopicPartitionsRequest, version: int) -> Any:
        return describe.DescribeTopicPartitionsResponse(topics=[topics[one.name] for one in request.topics])

    def fetches(request: fetch.OffsetFetchRequest, version: int) -> Any:
        asked = request.groups[0]
        committed = groups[asked.group_id]
        if isinstance(committed, Code):
            return fetch.OffsetFetchResponse(
                groups=[fetch.OffsetFetchResponseGroup(group_id=asked.group_id, error_code=committed)]
            )
        row = fetch.OffsetFetchResponsePartition(partition_index=0, committed_offset=committed)
        topic = fetch.OffsetFetchResponseTopic(name="t", partitions=[row])
        return fetch.OffsetFetchResponse(
            groups=[fetch.OffsetFetchResponseGroup(group_id=asked.group_id, topics=[topic])]
        )

    listed = [listing.ListedGroup(group_id=one, protocol_type="consumer") for one in groups]
    cluster.on(ApiKey.DESCRIBE_TOPIC_PARTITIONS, describes)
    cluster.on(ApiKey.LIST_GROUPS, lambda request, version: listing.ListGroupsResponse(groups=listed))
    cluster.on(
        ApiKey.FIND_COORDINATOR,
        lambda request, version: find.FindCoordinatorResponse(
            coordinators=[find.Coordinator(key, 1) for key in request.coordinator_keys]
        ),
    )
    cluster.versions[ApiKey.OFFSET_FETCH] = (8, 8)
    cluster.on(ApiKey.OFFSET_FETCH, fetches)


def test_only_what_has_no_leader_is_previewed() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        script(cluster, {"shop": 3, "slow": 2})
        previews = await admin.preview_unclean_election([P0, TopicPartition("t", PartitionIndex(1))])
        assert list(previews) == [P0]
        found = previews[P0]
        assert (found.would_lead, found.unknown, found.groups_unknown) == (1, (2,), None)
        assert (found.candidates[0].end_offset, found.candidates[0].groups) == (2, {"shop": 3})

    run(work)


def test_a_group_that_cannot_be_asked_is_said() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        script(cluster, {"secret": Code.GROUP_AUTHORIZATION_FAILED, "shop": 3})
        found = (await admin.preview_unclean_election([P0]))[P0]
        assert found.candidates[0].groups == {"shop": 3}
        assert (found.groups_unknown or "").startswith("1 of 2 groups did not answer (")

    run(work)


def test_a_coordinator_that_does_not_come_is_waited_for_no_longer_than_the_timeout() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        script(cluster, {"late": Code.COORDINATOR_LOAD_IN_PROGRESS, "shop": 3})
        found = (await admin.preview_unclean_election([P0]))[P0]
        assert found.candidates[0].groups == {"shop": 3}
        assert "1 of 2 groups did not answer" in (found.groups_unknown or "")

    run(work, default_api_timeout_ms=300)


def test_groups_that_nobody_coordinates_are_said() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        script(cluster, {"shop": 3}, offsets_leader=-1)
        found = (await admin.preview_unclean_election([P0]))[P0]
        assert found.groups_unknown == "nobody leads 1 of 1 partitions of __consumer_offsets"

    run(work)
