"""The `tidelog` command as a process of its own, against a node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, Protocol

SECONDS_MAX = 60.0


class Reached(Protocol):
    """A node, or a cluster."""

    @property
    def bootstrap(self) -> str: ...


def tidelog(node: Reached, *arguments: str, stdin: str = "", status: int = 0) -> str:
    """Run `tidelog ARGUMENTS…` against whoever is named; returns what it printed, or its errors if it was to fail."""
    ran = subprocess.run(
        [sys.executable, "-m", "tidelog", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        env={**os.environ, "TIDELOG_BOOTSTRAP": node.bootstrap},
        check=False,
    )
    assert ran.returncode == status, f"status {ran.returncode}: {ran.stdout}{ran.stderr}"
    return ran.stderr if status else ran.stdout


def rows(printed: str) -> list[dict[str, Any]]:
    """What `--output json` printed."""
    return [json.loads(line) for line in printed.splitlines()]
