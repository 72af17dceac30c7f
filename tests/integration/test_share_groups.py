"""Share groups (KIP-932) of a cluster: group coordinators, share coordinators and leaders of partitions on any node."""

from __future__ import annotations

import pytest

from support.clients.wire_client import WireClient, batch_of
from support.fixtures.waiting import wait_until
from support.load.group_member import wait_for_coordinator
from support.load.share_member import (
    ShareMember,
    alter_share_offsets,
    delete_share_offsets,
    share_group,
    share_offsets,
)
from support.nodes.cluster import Cluster, ClusterNode
from tidelog.base.errors import Code
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

GROUP = "workers"
PARTITIONS = 6
RECORDS = 4


def asked(cluster: Cluster) -> WireClient:
    """At the coordinator of the group, once it serves."""
    node: ClusterNode = cluster.coordinator_of(GROUP)
    client = WireClient(node.port)
    wait_for_coordinator(client, GROUP)
    return client


def positions(client: WireClient, topic: str) -> dict[int, tuple[int, int]]:
    """The start offset and the lag of each partition."""
    found = share_offsets(client, GROUP, {topic: list(range(PARTITIONS))})
    assert found.error_code == 0, found.error_message
    (row,) = found.topics
    assert {one.error_code for one in row.partitions} <= {0}, row.partitions
    return {one.partition_index: (one.start_offset, one.lag) for one in row.partitions}


@pytest.mark.timeout(240)
def test_a_share_group_survives_its_coordinator(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, PARTITIONS)

    def is_written(index: int) -> bool:
        with WireClient(cluster.leader_of(topic, index).port) as leader:
            return leader.produce(topic, batch_of(b"x"), partition=index).error_code == 0

    for index in range(PARTITIONS):
        for _ in range(RECORDS):
            wait_until(lambda index=index: is_written(index), "a record is taken")  # type: ignore[misc]
    starts = {index: index % RECORDS for index in range(PARTITIONS)}
    told = {index: (start, RECORDS - start) for index, start in starts.items()}
    with asked(cluster) as client:
        answer = alter_share_offsets(client, GROUP, {topic: starts})
        assert {one.error_code for row in answer.responses for one in row.partitions} == {0}, answer
        assert positions(client, topic) == told
        member = ShareMember(cluster.coordinator_of(GROUP).port, GROUP)
        assert member.join(topic) is Code.NONE, member.message
        wait_until(lambda: member.beat() is Code.NONE and member.partition_count == PARTITIONS, "it reads all")
    first = cluster.coordinator_of(GROUP)
    first.kill()
    with asked(cluster) as client:
        assert cluster.coordinator_of(GROUP) is not first
        wait_until(lambda: positions(client, topic) == told, "it stands where it stood")
        moved = ShareMember(cluster.coordinator_of(GROUP).port, GROUP, member_id=member.member_id)
        moved.epoch = member.epoch
        assert moved.beat() is Code.NONE, "it is a member still"
        assert share_group(client, GROUP).group_state == "Stable"
        assert moved.leave() is Code.NONE
        first.start()
        forgotten = delete_share_offsets(client, GROUP, topic)
        assert [one.error_code for one in forgotten.responses] == [0], forgotten
        assert positions(client, topic) == dict.fromkeys(range(PARTITIONS), (-1, -1))
        deleted = client.ask(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=[GROUP]), DeleteGroupsResponse)
        assert [one.error_code for one in deleted.results] == [0]
        assert share_group(client, GROUP).error_code == Code.GROUP_ID_NOT_FOUND
        moved.close()
    member.close()
