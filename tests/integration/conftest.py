"""A cluster of real nodes for the tests that need one."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from support.nodes.cluster import PROMPT, Cluster


@pytest.fixture(scope="module")
def module_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes, all of them voters and brokers, for the tests of one file."""
    started = Cluster(tmp_path_factory.mktemp("cluster") / "data", config=PROMPT)
    try:
        yield started
    finally:
        started.close()


@pytest.fixture
def cluster(module_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster of the file, with all nodes running, whatever the test before did to them."""
    module_cluster.start()
    yield module_cluster
    module_cluster.check_logs()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name of the test's own."""
    return re.sub("[^a-z-]+", "-", request.node.name.removeprefix("test_")).strip("-")
