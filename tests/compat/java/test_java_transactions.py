"""Java's clients: a copy in transactions on three nodes is exact, though nodes and the copier are killed."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from support.clients.java_classes import compiled
from support.clients.kafka_peer import java_command
from support.load.copying import ROLES, copy_while_nodes_are_killed

COPIER = Path(__file__).parents[2] / "support" / "clients" / "java" / "Copier.java"


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "roles",
    [
        pytest.param(["the coordinator of the transaction"], id="one"),
        pytest.param(ROLES, id="all", marks=pytest.mark.slow),
    ],
)
def test_each_input_counts_once_whoever_dies(needs_kafka: None, tmp_path: Path, roles: Collection[str]) -> None:
    command = java_command([COPIER.stem], classes=compiled(COPIER))
    copy_while_nodes_are_killed(tmp_path, command, "copy", roles)
