"""What the benchmarks share: how a figure is printed, a node to measure, and what it used."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.clients.wire_client import WireClient, receive_exactly  # noqa: E402
from support.nodes.up_process import UpProcess  # noqa: E402 - found by the line above

__all__ = [
    "LONG",
    "MEGABYTE",
    "ROOT",
    "UpProcess",
    "WireClient",
    "cpu_seconds",
    "figure",
    "median",
    "new_node",
    "receive_exactly",
    "resident_bytes",
    "resident_bytes_peak",
    "say",
    "skip",
]

LONG = "--long" in sys.argv[1:]
"""Whether to take the time for steadier figures."""

MEGABYTE = 1_000_000
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else a node compiles its sources at each start: half a second

_CLOCK_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def figure(
    name: str,
    value: float,
    unit: str,
    *,
    peer: str | None = None,
    peer_value: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    of_ratio: bool = False,
    note: str | None = None,
) -> None:
    """Print one figure as a JSON line.

    Args:
        peer: what ran beside it, and `peer_value` what that reached, in the same unit.
        at_least: what we want of `value`, or `at_most`.
        of_ratio: the target is for the ratio to the peer.
    """
    ratio = value / peer_value if peer_value else None
    line: dict[str, object] = {
        "name": name,
        "value": _rounded(value),
        "unit": unit,
        "peer": peer,
        "peer_value": None if peer_value is None else _rounded(peer_value),
        "ratio": None if ratio is None else _rounded(ratio),
    }
    measured = ratio if of_ratio else value
    if measured is not None and (at_least is not None or at_most is not None):
        sign, target = (">=", at_least) if at_least is not None else ("<=", at_most)
        assert target is not None
        line["target"] = f"{'ratio ' if of_ratio else ''}{sign} {target:,g}"
        line["met"] = measured >= target if sign == ">=" else measured <= target
    if note is not None:
        line["note"] = note
    print(json.dumps(line), flush=True)


def _rounded(value: float) -> float | int:
    return round(value) if abs(value) >= 1_000 else float(f"{value:.4g}")


def say(text: str) -> None:
    """For whoever watches; figures alone go to stdout."""
    print(text, file=sys.stderr, flush=True)


def skip(reason: str) -> NoReturn:
    """End this benchmark: what it measures is not there."""
    print(json.dumps({"skipped": reason}), flush=True)
    sys.exit(0)


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


@contextmanager
def new_node(config: dict[str, str] | None = None) -> Iterator[UpProcess]:
    """A node on an empty directory, both gone afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="tidelog-bench-"))
    node = UpProcess(directory / "data", config=config or {})
    try:
        node.start()
        yield node
    finally:
        node.close()
        shutil.rmtree(directory, ignore_errors=True)


def cpu_seconds(pid: int) -> float:
    """User and system time that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS_PER_SECOND


def cpu_seconds_by_thread(pid: int) -> dict[int, float]:
    """As `cpu_seconds`, of each thread that runs now."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        found[int(task.name)] = (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS_PER_SECOND
    return found


def resident_bytes(pid: int) -> int:
    return _status_bytes(pid, "VmRSS")


def resident_bytes_peak(pid: int) -> int:
    """The most that was ever resident."""
    return _status_bytes(pid, "VmHWM")


def _status_bytes(pid: int, key: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"/proc/{pid}/status has no {key}")
