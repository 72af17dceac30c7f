"""The `tidelog` command as a process of its own, against a node."""

from __future__ import annotations

import json
import os
from typing import Any, Protocol

from support.nodes.forked_command import run_command

SECONDS_MAX = 60.0


class Reached(Protocol):
    """A node, or a cluster."""

    @property
    def bootstrap(self) -> str: ...


def tidelog(node: Reached, *arguments: str, stdin: str = "", status: int = 0) -> str:
    """Run `tidelog ARGUMENTS…` against whoever is named; returns what it printed, or its errors if it was to fail."""
    environment = {**os.environ, "TIDELOG_BOOTSTRAP": node.bootstrap}
    ran = run_command(arguments, stdin=stdin, timeout=SECONDS_MAX, environment=environment)
    assert ran.returncode == status, f"status {ran.returncode}: {ran.stdout}{ran.stderr}"
    return ran.stderr if status else ran.stdout


def rows(printed: str) -> list[dict[str, Any]]:
    """What `--output json` printed."""
    return [json.loads(line) for line in printed.splitlines()]
