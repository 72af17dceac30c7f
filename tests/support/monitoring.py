"""What the docs say of metrics and alerts, for tests that hold them to the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOC = ROOT / "docs" / "observability.md"
ALERTS = ROOT / "docs" / "alerts.yml"


class DocumentedMetric(NamedTuple):
    kind: str
    labels: tuple[str, ...]


class Alert(NamedTuple):
    name: str
    expression: str
    severity: str
    summary: str


def documented() -> dict[str, DocumentedMetric]:
    """Each metric of docs/observability.md by its name. Raises AssertionError where one is listed twice."""
    rows = re.findall(
        r"^\| `([a-z_]+)` \| (counter|gauge|histogram)\b[^|]* \| ([^|]*)\|", DOC.read_text(), re.MULTILINE
    )
    found = {name: DocumentedMetric(kind, tuple(labels.replace(",", " ").split())) for name, kind, labels in rows}
    assert len(rows) == len(found), "a metric is listed twice"
    return found


def alerts() -> list[Alert]:
    """Those of docs/alerts.yml. Raises AssertionError where one lacks what Prometheus, or whoever is woken, wants."""
    found = []
    for text in re.split(r"^      - alert: ", ALERTS.read_text(), flags=re.MULTILINE)[1:]:
        name, *lines = text.splitlines()
        keys = [line.strip().partition(":")[0] for line in lines]
        assert [key for key in keys if key != "for"] == ["expr", "labels", "annotations", "summary"], name
        severity = re.search(r"severity: (\w+)", text)
        assert severity is not None, name
        found.append(Alert(name, lines[0].partition("expr: ")[2], severity[1], lines[-1].partition("summary: ")[2]))
    return found
