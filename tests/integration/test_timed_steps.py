"""The search for slow requests measures the node that it asks."""

from __future__ import annotations

from pathlib import Path

from fuzz.fuzz_slow import Steps
from support.nodes.listeners_node import ListenersNode


def test_a_node_times_the_steps_of_its_event_loop(tmp_path: Path) -> None:
    steps, node = Steps(tmp_path), ListenersNode(tmp_path)
    try:
        steps.start(node)
    finally:
        node.close()
