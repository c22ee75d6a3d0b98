"""The spans of one request. Pure.

- The request is a span of kind server, and its phases are the children.
- If all contexts of its records are of one trace, the request is a part of that trace. Otherwise it
  begins its own, and has links to the traces of its records.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ottla_broker.tracing.otlp_span import Attribute, Event, OtlpSpan, SpanContent, internal_span, server_span
from ottla_broker.tracing.trace_context import TraceContext


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the time in which a request was served. Times in ns since 1970."""

    name: str
    start_ns: int
    end_ns: int
    events: Sequence[Event] = ()


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """A request of which spans are made. Times in ns since 1970. `contexts`: the sampled traces of
    its records. `error`: None where there is none.
    """

    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Attribute]
    phases: Sequence[Phase] = field(default_factory=list)
    contexts: Sequence[TraceContext] = ()
    error: str | None = None


def request_spans(request: ServedRequest, random_bytes: Callable[[int], bytes]) -> list[OtlpSpan]:
    """The span of the request, then those of its phases."""
    contexts = request.contexts
    parent = contexts[0] if len({one.trace_id for one in contexts}) == 1 else None
    trace_id = random_bytes(16) if parent is None else parent.trace_id

    def new_context() -> TraceContext:
        return TraceContext(trace_id, random_bytes(8), is_sampled=True)

    own = new_context()
    content = SpanContent(
        request.name,
        request.start_ns,
        request.end_ns,
        request.attributes,
        links=contexts if parent is None else contexts[1:],
        error=request.error,
    )
    phases = [SpanContent(one.name, one.start_ns, one.end_ns, events=one.events) for one in request.phases]
    return [
        server_span(own, b"" if parent is None else parent.span_id, content),
        *(internal_span(new_context(), own.span_id, phase) for phase in phases),
    ]
