"""What `Cluster` refuses before it starts anything, and what loading it costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tidelog import ConfigError
from tidelog.testing import CLIENTS, Cluster, ClusterUsageError


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"nodes": 0}, "nodes=0: a cluster for tests has from 1 to 9 nodes"),
        ({"nodes": 10}, "nodes=10"),
        ({"disks": 0}, "disks=0: a node needs a log directory at least"),
    ],
)
def test_a_cluster_that_cannot_be(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(ClusterUsageError, match=told):
        Cluster(**arguments)


def test_a_directory_that_is_somebody_elses(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ClusterUsageError, match="is not empty; name an empty one"):
        Cluster(directory=tmp_path)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"min.insync.replica": "2"}, r"min\.insync\.replica: there is no such broker setting.*min\.insync\.replicas"),
        ({"min.insync.replicas": "two"}, r"min\.insync\.replicas"),
        ({"min.insync.replicas": 2}, "values are text.*give '2'"),
        ({"listeners": "PLAINTEXT://:9092"}, "listeners: a cluster for tests sets this key itself; leave it out"),
    ],
)
def test_a_setting_that_is_wrong(tmp_path: Path, config: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Cluster(config=config, directory=tmp_path / "cluster")


def test_a_cluster_that_was_never_started(tmp_path: Path) -> None:
    cluster = Cluster(nodes=2, directory=tmp_path / "cluster")
    with pytest.raises(ClusterUsageError, match="no node of the cluster can answer"):
        cluster.leader_of("orders")
    with pytest.raises(ClusterUsageError, match="there is no node 3: this cluster's are 1 to 2"):
        cluster.partition([3])
    with pytest.raises(ClusterUsageError, match="node 1 is on both sides of the cut"):
        cluster.partition([1], [1, CLIENTS])
    with pytest.raises(ClusterUsageError, match="nothing to cut"):
        cluster.partition([])
    with pytest.raises(ClusterUsageError, match="must run, or it notices nothing"):
        cluster.fail_disk(2)
    with pytest.raises(ClusterUsageError, match="there is no node 0"):
        cluster.fail_disk(CLIENTS)
    cluster.close()
    cluster.close()
    assert (tmp_path / "cluster" / "node-2.properties").exists()


def test_the_plugin_loads_nothing_that_is_not_asked_for() -> None:
    program = (
        "import sys, pytest; before = set(sys.modules); import tidelog.testing.plugin; "
        "print(*sorted(name for name in set(sys.modules) - before if name.partition('.')[0] != 'encodings'))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["tidelog", "tidelog.testing", "tidelog.testing.plugin"]
