"""Features over the wire: what ApiVersions tells of them, and what UpdateFeatures makes of those not served."""

from __future__ import annotations

from uuid import UUID

import pytest

from support.clients.wire_client import WireClient
from support.load.group_member import commit, commit_request, committed, wait_for_coordinator
from support.nodes.node import NodeProcess
from tidelog import Admin
from tidelog.base.errors import Code
from tidelog.client.admin.cluster_descriptions import FeatureUpdate, UpgradeType
from tidelog.coordinator.groups.records import OffsetCommitValue, offset_key
from tidelog.journal.versioned_records import decode_value
from tidelog.metadata.features import METADATA_VERSION
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.api_57_update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tidelog.wire.primitives import ZERO_UUID

ELIGIBLE_LEADERS = "eligible.leader.replicas.version"
KRAFT_VERSION = "kraft.version"
NOT_SERVED = {"streams.version"}


def api_versions(node: NodeProcess, version: int) -> ApiVersionsResponse:
    with WireClient(node.port) as client:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        return client.ask(ApiKey.API_VERSIONS, version, request, ApiVersionsResponse)


def test_those_not_served_are_told_to_who_can_read_of_level_0_and_is_not_finalized(shared_node: NodeProcess) -> None:
    """Older clients than version 4 take a lowest level of 0 for an error."""
    told = {row.name: (row.min_version, row.max_version) for row in api_versions(shared_node, 4).supported_features}
    assert {name for name, levels in told.items() if levels == (0, 0)} == NOT_SERVED
    served = {
        "metadata.version",
        "transaction.version",
        "group.version",
        "share.version",
        ELIGIBLE_LEADERS,
        KRAFT_VERSION,
    }
    assert set(told) == {*served, *NOT_SERVED}
    assert (told["transaction.version"], told["group.version"]) == ((0, 2), (0, 1))
    old = api_versions(shared_node, 3)
    assert [row.name for row in old.supported_features] == ["metadata.version"]
    assert {row.name: row.max_version_level for row in old.finalized_features} == {
        "metadata.version": METADATA_VERSION,
        "transaction.version": 2,
        "group.version": 1,
        ELIGIBLE_LEADERS: 1,
        "share.version": 1,
    }


@pytest.mark.parametrize("version", [1, 2])
def test_a_release_is_asked_for_with_the_levels_of_all_its_features(shared_node: NodeProcess, version: int) -> None:
    def update(levels: dict[str, int]) -> UpdateFeaturesResponse:
        updates = [
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=1) for name, level in levels.items()
        ]
        with WireClient(shared_node.port) as client:
            request = UpdateFeaturesRequest(feature_updates=updates, timeout_ms=10_000)
            return client.ask(ApiKey.UPDATE_FEATURES, version, request, UpdateFeaturesResponse)

    release = {"metadata.version": METADATA_VERSION}
    for level in (0, 1):
        answer = update({**release, **dict.fromkeys(NOT_SERVED, level)})
        assert (answer.error_code, {row.error_code for row in answer.results} - {0}) == (0, set())
    if version == 2:
        assert "streams.version stays at 0: this release does not serve it" in (answer.error_message or "")
    refused = update({"streams.version": 1})
    rows = [(row.error_code, row.error_message) for row in refused.results]
    code, message = rows[0] if rows else (refused.error_code, refused.error_message)
    assert code == Code.INVALID_UPDATE_VERSION
    assert "streams.version" in (message or "")
    finalized = {row.name for row in api_versions(shared_node, 4).finalized_features}
    assert finalized.isdisjoint(NOT_SERVED)


def test_an_older_level_writes_the_older_offsets_and_reads_both(node: NodeProcess) -> None:
    """OffsetCommitValue 4 names the topic by its id: from the level of Kafka 4.3 on."""
    with Admin(node.bootstrap) as admin, WireClient(node.port) as client:
        client.create_topic("t", partitions=3)
        topic_id = client.describe_topic("t").topic_id
        wait_for_coordinator(client, "g")

        def set_level(level: int, kind: UpgradeType) -> None:
            admin.update_features({"metadata.version": FeatureUpdate(level, kind)})

        def committed_as(partition: int) -> tuple[int, UUID]:
            """The version of the record, and the topic that it names."""
            assert set(commit(client, commit_request("g", {("t", partition): 5})).values()) == {Code.NONE}
            records = [one for index in range(50) for one in client.read_all("__consumer_offsets", partition=index)]
            (value,) = (one.value for one in records if one.key == offset_key("g", "t", partition))
            assert value is not None
            read = decode_value(OffsetCommitValue, bytes(value))
            return int.from_bytes(value[:2], "big"), read.topic_id

        assert committed_as(0) == (4, topic_id)
        set_level(METADATA_VERSION - 1, "unsafe downgrade")
        assert committed_as(1) == (3, ZERO_UUID)
        set_level(METADATA_VERSION, "upgrade")
        assert committed_as(2) == (4, topic_id)
    node.stop()
    node.start()
    with WireClient(node.port) as client:
        wait_for_coordinator(client, "g")
        assert {committed(client, "g", "t", partition).committed_offset for partition in range(3)} == {5}
