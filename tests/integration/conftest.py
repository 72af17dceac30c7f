"""A cluster of real nodes for the tests that need one."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from support.cluster import Cluster

PROMPT = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
    "replica.lag.time.max.ms": "4000",
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.election.timeout.ms": "500",
    "offsets.topic.num.partitions": "4",
}
"""Times that make silence noticed sooner than by default, so that tests do not wait for it."""


@pytest.fixture(scope="module")
def module_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes, all of them voters and brokers, for the tests of one file."""
    started = Cluster(tmp_path_factory.mktemp("cluster") / "data", config=PROMPT)
    try:
        yield started
    finally:
        started.close()


@pytest.fixture
def cluster(module_cluster: Cluster) -> Cluster:
    """The cluster of the file, with all nodes running, whatever the test before did to them."""
    module_cluster.start()
    return module_cluster


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name of the test's own."""
    return re.sub("[^a-z-]+", "-", request.node.name.removeprefix("test_")).strip("-")
