"""OpenTelemetry traces, which are off unless `otel.exporter.otlp.endpoint` is set."""

from dataclasses import dataclass

from ottla_broker.metrics.declaration import counter

SPANS_EXPORTED = counter("ottla_tracing_exported_spans_total", "Spans that the OpenTelemetry collector accepted.")
SPANS_DROPPED = counter(
    "ottla_tracing_dropped_spans_total",
    "Spans that were dropped: the collector refused them, or was away for so long that the queue was full.",
)
REQUESTS_LIMITED = counter(
    "ottla_tracing_limited_requests_total",
    "Requests that were sampled and not traced, because 100 others were traced in the same second.",
)


@dataclass(slots=True)
class TraceCounts:
    """Counts of one broker's spans and requests since its start."""

    exported_spans: int = 0
    dropped_spans: int = 0
    limited_requests: int = 0
