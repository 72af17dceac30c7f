"""What a real node shows at its `metrics.listener`."""

from __future__ import annotations

import re
from typing import Protocol
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from prometheus_client.parser import text_string_to_metric_families

SECONDS_MAX = 60.0

Samples = dict[tuple[str, tuple[str, ...]], float]
"""By the name of each, and the values of its labels in the order of the labels' names."""


class Logs(Protocol):
    """A node whose log names the port that metrics are served on."""

    @property
    def log(self) -> str: ...


def metrics_port_of(node: Logs) -> int:
    """Of the process that runs now."""
    found = re.findall(r"served on http://127\.0\.0\.1:(\d+)", node.log)
    assert found, node.log
    return int(found[-1])


def page(node: Logs, path: str = "/metrics", **headers: str) -> tuple[str, str]:
    """Its content type, and what it says."""
    url = f"http://127.0.0.1:{metrics_port_of(node)}{path}"
    with urlopen(Request(url, headers=headers), timeout=SECONDS_MAX) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def samples(node: Logs) -> Samples:
    """Every sample that there is now."""
    found = {}
    for family in text_string_to_metric_families(page(node)[1]):
        for sample in family.samples:
            found[sample.name, tuple(value for _, value in sorted(sample.labels.items()))] = sample.value
    return found


def why_not_ready(node: Logs) -> str | None:
    """What /ready says; None while it says that all is well."""
    try:
        page(node, "/ready")
    except HTTPError as refused:
        with refused:
            return refused.read().decode()
    return None
