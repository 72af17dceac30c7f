"""The example of an exact copy, with our own clients, on three nodes: nodes and the copier are killed."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from support.load.copying import ROLES, copy_while_nodes_are_killed, python_copier


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "roles",
    [
        pytest.param(["the coordinator of the transaction"], id="one"),
        pytest.param(ROLES, id="all", marks=pytest.mark.slow),
    ],
)
def test_each_input_counts_once_whoever_dies(tmp_path: Path, roles: Collection[str]) -> None:
    copy_while_nodes_are_killed(tmp_path, python_copier("tidelog"), "copy", roles)
