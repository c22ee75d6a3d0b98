"""A record's trace from the producer through a pipeline to its sinks, on a real Spark."""

from __future__ import annotations

import pytest

from ottla_spark.errors import PipelineError
from tests.otlp_collector import run_collector
from tests.spark.conftest import Runner, Topics, events

SPAN = "00f067aa0ba902b7"


def traceparent(number: int, flags: str = "01") -> str:
    return f"00-{number:032x}-{SPAN}-{flags}"


def test_trace_of_a_record_goes_on_to_the_sinks(
    pipeline: Runner, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create("traced-in", "traced-once", "traced-again")
    headers = {1: traceparent(1), 2: traceparent(2, flags="00"), 3: "not a traceparent", 4: None}
    for number, value in headers.items():
        topics.producer.produce(
            "traced-in", f'{{"id": {number}}}', headers=[] if value is None else [("traceparent", value.encode())]
        )
    topics.producer.flush(30)
    spec = {
        "sources": {"events": events("traced-in")},
        "transforms": [{"name": "rows", "sql": "SELECT *, id + 1 AS next FROM events"}],
        "sinks": [
            {"from": "rows", "topic": "traced-once", "name": "once"},
            {"from": "rows", "topic": "traced-again", "name": "again", "delivery": "atLeastOnce"},
        ],
    }
    with run_collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        pipeline(spec, name="shop")
    for topic in ("traced-once", "traced-again"):
        passed_on = {it.json["id"]: it.headers.get("traceparent") for it in topics.read(topic)}
        assert passed_on == {1: traceparent(1), 2: traceparent(2, flags="00"), 3: None, 4: None}
    for query, topic in (("once", "traced-once"), ("again", "traced-again")):
        (batch,) = collector.spans_named(f"batch {query}")
        assert batch.resource["service.name"] == "shop"
        assert (
            batch.attributes.items()
            >= {
                "ottla.rows.read": 4,
                "ottla.rows.written": 4,
                "ottla.traced_records": 1,
                "ottla.offsets": ["traced-in-0: 0 to 4"],
                "messaging.destination.name": topic,
            }.items()
        )
        (record,) = collector.spans_named(f"process {query}")
        assert (record.trace_id, record.parent_id) == (f"{1:032x}", SPAN)
        assert batch.links == [(record.trace_id, SPAN)]
        assert record.links == [(batch.trace_id, batch.span_id)]
        assert record.attributes["ottla.source.offset"] == 0


def test_batch_that_fails_is_a_span_without_values_of_records(
    pipeline: Runner, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.write("failing-in", {"id": 1, "city": "card 4711"})
    spec = {
        "sources": {"events": events("failing-in")},
        "transforms": [{"name": "rows", "sql": "SELECT CAST(city AS INT) AS number FROM events"}],
        "sinks": [{"from": "rows", "topic": "failing-out"}],
    }
    with run_collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        with pytest.raises(PipelineError, match="4711"):
            pipeline(spec, name="shop")
    (batch,) = collector.spans_named("batch rows")
    assert batch.error == batch.attributes["error.type"]
    assert batch.error == "pyspark.errors.exceptions.captured.NumberFormatException"
    assert (batch.attributes["ottla.batch"], batch.attributes["messaging.destination.name"]) == (0, "failing-out")
    assert batch.start_ns < batch.end_ns
    assert "4711" not in str(collector.spans)
