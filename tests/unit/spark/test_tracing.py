"""When pipelines are traced, and the spans of a batch."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from ottla_spark.errors import PipelineError
from ottla_spark.progress import parse_progress_event
from ottla_spark.tracing import PipelineTracer, is_tracing, offset_ranges, open_tracer

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
PYTHON_FAILURE = (
    "py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call "
    'last):\n  File "steps.py", line 3, in add\n    raise ValueError(row)\nValueError: card 4711\n\tat py4j.Protocol'
)
SAMPLED = f"00-{1:032x}-{2:016x}-01"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_SERVICE_NAME": "shop"}, False),
        (ENDPOINT, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, True),
        (ENDPOINT | {"OTEL_SDK_DISABLED": "TRUE"}, False),
        (ENDPOINT | {"OTEL_TRACES_EXPORTER": "none"}, False),
        (ENDPOINT | {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "false"}, True),
    ],
)
def test_tracing_is_on_where_an_endpoint_is_set(environ: dict[str, str], expected: bool) -> None:
    assert is_tracing(environ) is expected


def test_another_protocol_is_refused() -> None:
    for name in ("OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"):
        with pytest.raises(PipelineError, match=f"^{name} cannot be 'grpc'; allowed: http/protobuf$"):
            open_tracer("p", ENDPOINT | {name: "grpc"})
    assert open_tracer("p", {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}) is None


def test_a_batch_has_a_span_and_one_for_each_sampled_trace_of_its_records() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    event = {
        "name": "orders",
        "batchId": 3,
        "timestamp": "2026-11-27T10:00:00.250Z",
        "numInputRows": 9,
        "durationMs": {"triggerExecution": 1500},
        "sources": [{"startOffset": {"in": {"0": 10}}, "endOffset": {"in": {"0": 19}}}],
        "observedMetrics": {
            "counts": {"rows": 8},
            "traces": {
                "traced": 40,
                "record0": None,
                "record1": {"traceparent": SAMPLED, "topic": "in", "partition": 0, "offset": 12},
                "record2": {"traceparent": f"00-{0:032x}-{2:016x}-01"},
            },
        },
    }
    PipelineTracer(provider, "shop").record_batch(parse_progress_event(event), "out")
    process, batch = exporter.get_finished_spans()
    assert (process.name, batch.name) == ("process orders", "batch orders")
    assert process.context is not None and process.parent is not None and batch.context is not None
    assert (process.context.trace_id, process.parent.span_id) == (1, 2)
    assert batch.parent is None
    assert [link.context.span_id for link in batch.links] == [2]
    assert [link.context.span_id for link in process.links] == [batch.context.span_id]
    assert batch.start_time is not None and batch.end_time is not None
    assert batch.start_time == 1_795_773_600_250_000_000
    assert batch.end_time - batch.start_time == 1_500_000_000
    assert dict(batch.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.destination.name": "out",
        "ottla.pipeline": "shop",
        "ottla.query": "orders",
        "ottla.batch": 3,
        "ottla.rows.read": 9,
        "ottla.rows.written": 8,
        "ottla.dead_letters": 0,
        "ottla.traced_records": 40,
        "ottla.offsets": ("in-0: 10 to 19",),
    }
    assert (process.attributes or {})["ottla.source.offset"] == 12


def test_batch_that_fails_is_a_span_with_the_class_of_its_error() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = PipelineTracer(provider, "shop")
    tracer.start_batch("orders", 4)
    tracer.record_failure("orders", "out", RuntimeError(PYTHON_FAILURE))
    (batch,) = exporter.get_finished_spans()
    assert batch.name == "batch orders"
    assert (batch.status.status_code, batch.status.description) == (StatusCode.ERROR, "ValueError")
    assert dict(batch.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.destination.name": "out",
        "ottla.pipeline": "shop",
        "ottla.query": "orders",
        "ottla.batch": 4,
        "error.type": "ValueError",
    }
    assert batch.start_time is not None and batch.end_time is not None and batch.start_time <= batch.end_time
    assert "4711" not in batch.to_json(), "the span has a value of a record"


def test_failure_after_a_batch_has_completed_is_not_reported_for_that_batch() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = PipelineTracer(provider, "shop")
    tracer.start_batch("orders", 3)
    tracer.record_batch(parse_progress_event({"name": "orders", "batchId": 3, "numInputRows": 0, "sources": []}), None)
    tracer.record_failure("orders", None, RuntimeError("the topic is gone"))
    _, failure = exporter.get_finished_spans()
    assert "ottla.batch" not in (failure.attributes or {})
    assert (failure.attributes or {})["error.type"] == "RuntimeError"


def test_offsets_of_a_batch_are_those_of_partitions_with_new_records() -> None:
    starts = {("a", 0): 5, ("a", 1): 7}
    ends = {("a", 0): 5, ("a", 1): 9, ("a", 10): 4}
    assert offset_ranges(starts, ends) == ["a-1: 7 to 9", "a-10: 0 to 4"]
