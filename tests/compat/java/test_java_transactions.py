"""Java's clients: a copy in transactions on three nodes is exact, though nodes and the copier are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.clients.kafka_peer import java_command
from support.load.copying import copy_while_all_are_killed

COPIER = Path(__file__).parents[2] / "support" / "clients" / "java" / "Copier.java"


@pytest.mark.timeout(400)
def test_each_input_counts_once_whoever_dies(needs_kafka: None, tmp_path: Path) -> None:
    copy_while_all_are_killed(tmp_path, java_command([str(COPIER)]), "copy")
