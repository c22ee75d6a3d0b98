"""The example of metrics and logs: a broker's own metrics and log lines are in two Iceberg tables,
and those that the rules select are in the topic of alerts.
"""

from __future__ import annotations

import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import yaml

from examples.monitoring import load, plot, report
from tests.brokers import run_ottla_broker
from tests.ports import free_port
from tests.spark.conftest import Runner, Topics

EXAMPLE = Path(load.__file__).parent
UNDER_REPLICATED = "kafka_server_replicamanager_underreplicatedpartitions"
TRACE = ["Traceback (most recent call last):", "2026-06-01 10:00:01,000 ERROR a.b: disk full", "not yet complete"]


def test_metrics_and_log_lines_are_in_tables_and_alerts_in_a_topic(pipeline: Runner, topics: Topics) -> None:
    topics.create("metrics", "logs", partitions=3)
    topics.create("alerts")
    address = f"127.0.0.1:{free_port()}"
    with run_ottla_broker(http_listener=address) as broker, urllib.request.urlopen(f"http://{address}/metrics") as page:
        samples = list(load.samples(page.read().decode(), 1, datetime.now(UTC)))
        logged = broker.log_tail().splitlines()
    assert any(it.name == UNDER_REPLICATED and it.value == 0 for it in samples)
    samples.append(load.Sample(datetime.now(UTC), 2, UNDER_REPLICATED, {}, 3.0))
    file = pipeline.folder / "output.log"
    file.write_text("\n".join([*logged, *TRACE]))
    reader = load.LogReader(file)
    lines = list(load.log_lines(reader.read(), 1))
    assert lines[-1].message == "disk full"
    assert reader.read() == []
    for topic, records in (("metrics", samples), ("logs", lines)):
        topics.write(topic, *(msgspec.json.encode(it) for it in records))

    spec = yaml.safe_load((EXAMPLE / "pipeline.yaml").read_text())["spec"]
    pipeline(spec | {"trigger": {"availableNow": True}}, name="monitoring")

    tables = report.open_tables(pipeline.folder)
    stored = tables.execute("SELECT name, labels, value FROM metrics").fetchall()
    expected = [(it.name, it.labels, it.value) for it in samples]
    assert sorted(map(repr, stored)) == sorted(map(repr, expected))
    assert tables.execute('SELECT message FROM logs ORDER BY "at" LIMIT 1').fetchall() == [("disk full",)]
    assert tables.execute("SELECT count(*) FROM logs").fetchall() == [(len(lines),)]
    assert "under_replicated" in str(tables.sql(report.REPORT))
    assert "records in a minute" in plot.draw(tables)
    alerts = {it.key: it.json["details"] for it in topics.read("alerts")}
    assert alerts == {"under-replicated partitions|2": "3", "error in the log|1": "a.b: disk full"}
