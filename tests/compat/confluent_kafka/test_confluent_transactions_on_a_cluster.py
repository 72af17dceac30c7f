"""confluent-kafka: a copy in transactions on three nodes is exact, though nodes and the copier are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.load.copying import copy_while_nodes_are_killed, python_copier


@pytest.mark.timeout(400)
def test_each_input_counts_once_whoever_dies(tmp_path: Path) -> None:
    copy_while_nodes_are_killed(tmp_path, python_copier("confluent"), "copy")
