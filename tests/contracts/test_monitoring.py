"""The alerts and the dashboard: they name what nodes export, Prometheus reads them, and the docs say what to do."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from support.monitoring import DOC, Alert, alerts, documented

DOCS = DOC.parent
MONITORING = DOCS / "monitoring.md"
ALERTS_TEST = Path(__file__).parent / "alerts_test.yml"
DASHBOARD = DOCS / "dashboard" / "tidelog.json"

SCRAPED = {"job", "instance"}
"""Labels that Prometheus adds."""
WIDTH = 24
SECTIONS = {"page": "Alerts that wake somebody", "ticket": "Alerts that wait for the morning"}


def generated() -> str:
    spec = spec_from_file_location("dashboard_generate", DASHBOARD.parent / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    text: str = module.page()
    return text


def board() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = board()["panels"]
    return found


def targets() -> Iterator[tuple[str, dict[str, Any]]]:
    """With the title of the panel."""
    for panel in panels():
        for target in panel.get("targets", []):
            yield panel["title"], target


def in_prometheus(expression: str) -> str:
    """As Grafana sends it."""
    return expression.replace("$__rate_interval", "5m").replace("$job", ".*").replace("$instance", ".*")


def check_names(expression: str) -> None:
    """Every metric is one that nodes export, and has the labels that it is chosen or added up by."""
    without_texts = re.sub(r'"[^"]*"', '""', expression)
    used: set[str] = set()
    found = re.findall(r"\b((?:tidelog|process)_[a-z_]+)(?:\{([^}]*)\})?", without_texts)
    assert found, expression
    for name, selector in found:
        labels = labels_of(name)
        assert labels is not None, f"{name} is exported by no node: {expression}"
        used |= labels
        for matcher in filter(None, selector.split(",")):
            label = re.match(r"[a-z_]+", matcher.strip())
            assert label is not None, expression
            assert label[0] in labels | SCRAPED, f"{name} has no label {label[0]}: {expression}"
    for grouping in re.findall(r"\bby \(([^)]*)\)", without_texts):
        for label in grouping.split(","):
            assert label.strip() in used | SCRAPED, f"nothing has a label {label.strip()}: {expression}"


def labels_of(name: str) -> set[str] | None:
    """Of a metric by the name of one of its series; None if there is none."""
    known = documented()
    if name in known:
        return set(known[name].labels)
    family, _, part = name.rpartition("_")
    if part in ("bucket", "sum", "count") and family in known and known[family].kind == "histogram":
        return {*known[family].labels, "le"} if part == "bucket" else set(known[family].labels)
    return None


# Alerts.


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert.name)
def test_an_alert_is_about_what_nodes_export(alert: Alert) -> None:
    if alert.expression.startswith("up{"):
        return
    check_names(alert.expression)
    named = re.findall(r"\$labels\.([a-z_]+)", alert.summary)
    by = re.findall(r"\bby \(([^)]*)\)", alert.expression)
    if by and alert.expression.split(" ", 1)[0] in ("sum", "max", "min"):
        kept = {label.strip() for label in by[0].split(",")}
        assert set(named) <= kept, f"{alert.name} adds up what its summary names"


def test_alerts_have_names_of_their_own_and_a_severity() -> None:
    found = alerts()
    assert len({alert.name for alert in found}) == len(found) > 30
    assert {alert.severity for alert in found} == set(SECTIONS)


def test_the_docs_say_what_to_do_about_each_alert() -> None:
    """In the section of its severity, once."""
    text = MONITORING.read_text()
    for severity, title in SECTIONS.items():
        section = text.partition(f"### {title}\n")[2].partition("\n#")[0]
        described = re.findall(r"^\| `(Tidelog\w+)` \| [^|]+ \| [^|]+ \|$", section, re.MULTILINE)
        assert sorted(described) == sorted(alert.name for alert in alerts() if alert.severity == severity)


def test_there_is_a_test_in_which_each_alert_fires() -> None:
    fires = set(re.findall(r'alertname="(\w+)"', ALERTS_TEST.read_text()))
    assert fires == {alert.name for alert in alerts()}


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is missing: Debian's package prometheus has it")
    return found


def run(*command: str) -> None:
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_prometheus_reads_the_alerts(promtool: str) -> None:
    run(promtool, "check", "rules", str(DOCS / "alerts.yml"))


def test_alerts_fire_when_they_should(promtool: str) -> None:
    run(promtool, "test", "rules", str(ALERTS_TEST))


# The dashboard.


def test_the_dashboard_is_what_its_table_says() -> None:
    assert DASHBOARD.read_text() == generated(), "the table changed: run `python docs/dashboard/generate.py`"


def test_grafana_finds_what_it_needs() -> None:
    found = board()
    assert found["schemaVersion"] >= 39
    assert found["uid"]
    assert found["title"]
    variables = {one["name"]: one for one in found["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    source = {"type": "prometheus", "uid": "${datasource}"}
    assert all(one["datasource"] == source for name, one in variables.items() if name != "datasource")
    assert len({panel["id"] for panel in panels()}) == len(panels())
    for panel in panels():
        if panel["type"] != "row":
            assert panel["datasource"] == source
            assert panel["description"]
            assert panel["targets"]
            assert panel["fieldConfig"]["defaults"]["unit"]
            assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    for _, target in targets():
        assert target["datasource"] == source
        assert set(re.findall(r"\$(?!__)([a-z]+)", target["expr"])) <= variables.keys()


def test_no_panel_lies_on_another() -> None:
    places = [panel["gridPos"] for panel in panels()]
    for place in places:
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= WIDTH
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)


def test_a_row_stands_above_each_of_its_panels() -> None:
    assert [panel["title"] for panel in panels() if panel["type"] == "row"] == [
        "Is all well?",
        "Produce and fetch",
        "Replication",
        "Groups",
        "Disks",
        "Process",
    ]
    assert panels()[0]["type"] == "row"
    heights = [panel["gridPos"]["y"] for panel in panels()]
    assert heights == sorted(heights)


@pytest.mark.parametrize(
    ("title", "target"), list(targets()), ids=lambda one: one if isinstance(one, str) else one["refId"]
)
def test_a_panel_is_about_what_nodes_export(title: str, target: dict[str, Any]) -> None:
    expression = in_prometheus(target["expr"]).replace("$group", ".*")
    check_names(expression)
    assert expression.count("(") == expression.count(")"), title
    for label in re.findall(r"\{\{([a-z_]+)\}\}", target["legendFormat"]):
        names = re.findall(r"\b(?:tidelog|process)_[a-z_]+", re.sub(r'"[^"]*"', "", expression))
        by = {label.strip() for labels in re.findall(r"\bby \(([^)]*)\)", expression) for label in labels.split(",")}
        known = by or SCRAPED | {one for name in names for one in labels_of(name) or ()}
        assert label in known, f"{title}: no line has a label {label}"


def test_prometheus_reads_the_panels(promtool: str, tmp_path: Path) -> None:
    """Each expression as a rule of its own."""
    rules = [
        {"record": f"panel:{number}", "expr": in_prometheus(target["expr"]).replace("$group", ".*")}
        for number, (_, target) in enumerate(targets())
    ]
    file = tmp_path / "panels.yml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))  # which is YAML
    run(promtool, "check", "rules", str(file))


def test_the_first_row_is_described() -> None:
    first = [panel["title"] for panel in panels() if panel["type"] == "stat"]
    text = MONITORING.read_text().partition("## What to watch first")[2].partition("\n## ")[0]
    assert re.findall(r"^\| ([^|`]+?) \| [01] \|", text, re.MULTILINE) == first
