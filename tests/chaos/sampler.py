"""The onlooker of a soak: what each node holds, what its metrics say, and how the steady load fares, by interval."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

from chaos.in_background import InBackground
from chaos.nodes import ChaosCluster
from chaos.soak_samples import Samples
from chaos.steady_load import GROUP, SteadyLoad
from support.nodes.cluster import ClusterNode
from tidelog.base.ids import BrokerId

METRICS_PORT = 9464
SCRAPE_SECONDS_MAX = 5.0
_LAG = re.compile(rf'^tidelog_group_lag_records\{{group="{GROUP}",topic="[^"]*"\}} (\S+)$', re.MULTILINE)
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
CLUSTER = "the cluster"


def open_metrics(cluster: ChaosCluster) -> None:
    """Each node serves its metrics, beside the port of its clients. Before it starts."""
    for node in cluster.nodes.values():
        is_placed = bool(node.wrapper)
        node.settings["metrics.listener"] = f"HTTP://{node.host}:{METRICS_PORT if is_placed else 0}"


class Sampler:
    """See the module. It has a thread.

    Attributes:
        scrapes: how many were answered.
        unanswered: how many were not: the node was down, or cut off.
    """

    def __init__(self, cluster: ChaosCluster, load: SteadyLoad, samples: Samples, interval_seconds: float) -> None:
        self._cluster = cluster
        self._load = load
        self._samples = samples
        self._began = time.monotonic()
        self._background = InBackground(self.sample, interval_seconds)
        self._cpu: dict[int, tuple[float, float]] = {}
        self.scrapes = 0
        self.unanswered = 0

    def start(self) -> None:
        self._background.start()

    def check(self) -> None:
        """End, and raise what went wrong."""
        self._background.check()

    def close(self) -> None:
        """End. May be called again."""
        self._background.end()

    def sample(self) -> None:
        """Once, of everything."""
        at = time.monotonic() - self._began
        lines: list[dict[str, object]] = []

        def add(whose: str, life: int, figures: dict[str, float]) -> None:
            for name, value in figures.items():
                self._samples.add(name, whose, at, value, life=life)
            if figures:
                lines.append({"at": round(at, 1), "whose": whose, "life": life, "figures": figures})

        lags = []
        for node in self._cluster.nodes.values():
            with suppress(OSError, AssertionError, ValueError):  # it is down, or ends meanwhile
                life = node.pid
                add(str(node), life, self._held(node, life))
                figures, found = self._scraped(node)
                add(str(node), life, figures)
                lags += found
        if lags:
            add(GROUP, 0, {"lag": sum(lags)})
        for name, latencies in self._load.take_latencies().items():
            if latencies:
                ordered = sorted(latencies)
                add(CLUSTER, 0, {f"{name}_p50": _quantile(ordered, 0.5), f"{name}_p99": _quantile(ordered, 0.99)})
        self._samples.write(list(lines))

    def _held(self, node: ClusterNode, pid: int) -> dict[str, float]:
        now, cpu = time.monotonic(), cpu_seconds(pid)
        before_at, before = self._cpu.get(pid, (now, cpu))
        self._cpu[pid] = now, cpu
        figures = held_by(pid) | {"disk": float(sum(map(_allocated_bytes, node.directories)))}
        return figures | ({"cpu": 100 * (cpu - before) / (now - before_at)} if now > before_at else {})

    def _scraped(self, node: ClusterNode) -> tuple[dict[str, float], list[float]]:
        """Of its metrics, and the lags that it knows as the coordinator of the group."""
        if node.is_paused:
            return {}, []
        began = time.monotonic()
        try:
            with urlopen(f"http://{_metrics_address(node)}/metrics", timeout=SCRAPE_SECONDS_MAX) as answer:
                text = answer.read().decode()
        except (OSError, ValueError):
            self.unanswered += 1
            return {}, []
        self.scrapes += 1
        series = sum(1 for line in text.splitlines() if line and not line.startswith("#"))
        figures = {"series": float(series), "scrape": (time.monotonic() - began) * 1e3}
        return figures, [float(lag) for lag in _LAG.findall(text)]


def held_by(pid: int) -> dict[str, float]:
    """What a process holds: resident bytes, open files, threads. Raises OSError if there is none."""
    proc = Path(f"/proc/{pid}")
    return {
        "rss": float(int((proc / "statm").read_text().split()[1]) * _PAGE_BYTES),
        "fds": float(len(list((proc / "fd").iterdir()))),
        "threads": float(len(list((proc / "task").iterdir()))),
    }


def cpu_seconds(pid: int) -> float:
    """User and system time that a process has used so far. Raises OSError if there is none."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def _metrics_address(node: ClusterNode) -> str:
    found = re.findall(r"served on http://([\d.]+:\d+)", node.log)
    if not found:
        raise ValueError(f"{BrokerId(node.node_id)} has not said where its metrics are")
    return str(found[-1])


def _allocated_bytes(directory: Path) -> int:
    """Blocks that are in use: a log's index is larger than what it takes. What goes meanwhile is not counted."""
    return sum(_blocks(path) for path in _walk(directory)) * 512


def _walk(directory: Path) -> Iterator[str]:
    for root, _, names in os.walk(directory):
        for name in names:
            yield os.path.join(root, name)


def _blocks(path: str) -> int:
    try:
        return os.stat(path).st_blocks
    except OSError:
        return 0


def _quantile(ordered: list[float], share: float) -> float:
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 3)
