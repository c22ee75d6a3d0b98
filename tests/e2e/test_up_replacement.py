"""A new version of a pipeline catches up beside the old one, is compared and takes over."""

from __future__ import annotations

import json

import pytest

from ottla_operator.resources.model import Json
from tests.e2e.up_process import UpProcess
from tests.e2e.up_resources import consume_values, produce_values, resource, topic
from tests.waiting import eventually

SCHEMA = {"type": "json", "schema": "city STRING"}


def version(name: str, target: str, sql: str, sink: Json, **spec: Json) -> Json:
    counts = {"from": "counts", "topic": target, "key": ["city"], "outputMode": "update", **sink}
    return resource(
        "Pipeline",
        name,
        clusterRef={"name": "demo"},
        sources={"visits": {"topic": "visits", "format": SCHEMA}},
        transforms=[{"name": "counts", "sql": sql}],
        sinks=[counts],
        spark={"conf": {"spark.sql.shuffle.partitions": "2"}},
        **spec,
    )


@pytest.mark.slow
def test_new_version_catches_up_is_compared_and_takes_over(up: UpProcess) -> None:
    cluster = resource("Cluster", "demo", replicas=1, listeners=[{"name": "plain", "port": up.port}])
    topics = [topic(it) for it in ("visits", "counts-1", "counts-2")]
    old = version("v1", "counts-1", "SELECT city, count(*) AS n FROM visits GROUP BY city", {})
    up.write_resources(cluster, *topics, old)
    up.start()
    up.wait_for_line("topic visits created")
    produce_values(up, "visits", '{"city": "A"}', '{"city": "A"}', '{"city": "B"}')
    up.wait_for_line("first pipeline row after", within_s=200)

    sql = "SELECT city, count(city) AS n, max(city) AS last FROM visits GROUP BY city"
    replaces = {"name": "v1", "takeOver": "WhenEqual"}
    new = version("v2", "counts-2", sql, {"compareWith": "counts-1"}, replaces=replaces)
    up.write_resources(cluster, *topics, old, new)
    up.wait_for_line("pipeline v2: is taking over from Pipeline v1", within_s=200)
    up.wait_for_line("pipeline v2: has taken over from Pipeline v1, which has stopped", within_s=60)
    up.wait_for_line("pipeline v1: Pipeline v2 has taken over; this one is stopped, and its checkpoint is kept.")

    produce_values(up, "visits", '{"city": "B"}')
    eventually(
        lambda: {"city": "B", "n": 2, "last": "B"} in map(json.loads, consume_values(up, "counts-2", 3)), within_s=60
    )
    assert {"city": "B", "n": 2} not in [*map(json.loads, consume_values(up, "counts-1", 2))]
    assert up.stop() == 0
