"""ListOffsets: each named place from the version on that knows it, times in every version, and their epochs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.clients.wire_client import WireClient, batch_of
from support.nodes.node import NodeProcess
from tidelog.base.errors import Code

TOPIC = "places"
START_MS = 1_700_000_000_000
VERSIONS = range(1, 12)


@pytest.fixture(scope="module")
def client(shared_node: NodeProcess) -> Iterator[WireClient]:
    """Three records, of which the one in the middle is the newest."""
    with WireClient(shared_node.port) as connected:
        assert connected.create_topic(TOPIC).error_code == 0
        for age_ms in (20, 0, 10):
            assert connected.produce(TOPIC, batch_of(b"x", timestamp_ms=START_MS - age_ms)).error_code == 0
        yield connected


@pytest.mark.parametrize(
    ("place", "since", "offset", "timestamp"),
    [(-1, 1, 3, -1), (-2, 1, 0, -1), (-3, 7, 1, START_MS), (-4, 8, 0, -1), (-5, 9, -1, -1), (-6, 11, -1, -1)],
)
def test_a_place_is_known_from_its_version_on(
    client: WireClient, place: int, since: int, offset: int, timestamp: int
) -> None:
    for version in VERSIONS:
        row = client.list_offset(TOPIC, place, version=version)
        if version < since:
            assert (Code(row.error_code), row.offset) == (Code.UNSUPPORTED_VERSION, -1)
        else:
            assert (Code(row.error_code), row.offset, row.timestamp) == (Code.NONE, offset, timestamp)
            assert (row.leader_epoch >= 0) is (version >= 4 and offset >= 0)


@pytest.mark.parametrize("place", [-7, -(2**63)])
def test_places_that_no_version_knows_are_refused(client: WireClient, place: int) -> None:
    row = client.list_offset(TOPIC, place, version=VERSIONS[-1])
    assert (Code(row.error_code), row.offset) == (Code.UNSUPPORTED_VERSION, -1)


@pytest.mark.parametrize(
    ("timestamp", "offset", "found_ms"),
    [(0, 0, START_MS - 20), (START_MS - 19, 1, START_MS), (START_MS, 1, START_MS), (START_MS + 1, -1, -1)],
)
def test_times(client: WireClient, timestamp: int, offset: int, found_ms: int) -> None:
    for version in (1, 7, VERSIONS[-1]):
        row = client.list_offset(TOPIC, timestamp, version=version)
        assert (Code(row.error_code), row.offset, row.timestamp) == (Code.NONE, offset, found_ms)
