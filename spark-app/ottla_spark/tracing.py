"""OpenTelemetry traces of a pipeline, where OpenTelemetry's environment variables ask for them.

- A batch is a span, created when the batch has completed and Spark reports it. It has links to the
  producers' spans of at most 16 traced records of the batch (MAX_TRACED).
- Each of these records also has a span `process <query>` in its own trace, as long as the batch.
  Its parent is the producer's span, which the header `traceparent` names.
- A batch that fails is a span with the class of its error. Messages of errors are left out, because
  they may have values of records.

Nothing is imported from OpenTelemetry unless an endpoint is set.
https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla_spark.errors import MissingDependency, PipelineError, find_error_type
from ottla_spark.progress import BatchProgress, Offsets, TracedRecord

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL: Final = "http/protobuf"
SCOPE: Final = "ottla_spark"
MAX_PARTITIONS: Final = 100
"""Largest number of partitions whose offsets a span has."""


def is_tracing(environ: Mapping[str, str]) -> bool:
    return (
        any(environ.get(name) for name in ENDPOINTS)
        and environ.get("OTEL_SDK_DISABLED", "").lower() != "true"
        and environ.get("OTEL_TRACES_EXPORTER", "").lower() != "none"
    )


def check_protocol(environ: Mapping[str, str]) -> None:
    """Raises PipelineError for an unsupported OTLP protocol."""
    for name in PROTOCOLS:
        if value := environ.get(name):
            if value != PROTOCOL:
                raise PipelineError(f"{name} cannot be {value!r}; allowed: {PROTOCOL}")
            return


def open_tracer(pipeline: str, environ: Mapping[str, str]) -> PipelineTracer | None:
    """None where nothing is traced. Raises PipelineError, MissingDependency."""
    if not is_tracing(environ):
        return None
    check_protocol(environ)
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as reason:
        raise MissingDependency(f"traces need OpenTelemetry's SDK: pip install 'ottla[spark]': {reason}") from None
    resource = Resource.create()  # from the environment
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: pipeline}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return PipelineTracer(provider, pipeline)


@dataclass(frozen=True, slots=True)
class StartedBatch:
    """A batch whose rows are being written. `started_ns`: since 1970."""

    number: int
    started_ns: int


class PipelineTracer:
    """`provider`: a TracerProvider of OpenTelemetry's SDK, which exports in a thread of its own."""

    def __init__(self, provider: Any, pipeline: str) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer(SCOPE)
        self._pipeline = pipeline
        self._unfinished: dict[str, StartedBatch] = {}

    def start_batch(self, query: str, number: int) -> None:
        """A query has one batch at a time. Called from the threads of batches."""
        self._unfinished[query] = StartedBatch(number, time.time_ns())

    def record_batch(self, batch: BatchProgress, topic: str | None) -> None:
        """`topic`: the topic that the batch was written to; None for other sinks."""
        from opentelemetry.trace import Link, SpanKind, set_span_in_context

        started = self._unfinished.get(batch.query)
        if started is not None and started.number == batch.number:
            del self._unfinished[batch.query]
        start_ns = batch.started_ms * 1_000_000
        end_ns = start_ns + batch.duration_ms * 1_000_000
        common = self._common_attributes(topic) | {"ottla.batch": batch.number}
        records = [(record, span) for record in batch.traced if (span := remote_span(record)) is not None]
        whole = self._tracer.start_span(
            f"batch {batch.query}",
            attributes=common | batch_attributes(batch),
            links=[Link(span.get_span_context()) for _, span in records],
            start_time=start_ns,
        )
        for record, span in records:
            self._tracer.start_span(
                f"process {batch.query}",
                set_span_in_context(span),
                SpanKind.CONSUMER,
                common | record_attributes(record),
                [Link(whole.get_span_context())],
                start_ns,
            ).end(end_ns)
        whole.end(end_ns)

    def record_failure(self, query: str, topic: str | None, error: BaseException) -> None:
        """Records the batch whose error has ended the query. Its span has no batch number if it
        failed before its rows were written, for example while its offsets were read.
        """
        from opentelemetry.trace import Status, StatusCode

        name, now_ns = find_error_type(error), time.time_ns()
        started = self._unfinished.pop(query, None)
        known = {} if started is None else {"ottla.batch": started.number}
        span = self._tracer.start_span(
            f"batch {query}",
            attributes=self._common_attributes(topic) | known | {"ottla.query": query, "error.type": name},
            start_time=now_ns if started is None else started.started_ns,
        )
        span.set_status(Status(StatusCode.ERROR, name))
        span.end(now_ns)

    def _common_attributes(self, topic: str | None) -> dict[str, str | int]:
        attributes: dict[str, str | int] = {"messaging.system": "kafka", "ottla.pipeline": self._pipeline}
        return attributes if topic is None else attributes | {"messaging.destination.name": topic}

    def close(self) -> None:
        """Sends what has not been sent."""
        self._provider.shutdown()


def remote_span(record: TracedRecord) -> Any | None:
    """The producer's span; None for an invalid header."""
    from opentelemetry.trace import get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    span = get_current_span(TraceContextTextMapPropagator().extract({"traceparent": record.traceparent}))
    return span if span.get_span_context().is_valid else None


def batch_attributes(batch: BatchProgress) -> dict[str, str | int | list[str]]:
    return {
        "ottla.query": batch.query,
        "ottla.rows.read": batch.rows,
        "ottla.rows.written": batch.written,
        "ottla.dead_letters": batch.dead_letters,
        "ottla.traced_records": batch.traced_count,
        "ottla.offsets": offset_ranges(batch.start_offsets, batch.end_offsets),
    }


def offset_ranges(starts: Offsets, ends: Offsets) -> list[str]:
    """As `topic-partition: first offset to end offset`, the end exclusive; of the first
    MAX_PARTITIONS that have new records.
    """
    grown = [at for at in sorted(ends) if starts.get(at) != ends[at]]
    return [f"{topic}-{part}: {starts.get((topic, part), 0)} to {ends[topic, part]}" for topic, part in grown][
        :MAX_PARTITIONS
    ]


def record_attributes(record: TracedRecord) -> dict[str, str | int]:
    """Where the record came from, as far as the steps have kept its columns."""
    found: dict[str, str | int | None] = {
        "ottla.source.topic": record.topic,
        "ottla.source.partition": record.partition,
        "ottla.source.offset": record.offset,
    }
    return {name: value for name, value in found.items() if value is not None}
