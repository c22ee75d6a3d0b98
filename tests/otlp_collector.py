"""An OpenTelemetry collector that keeps the spans it receives: OTLP over HTTP, Protobuf.

with run_collector() as collector:
    start_something(endpoint=collector.endpoint)
    eventually(lambda: collector.spans_named("Produce"))
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True)
class ReceivedSpan:
    """`resource`, `attributes`: texts, integers or lists of texts. `links`: (trace id, span id).
    Ids in hexadecimal.
    """

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    resource: dict[str, Any]
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    links: list[tuple[str, str]]
    error: str


@dataclass
class Collector:
    endpoint: str
    spans: list[ReceivedSpan] = field(default_factory=list)

    def spans_named(self, name: str, **attributes: object) -> list[ReceivedSpan]:
        """The spans with this name and these attributes, with `_` in place of `.`."""
        wanted = {key.replace("_", "."): value for key, value in attributes.items()}
        return [one for one in self.spans if one.name == name and wanted.items() <= one.attributes.items()]

    def children_of(self, parent: ReceivedSpan) -> list[ReceivedSpan]:
        return [one for one in self.spans if (one.trace_id, one.parent_id) == (parent.trace_id, parent.span_id)]


def parse_spans(body: bytes) -> list[ReceivedSpan]:
    request = ExportTraceServiceRequest.FromString(body)
    return [
        ReceivedSpan(
            span.name,
            span.kind,
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            _attributes(resource.resource.attributes),
            _attributes(span.attributes),
            [(event.name, _attributes(event.attributes)) for event in span.events],
            [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
            span.status.message if span.status.code == span.status.STATUS_CODE_ERROR else "",
        )
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _attributes(attributes: Sequence[Any]) -> dict[str, Any]:
    return {one.key: _value(one.value) for one in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind)


@contextmanager
def run_collector() -> Iterator[Collector]:
    received: list[ReceivedSpan] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            is_known = (self.path, self.headers["Content-Type"]) == ("/v1/traces", "application/x-protobuf")
            if is_known:
                received.extend(parse_spans(body))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200 if is_known else 400)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield Collector(f"http://127.0.0.1:{server.server_address[1]}", received)
        finally:
            server.shutdown()
