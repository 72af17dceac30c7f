"""Which code this is: the commit of the checkout that it runs from, else its version."""

from __future__ import annotations

import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import tidelog

GIT_SECONDS_MAX = 10.0
ABBREVIATION = 12
CHANGED = "+changes"


def commit_of_code() -> str:
    """`1f2e3d4c5b6a`, with `+changes` where files of the package differ from that commit; `v0.1.0` outside git."""
    package = Path(tidelog.__file__).resolve().parent
    commit = _git(package, "rev-parse", f"--short={ABBREVIATION}", "HEAD")
    if not commit or not _git(package, "ls-files", "__init__.py"):
        return f"v{version('tidelog')}"
    return commit + (CHANGED if _git(package, "status", "--porcelain", "--", ".") else "")


def is_same_commit(one: str, other: str) -> bool:
    """Whether two texts name the same code. The shorter of two commits may be a beginning of the other."""
    shorter, longer = sorted((one, other), key=len)
    if CHANGED in longer or longer.startswith("v"):
        return one == other
    return len(shorter) >= 4 and longer.startswith(shorter)


def _git(directory: Path, *arguments: str) -> str:
    git = shutil.which("git")
    if git is None:
        return ""
    try:
        told = subprocess.run(
            [git, "-C", str(directory), *arguments],
            capture_output=True,
            text=True,
            timeout=GIT_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return told.stdout.strip() if told.returncode == 0 else ""
