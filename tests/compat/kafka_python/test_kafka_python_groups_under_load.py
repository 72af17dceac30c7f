"""kafka-python: groups while records come. Members join, leave and are killed, and so is the node."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.load.group_load import live_through_everything
from support.nodes.node import NodeProcess

PLANS = [
    ("kafka_python", "cooperative-sticky", False),
    ("kafka_python", "range", False),
    ("kafka_python", "roundrobin", True),
]


@pytest.mark.parametrize("groups", [1, pytest.param(len(PLANS), marks=pytest.mark.slow)])
def test_nothing_is_lost_whoever_dies(node: NodeProcess, tmp_path: Path, groups: int) -> None:
    live_through_everything(node, "under-load", tmp_path, PLANS[:groups])
