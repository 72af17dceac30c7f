"""aiokafka: groups while records come. Members join, leave and are killed, and so is the node."""

from __future__ import annotations

from pathlib import Path

from support.load.group_load import live_through_everything
from support.nodes.node import NodeProcess

PLANS = [
    ("aiokafka", "range", False),
    ("aiokafka", "sticky", False),
    ("aiokafka", "roundrobin", True),
]


def test_nothing_is_lost_whoever_dies(node: NodeProcess, tmp_path: Path) -> None:
    live_through_everything(node, "under-load", tmp_path, PLANS)
