"""Tidelog's own consumers: groups while records come. Members join, leave and are killed, and so is the node."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.load.group_load import live_through_everything
from support.nodes.node import NodeProcess

PLANS = [
    ("tidelog", "cooperative-sticky", False),
    ("tidelog", "range", True),
    ("tidelog", "roundrobin", False),
]


@pytest.mark.parametrize("groups", [2, pytest.param(len(PLANS), marks=pytest.mark.slow)])
def test_nothing_is_lost_whoever_dies(node: NodeProcess, tmp_path: Path, groups: int) -> None:
    live_through_everything(node, "under-load", tmp_path, PLANS[:groups])
