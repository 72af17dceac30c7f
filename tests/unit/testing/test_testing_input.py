"""What `Cluster` refuses before it starts anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidelog import ConfigError
from tidelog.testing import Cluster, ClusterUsageError


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
