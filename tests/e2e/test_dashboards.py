"""Dashboards and rules of the chart with a real Prometheus: every expression returns data."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla_operator.monitoring.dashboards import DASHBOARDS
from ottla_operator.monitoring.panels import Dashboard
from tests.e2e.monitored_cluster import CLUSTER, NAMESPACE, run_monitored_cluster
from tests.prometheus import Prometheus, run_prometheus
from tests.waiting import eventually

RULES = Path(__file__).parents[2] / "charts/ottla/files/alerts.yaml"
VARIABLES = {
    "$namespace": NAMESPACE,
    "$cluster": CLUSTER,
    "$topic": ".*",
    "$consumergroup": ".*",
    "$pipeline": ".*",
    "$__rate_interval": "10s",
}
METRIC = re.compile(r"\b(?:kafka|ottla|process)_[a-z0-9_]+\b(?=[ {)\[])")
DATA_WITHIN_S = 45.0


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    with run_monitored_cluster(folder) as targets, run_prometheus(folder, targets, RULES) as server:
        yield server


def with_values(expression: str) -> str:
    """An expression as Grafana sends it."""
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    return expression


def wait_for_data(prometheus: Prometheus, expressions: list[str]) -> None:
    def without_data() -> list[str]:
        return [one for one in expressions if not prometheus.values(one)]

    eventually(
        lambda: not without_data(),
        within_s=DATA_WITHIN_S,
        message=lambda: "data of these expressions:\n" + "\n".join(without_data()),
    )


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda one: one.file)
def test_every_expression_of_a_dashboard_returns_data(prometheus: Prometheus, dashboard: Dashboard) -> None:
    expressions = [with_values(one) for one in dashboard.expressions()]
    choices = [with_values(one.query.replace("@", dashboard.selector)) for one in dashboard.variables]
    wait_for_data(prometheus, expressions + choices)
    for variable, query in zip(dashboard.variables, choices, strict=True):
        assert [
            one["metric"] for one in prometheus.get("query", query=query)["result"] if variable.label in one["metric"]
        ]


def test_every_rule_is_evaluated_without_error_on_metrics_that_exist(prometheus: Prometheus) -> None:
    eventually(
        lambda: all(one["health"] == "ok" for one in prometheus.rules()), message=lambda: str(prometheus.rules())
    )
    rules = prometheus.rules()
    assert {one["lastError"] for one in rules if "lastError" in one} <= {""}
    recorded = [one["name"] for one in rules if one["type"] == "recording"]
    read = {metric for one in rules for metric in METRIC.findall(one["query"])}
    assert len(read) > 20
    wait_for_data(prometheus, recorded + sorted(read))
    eventually(
        lambda: any(one["name"] == "OttlaReconcileFails" and one["alerts"] for one in prometheus.rules()),
        message="the operator's reconciles fail: the alert is pending",
    )


def test_a_group_has_a_lag_and_a_committed_offset_up_to_the_high_watermark(prometheus: Prometheus) -> None:
    selector = f'{{namespace="{NAMESPACE}",cluster="{CLUSTER}",topic="payments"}}'
    wait_for_data(prometheus, [f"kafka_consumergroup_lag{selector} >= 0"])
    (end,) = prometheus.values(f"sum(ottla_partition_high_watermark{selector})")
    (committed,) = prometheus.values(f"sum(kafka_consumergroup_current_offset{selector})")
    assert 0 < committed <= end
