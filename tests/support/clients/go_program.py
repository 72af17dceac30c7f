"""Programs in Go, with franz-go, built from a directory that has a `go.mod`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

__all__ = ["build_go", "missing_go"]

DOWNLOAD_SECONDS_MAX = 120.0
BUILD_SECONDS_MAX = 600.0


def missing_go(source: Path) -> str | None:
    """Why a program cannot be built here, or None.

    The modules come from Go's module cache, or from wherever the `go` of this machine fetches modules.
    """
    if shutil.which("go") is None:
        return f"there is no go on the PATH: franz-go needs one as new as {source.name}/go.mod says"
    return _why_failed(["go", "mod", "download"], source, DOWNLOAD_SECONDS_MAX)


def build_go(source: Path, directory: Path) -> Path:
    """Build the program into a directory. Raises AssertionError: the compiler refuses; carries what it says."""
    program = directory / source.name
    failed = _why_failed(["go", "build", "-trimpath", "-o", str(program), "."], source, BUILD_SECONDS_MAX)
    assert failed is None, failed
    return program


def _why_failed(command: list[str], source: Path, seconds: float) -> str | None:
    environment = os.environ | {"GOTOOLCHAIN": "local"}
    try:
        ran = subprocess.run(
            command, cwd=source, env=environment, capture_output=True, text=True, check=False, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return f"{' '.join(command)} has not ended after {seconds:.0f} s"
    return None if ran.returncode == 0 else f"{' '.join(command)}: {(ran.stdout + ran.stderr).strip()[-300:]}"
