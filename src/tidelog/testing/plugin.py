"""The pytest plugin: clusters as fixtures, whose logs are shown with a test that fails.

pytest imports this file in every run of everybody who has Tidelog installed: nothing else is loaded before a fixture is
asked for.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack
from uuid import uuid4

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tidelog.testing.cluster import Cluster, ClusterFactory


MARKER = "tidelog"
CONFIG_INI = "tidelog_config"
LOG_CHARACTERS_MAX = 3_000


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        CONFIG_INI,
        type="linelist",
        help="Settings for the nodes of every cluster of the fixtures, by Kafka's keys: one KEY=VALUE a line.",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}(nodes=3, config=None, disks=1): how a test's `tidelog_cluster` is made",
    )


@pytest.fixture(scope="session")
def tidelog_cluster_factory(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterFactory]:
    """Starts clusters: `tidelog_cluster_factory(nodes=1)` returns one that serves. All end with the run of the tests.

    For fixtures of your own: `with tidelog_cluster_factory() as cluster: yield cluster` ends it with their scope.
    """
    from tidelog.testing.cluster import Cluster

    settings = _settings(pytestconfig)
    with ExitStack() as clusters:

        def start(nodes: int = 3, *, config: Mapping[str, str] | None = None, disks: int = 1) -> Cluster:
            directory = tmp_path_factory.mktemp("tidelog")
            cluster = Cluster(nodes, config=settings | dict(config or {}), disks=disks, directory=directory)
            cluster.keep_files = False  # unless a test fails
            clusters.callback(cluster.close)
            return cluster.__enter__()

        yield start


@pytest.fixture(scope="session")
def tidelog_node(tidelog_cluster_factory: ClusterFactory) -> Cluster:
    """A cluster of one node that all tests share, each with topics of its own: see `tidelog_topic`."""
    return tidelog_cluster_factory(nodes=1)


@pytest.fixture
def tidelog_cluster(request: pytest.FixtureRequest, tidelog_cluster_factory: ClusterFactory) -> Iterator[Cluster]:
    """A cluster of the test's own, to do harm to: three nodes, or what `@pytest.mark.tidelog(nodes=…, …)` says."""
    marker = request.node.get_closest_marker(MARKER)
    if marker is not None and (marker.args or not marker.kwargs.keys() <= {"nodes", "config", "disks"}):
        raise pytest.UsageError(f"@pytest.mark.{MARKER} takes nodes, config and disks, each by its name")
    with tidelog_cluster_factory(**({} if marker is None else marker.kwargs)) as cluster:
        yield cluster


@pytest.fixture
def tidelog_topic(request: pytest.FixtureRequest) -> str:
    """A name for a topic of the test's own, not created yet: its first use does that, or `Cluster.create_topic`."""
    test = re.sub("[^a-zA-Z0-9._-]+", "-", request.node.name).strip("-")
    return f"{test[:80]}-{uuid4().hex[:8]}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for cluster in _clusters(item):
            cluster.keep_files = True
            for node in cluster.nodes.values():
                report.sections.append((f"Log of {node} of tidelog, {node.log_path}", node.log[-LOG_CHARACTERS_MAX:]))
    return report


def _clusters(item: pytest.Item) -> list[Cluster]:
    """Those that the test got from fixtures, whoever made these."""
    values = list(getattr(item, "funcargs", {}).values())
    if not any(type(value).__module__ == "tidelog.testing.cluster" for value in values):
        return []  # also where nobody has loaded it yet
    from tidelog.testing.cluster import Cluster

    return [value for value in values if isinstance(value, Cluster)]


def _settings(config: pytest.Config) -> dict[str, str]:
    settings = {}
    for line in config.getini(CONFIG_INI):
        key, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"{CONFIG_INI}: {line!r} is no KEY=VALUE, such as min.insync.replicas=1")
        settings[key.strip()] = value.strip()
    return settings
