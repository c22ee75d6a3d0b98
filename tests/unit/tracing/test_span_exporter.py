"""Spans are exported, kept while the collector is unavailable, and dropped if it refuses them."""

import logging

import pytest

from ottla_broker.metrics import TraceCounts
from ottla_broker.tracing.otlp_span import OtlpSpan, SpanContent, server_span
from ottla_broker.tracing.span_exporter import (
    MAX_EXPORTED,
    MAX_QUEUED,
    CollectorUnavailable,
    SpanExporter,
    SpansRefused,
)
from ottla_broker.tracing.trace_context import TraceContext
from tests.otlp_collector import parse_spans
from tests.unit.async_tests import async_test


class ScriptedCollector:
    """Raises `failure` while it is set."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.received: list[list[str]] = []

    async def post(self, body: bytes) -> None:
        if self.failure is not None:
            raise self.failure
        self.received.append([span.name for span in parse_spans(body)])


def span(number: int) -> OtlpSpan:
    return server_span(TraceContext(b"t" * 16, b"s" * 8, is_sampled=True), b"", SpanContent(str(number), 1, 2))


def make_exporter() -> tuple[ScriptedCollector, TraceCounts, SpanExporter]:
    collector, counts = ScriptedCollector(), TraceCounts()
    return collector, counts, SpanExporter(collector.post, {}, "http://collector:4318", counts)


@async_test
async def test_spans_are_sent_in_order_and_in_posts_of_bounded_size() -> None:
    collector, counts, exporter = make_exporter()
    for number in range(MAX_EXPORTED + 1):
        exporter.add([span(number)])
    assert await exporter.export_queued()
    assert list(map(len, collector.received)) == [MAX_EXPORTED, 1]
    assert [name for names in collector.received for name in names] == list(map(str, range(MAX_EXPORTED + 1)))
    assert (counts.exported_spans, counts.dropped_spans, len(exporter)) == (MAX_EXPORTED + 1, 0, 0)


@async_test
async def test_spans_of_an_outage_are_sent_after_it_as_far_as_the_queue_holds_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    collector, counts, exporter = make_exporter()
    collector.failure = CollectorUnavailable("connection refused")
    for number in range(MAX_QUEUED // 2 + 5):
        exporter.add([span(number), span(number)])
        if number % 500 == 0:
            assert not await exporter.export_queued()
    assert (len(exporter), counts.dropped_spans) == (MAX_QUEUED, 10)
    collector.failure = None
    assert await exporter.export_queued()
    assert (len(exporter), counts.exported_spans) == (0, MAX_QUEUED)
    assert [entry.getMessage() for entry in caplog.records] == [
        "cannot send traces to http://collector:4318: connection refused; requests are served as before",
        "traces are sent to http://collector:4318 again; 10 spans were dropped",
    ]


@async_test
async def test_refused_spans_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    collector, counts, exporter = make_exporter()
    collector.failure = SpansRefused("HTTP status 400")
    for _ in range(2):
        exporter.add([span(1), span(2)])
        assert await exporter.export_queued()
    assert (counts.dropped_spans, counts.exported_spans, len(exporter)) == (4, 0, 0)
    assert len(caplog.records) == 1
