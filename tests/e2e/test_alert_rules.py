"""promtool evaluates each alert of the chart for series with which it fires, and for series with
which it does not.
"""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from tests.prometheus import find_program

RULES = Path(__file__).parents[2] / "charts/ottla/files/alerts.yaml"
CLUSTER = 'namespace="shop",cluster="orders"'
POD = f'{CLUSTER},pod="orders-0"'
OTHER_POD = f'{CLUSTER},pod="orders-1"'
EVALUATED_AT = "90m"
STEP = "2m"  # between values of a series


class Case(NamedTuple):
    """Series and their values, one for each STEP, in promtool's notation."""

    firing: Mapping[str, str]
    healthy: Mapping[str, str]


def gauge(metric: str, firing: float, healthy: float = 0, labels: str = POD) -> Case:
    series = f"{metric}{{{labels}}}"
    return Case({series: f"{firing}x120"}, {series: f"{healthy}x120"})


def produce_buckets(slow: int) -> dict[str, str]:
    """Histogram of Produce requests, of which `slow` of a hundred take longer than a second."""
    series = 'ottla_request_duration_seconds_bucket{%s,request="Produce",phase="total",le="%s"}'
    return {
        series % (POD, "1.0"): f"0+{100 - slow}x120",
        series % (POD, "2.0"): "0+100x120",
        series % (POD, "+Inf"): "0+100x120",
    }


def disk(usable: int) -> dict[str, str]:
    """A disk of which `usable` of a hundred bytes are free."""
    return {
        f"ottla_log_directory_usable_bytes{{{POD}}}": f"{usable}x120",
        f"ottla_log_directory_total_bytes{{{POD}}}": "100x120",
    }


CASES: Final = {
    "OttlaPartitionsOffline": gauge("kafka_controller_kafkacontroller_offlinepartitionscount", 2),
    "OttlaUnderMinIsr": gauge("kafka_server_replicamanager_underminisrpartitioncount", 1),
    "OttlaUnderReplicated": gauge("kafka_server_replicamanager_underreplicatedpartitions", 1),
    "OttlaNoController": Case(
        {f"kafka_controller_kafkacontroller_activecontrollercount{{{one}}}": "0x120" for one in (POD, OTHER_POD)},
        {
            f"kafka_controller_kafkacontroller_activecontrollercount{{{POD}}}": "1x120",
            f"kafka_controller_kafkacontroller_activecontrollercount{{{OTHER_POD}}}": "0x120",
        },
    ),
    "OttlaBrokersFenced": gauge("kafka_controller_kafkacontroller_fencedbrokercount", 1),
    "OttlaDiskFills": Case(disk(usable=9), disk(usable=11)),
    "OttlaLogDirectoryFailed": gauge("kafka_log_logmanager_offlinelogdirectorycount", 1),
    "OttlaProduceSlow": Case(produce_buckets(slow=2), produce_buckets(slow=0)),
    "OttlaBrokerBusy": gauge("kafka_network_socketserver_networkprocessoravgidle_percent", 0.05, 0.5),
    "OttlaFewFilesLeft": Case(
        {f"process_open_fds{{{POD}}}": "95x120", f"process_max_fds{{{POD}}}": "100x120"},
        {f"process_open_fds{{{POD}}}": "50x120", f"process_max_fds{{{POD}}}": "100x120"},
    ),
    "OttlaCertificateExpires": gauge(
        "ottla_listener_certificate_expiry_seconds", 6 * 86400, 30 * 86400, f'{POD},listener="TLS"'
    ),
    "OttlaMirrorLags": gauge("ottla_mirror_lag_seconds", 301, 1, f'{POD},mirror="west",topic="t",partition="0"'),
    "OttlaMirrorStopped": gauge("ottla_mirror_stopped_partitions", 1),
    "OttlaNoActiveOperator": gauge("ottla_operator_active", 0, 1, 'namespace="shop"'),
    "OttlaReconcileFails": Case(
        {'ottla_operator_reconciles_total{kind="Topic",result="failed"}': "0+12x120"},
        {
            'ottla_operator_reconciles_total{kind="Topic",result="failed"}': "0+1x120",
            'ottla_operator_reconciles_total{kind="Topic",result="done"}': "0+60x120",
        },
    ),
    "OttlaPipelineLags": gauge("ottla_pipeline_lag_seconds", 601, 5, 'namespace="shop",pipeline="hourly"'),
    "OttlaPipelineFailed": gauge("ottla_pipeline_state", 1, 0, 'namespace="shop",pipeline="hourly",state="failed"'),
}


def read_alerts() -> dict[str, Any]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}


def expected_alert(alert: str, firing: bool) -> dict[str, Any]:
    """promtool's check that an alert fires, or that it does not."""
    samples = [{"labels": "{}", "value": 1}] if firing else []
    return {
        "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
        "eval_time": EVALUATED_AT,
        "exp_samples": samples,
    }


def test_each_alert_fires_for_its_series_and_not_for_healthy_ones(tmp_path: Path) -> None:
    assert CASES.keys() == read_alerts().keys()
    tests = [
        {
            "name": f"{alert} {'fires' if firing else 'does not fire'}",
            "interval": STEP,
            "input_series": [{"series": series, "values": values} for series, values in values_by_series.items()],
            "promql_expr_test": [expected_alert(alert, firing)],
        }
        for alert, case in CASES.items()
        for firing, values_by_series in ((True, case.firing), (False, case.healthy))
    ]
    run_promtool(tmp_path, tests)


def test_lag_of_groups_is_recorded(tmp_path: Path) -> None:
    partition = f'{CLUSTER},topic="t",partition="0"'
    series = {
        f'ottla_partition_high_watermark{{{partition},pod="orders-0"}}': "0+120x120",
        f'ottla_partition_high_watermark{{{partition},pod="orders-1"}}': "0+118x120",  # a follower
        f'kafka_consumergroup_current_offset{{{partition},consumergroup="billing",pod="orders-1"}}': "0+100x120",
    }
    labels = '{cluster="orders",consumergroup="billing",namespace="shop",partition="0",topic="t"}'
    expected = {"kafka_consumergroup_lag": 900, "ottla_consumergroup_lag_seconds": 900}  # at one record a second
    tests = [
        {
            "interval": STEP,
            "input_series": [{"series": one, "values": values} for one, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": metric,
                    "eval_time": EVALUATED_AT,
                    "exp_samples": [{"labels": f"{metric}{labels}", "value": value}],
                }
                for metric, value in expected.items()
            ],
        }
    ]
    run_promtool(tmp_path, tests)


def run_promtool(folder: Path, tests: list[dict[str, Any]]) -> None:
    file = folder / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": STEP, "tests": tests}))
    done = subprocess.run(
        [find_program("promtool"), "test", "rules", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
