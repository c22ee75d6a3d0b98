"""Spans as OTLP's Protobuf messages, from the library `opentelemetry-proto`.

The messages are made directly: with OpenTelemetry's SDK a span takes about seven times as long, and
the SDK exports in a thread of its own, which the thread of requests would wait for.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from ottla_broker.tracing.trace_context import TraceContext

SCOPE: Final = "ottla_broker"
MAX_TEXT: Final = 256
"""Characters of a text in an attribute. Client ids are as long as clients like."""

Attribute = str | int | Sequence[str]
OtlpSpan = Any  # a Span message; its library has no types


@dataclass(frozen=True, slots=True)
class Event:
    name: str
    at_ns: int
    attributes: Mapping[str, Attribute]


@dataclass(frozen=True, slots=True)
class SpanContent:
    """Times in ns since 1970. `error`: None where there is none."""

    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    events: Sequence[Event] = ()
    links: Sequence[TraceContext] = ()
    error: str | None = None


def server_span(own: TraceContext, parent: bytes, content: SpanContent) -> OtlpSpan:
    """`parent`: a span id; empty for the first span of a trace."""
    return _span(own, parent, content, Span.SPAN_KIND_SERVER)


def internal_span(own: TraceContext, parent: bytes, content: SpanContent) -> OtlpSpan:
    return _span(own, parent, content, Span.SPAN_KIND_INTERNAL)


def _span(own: TraceContext, parent: bytes, content: SpanContent, kind: Any) -> OtlpSpan:
    return Span(
        trace_id=own.trace_id,
        span_id=own.span_id,
        parent_span_id=parent,
        name=content.name,
        kind=kind,
        start_time_unix_nano=content.start_ns,
        end_time_unix_nano=content.end_ns,
        attributes=_attributes(content.attributes),
        events=[
            Span.Event(time_unix_nano=one.at_ns, name=one.name, attributes=_attributes(one.attributes))
            for one in content.events
        ],
        links=[Span.Link(trace_id=one.trace_id, span_id=one.span_id) for one in content.links],
        status=None if content.error is None else Status(code=Status.STATUS_CODE_ERROR, message=content.error),
    )


def export_request(resource: Mapping[str, Attribute], spans: Iterable[OtlpSpan]) -> bytes:
    """The body of a POST to a collector. `resource`: attributes of the broker."""
    scope_spans = ScopeSpans(scope=InstrumentationScope(name=SCOPE), spans=spans)
    resource_spans = ResourceSpans(resource=Resource(attributes=_attributes(resource)), scope_spans=[scope_spans])
    return bytes(ExportTraceServiceRequest(resource_spans=[resource_spans]).SerializeToString())


def _attributes(attributes: Mapping[str, Attribute]) -> list[Any]:
    return [KeyValue(key=key, value=_any_value(value)) for key, value in attributes.items()]


def _any_value(value: Attribute) -> Any:
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, str):
        return AnyValue(string_value=_text(value))
    return AnyValue(array_value=ArrayValue(values=[AnyValue(string_value=_text(one)) for one in value]))


def _text(value: str) -> str:
    """At most MAX_TEXT characters, without surrogates, which Protobuf refuses."""
    return value[:MAX_TEXT].encode(errors="replace").decode()
