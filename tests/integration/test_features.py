"""Features over the wire: what ApiVersions tells of them, and what UpdateFeatures makes of those not served."""

from __future__ import annotations

import pytest

from support.clients.wire_client import WireClient
from support.nodes.node import NodeProcess
from tidelog.base.errors import Code
from tidelog.metadata.features import METADATA_VERSION
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.api_57_update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

ELIGIBLE_LEADERS = "eligible.leader.replicas.version"
KRAFT_VERSION = "kraft.version"
NOT_SERVED = {
    "share.version",
    "streams.version",
}


def api_versions(node: NodeProcess, version: int) -> ApiVersionsResponse:
    with WireClient(node.port) as client:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        return client.ask(ApiKey.API_VERSIONS, version, request, ApiVersionsResponse)


def test_those_not_served_are_told_to_who_can_read_of_level_0_and_is_not_finalized(shared_node: NodeProcess) -> None:
    """Older clients than version 4 take a lowest level of 0 for an error."""
    told = {row.name: (row.min_version, row.max_version) for row in api_versions(shared_node, 4).supported_features}
    assert {name for name, levels in told.items() if levels == (0, 0)} == NOT_SERVED
    served = {"metadata.version", "transaction.version", "group.version", ELIGIBLE_LEADERS, KRAFT_VERSION}
    assert set(told) == {*served, *NOT_SERVED}
    assert (told["transaction.version"], told["group.version"]) == ((0, 2), (0, 1))
    old = api_versions(shared_node, 3)
    assert [row.name for row in old.supported_features] == ["metadata.version"]
    assert {row.name: row.max_version_level for row in old.finalized_features} == {
        "metadata.version": METADATA_VERSION,
        "transaction.version": 2,
        "group.version": 1,
        ELIGIBLE_LEADERS: 1,
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
        assert "share.version stays at 0: this release does not serve it" in (answer.error_message or "")
    refused = update({"share.version": 1})
    rows = [(row.error_code, row.error_message) for row in refused.results]
    code, message = rows[0] if rows else (refused.error_code, refused.error_message)
    assert code == Code.INVALID_UPDATE_VERSION
    assert "share.version" in (message or "")
    finalized = {row.name for row in api_versions(shared_node, 4).finalized_features}
    assert finalized.isdisjoint(NOT_SERVED)
