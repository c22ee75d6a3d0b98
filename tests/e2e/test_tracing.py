"""Traces of requests, from three brokers to an OpenTelemetry collector."""

from confluent_kafka import Consumer, Producer

from tests.clusters import run_cluster
from tests.otlp_collector import Collector, ReceivedSpan, run_collector
from tests.waiting import eventually

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def find_produce(collector: Collector) -> ReceivedSpan | None:
    """The span of the request whose record has the trace's header; None until the spans of its
    phases have arrived.
    """
    requests = [one for one in collector.spans_named("Produce") if one.trace_id == TRACE]
    return next((one for one in requests if "wait for replicas" in phases_of(collector, one)), None)


def phases_of(collector: Collector, request: ReceivedSpan) -> dict[str, ReceivedSpan]:
    return {one.name: one for one in collector.children_of(request)}


def test_trace_of_a_record_shows_the_append_and_the_wait_for_each_follower() -> None:
    with (
        run_collector() as collector,
        run_cluster("ottla", 3, otel_exporter_otlp_endpoint=collector.endpoint, otel_traces_sampler_arg=1) as cluster,
    ):
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "client.id": "shop"})
        producer.produce("orders", b"an order", headers={"traceparent": f"00-{TRACE}-{SPAN}-01".encode()})
        assert producer.flush(30) == 0
        request = eventually(lambda: find_produce(collector), message="the trace of the produce")
        assert request is not None
        phases = phases_of(collector, request)
        assert request.parent_id == SPAN
        assert (
            request.attributes.items()
            >= {
                "messaging.client.id": "shop",
                "messaging.destination.name": "orders",
                "messaging.destination.partition.id": "0",
                "messaging.kafka.offset": 0,
                "user.name": "User:ANONYMOUS",
            }.items()
        )
        leader = int(request.resource["service.instance.id"])
        followers = [event["kafka.broker.id"] for name, event in phases["wait for replicas"].events]
        assert sorted([leader, *followers]) == [1, 2, 3]
        append, wait = phases["log append"], phases["wait for replicas"]
        assert request.start_ns <= append.start_ns < append.end_ns == wait.start_ns < wait.end_ns <= request.end_ns

        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "readers",
                "client.id": "reader",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["orders"])
        assert eventually(lambda: consumer.poll(0.1)).value() == b"an order"
        consumer.close()
        fetches = eventually(
            lambda: collector.spans_named("Fetch", messaging_client_id="reader", messaging_destination_name="orders"),
            message="the trace of a fetch",
        )
        assert not any(one.links for one in fetches)
        assert not collector.spans_named("Fetch", messaging_client_id=f"broker-{followers[0]}")
