"""Spans of one request, as a collector reads them."""

from itertools import count

from ottla_broker.tracing.otlp_span import Event, export_request
from ottla_broker.tracing.request_spans import Phase, ServedRequest, request_spans
from ottla_broker.tracing.trace_context import TraceContext
from tests.otlp_collector import ReceivedSpan, parse_spans

SERVER, INTERNAL = 2, 1
FIRST = TraceContext(b"a" * 16, b"1" * 8, is_sampled=True)
SAME_TRACE = TraceContext(b"a" * 16, b"2" * 8, is_sampled=True)
OTHER = TraceContext(b"b" * 16, b"3" * 8, is_sampled=True)


def received(*contexts: TraceContext, error: str | None = None) -> list[ReceivedSpan]:
    fetched = Event("replica fetched", 35, {"kafka.broker.id": 2})
    phases = [Phase("log append", 10, 30), Phase("wait for replicas", 30, 40, [fetched])]
    attributes = {"messaging.client.id": "app\udcff", "kafka.partitions": ["orders-0@7", "orders-1@8"]}
    content = ServedRequest("Produce", 5, 50, attributes, phases, contexts, error)
    ids = count(1)
    spans = request_spans(content, lambda size: next(ids).to_bytes(size))
    return parse_spans(export_request({"service.name": "ottla-broker"}, spans))


def test_phases_are_children_of_the_request() -> None:
    request, append, wait = received()
    assert [one.kind for one in (request, append, wait)] == [SERVER, INTERNAL, INTERNAL]
    assert {one.trace_id for one in (request, append, wait)} == {f"{1:032x}"}
    assert request.parent_id == ""
    assert append.parent_id == wait.parent_id == request.span_id
    assert len({request.span_id, append.span_id, wait.span_id}) == 3
    assert (request.start_ns, request.end_ns, append.start_ns, wait.end_ns) == (5, 50, 10, 40)
    assert wait.events == [("replica fetched", {"kafka.broker.id": 2})]
    assert request.resource == {"service.name": "ottla-broker"}
    assert request.attributes == {"messaging.client.id": "app?", "kafka.partitions": ["orders-0@7", "orders-1@8"]}


def test_request_continues_the_only_trace_of_its_records() -> None:
    request, *phases = received(FIRST, SAME_TRACE)
    assert (request.trace_id, request.parent_id) == (FIRST.trace_id.hex(), FIRST.span_id.hex())
    assert request.links == [(SAME_TRACE.trace_id.hex(), SAME_TRACE.span_id.hex())]
    assert {one.trace_id for one in phases} == {request.trace_id}


def test_request_with_records_of_several_traces_links_to_them() -> None:
    request, *_ = received(FIRST, OTHER)
    assert request.trace_id not in (FIRST.trace_id.hex(), OTHER.trace_id.hex())
    assert request.links == [(one.trace_id.hex(), one.span_id.hex()) for one in (FIRST, OTHER)]


def test_error_is_the_status_of_the_request() -> None:
    request, append, _ = received(error="NOT_LEADER_OR_FOLLOWER")
    assert (request.error, append.error) == ("NOT_LEADER_OR_FOLLOWER", "")
