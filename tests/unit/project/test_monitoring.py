"""The chart's dashboards and alerts: files are current, names exist, runbooks lead somewhere."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ottla_broker.metrics import METRICS
from ottla_operator.kube.metrics import Metrics
from ottla_operator.monitoring.dashboards import DASHBOARDS, FOLDER, render_files
from ottla_operator.monitoring.panels import GRID_WIDTH, Dashboard, render_dashboard
from ottla_spark.progress_snapshot import ProgressSnapshot

ROOT = Path(__file__).parents[3]
RULES = yaml.safe_load((ROOT / "charts/ottla/files/alerts.yaml").read_text())
METRIC = re.compile(r"\b(?:kafka|ottla|process)_[a-z0-9_]+\b(?=[ {)\[]|$)")

STRIMZI_METRICS = Path(__file__).with_name("strimzi_metrics.txt").read_text().splitlines()
"""Metrics of brokers and groups, in Strimzi's dashboards of 2026-08-22 (docs/metrics.md)."""
UNCOUNTED = " not counted"


def exported_metrics() -> set[str]:
    """Names of the samples of a broker, an operator and a pipeline, and of the recording rules."""
    lag = {"seconds": 1, "partitions": {"t": {"0": {"records": 1}}}}
    pipeline = ProgressSnapshot("p", "running", lag=lag, rejected={("v", "rule"): 1})
    text = Metrics(dict).render() + pipeline.to_prometheus()
    names = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    for metric in METRICS:
        names.add(metric.name)
        if metric.kind == "histogram":
            names |= {f"{metric.name}_{suffix}" for suffix in ("bucket", "sum", "count")}
    return names | {rule["record"] for group in RULES["groups"] for rule in group["rules"] if "record" in rule}


def alerts() -> list[dict[str, Any]]:
    return [rule for group in RULES["groups"] for rule in group["rules"] if "alert" in rule]


def test_files_of_dashboards_are_current() -> None:
    expected = render_files()
    assert {path.name for path in (ROOT / FOLDER).iterdir()} == {path.name for path in expected}
    for path, text in expected.items():
        assert (ROOT / path).read_text() == text, "run: python -m ottla_operator.monitoring.dashboards"


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda one: one.file)
def test_dashboard_has_unique_panels_inside_the_grid_that_do_not_overlap(dashboard: Dashboard) -> None:
    rendered = json.loads(json.dumps(render_dashboard(dashboard)))
    assert rendered["uid"] == dashboard.file and len(rendered["uid"]) <= 40
    panels = rendered["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        covered = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & covered, f"{panel['title']} overlaps"
        assert at["x"] + at["w"] <= GRID_WIDTH
        cells |= covered
    names = {variable["name"] for variable in rendered["templating"]["list"]} | {"__rate_interval"}
    used = set(re.findall(r"\$(\w+)", " ".join(dashboard.expressions())))
    assert used <= names


def test_metrics_of_dashboards_and_rules_exist() -> None:
    expressions = [expression for one in DASHBOARDS for expression in one.expressions()]
    expressions += [rule["expr"] for group in RULES["groups"] for rule in group["rules"]]
    used = {name for expression in expressions for name in METRIC.findall(expression)}
    assert len(used) > 40
    assert not used - exported_metrics()


def test_metrics_of_strimzis_dashboards_exist_except_those_that_are_not_counted() -> None:
    exported = exported_metrics()
    expected = {name for name in STRIMZI_METRICS if not name.endswith(UNCOUNTED)}
    uncounted = {name.removesuffix(UNCOUNTED) for name in STRIMZI_METRICS} - expected
    assert expected <= exported
    assert not uncounted & exported, "docs/metrics.md still says that they are not counted"


def test_each_alert_has_a_runbook() -> None:
    page = (ROOT / "docs/troubleshooting.md").read_text()
    anchors = {title.lower() for title in re.findall(r"^### (\w+)$", page, re.MULTILINE)}
    for alert in alerts():
        base, _, anchor = alert["annotations"]["runbook_url"].partition("#")
        assert (base, anchor in anchors) == ("RUNBOOKS", True), f"docs/troubleshooting.md has no section {anchor}"
        assert alert["labels"]["severity"] in ("critical", "warning")
    assert anchors == {alert["alert"].lower() for alert in alerts()}, "a section without an alert"
