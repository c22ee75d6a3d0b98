"""Pushed metrics of clients in /metrics."""

import asyncio
from uuid import UUID

import pytest

from ottla_broker.metadata.image import CLIENT_METRICS_RESOURCE, MetadataImage
from ottla_broker.metrics import Metric, Sample
from ottla_broker.telemetry import otlp, pushed_metrics
from ottla_broker.telemetry.client_instances import Push
from ottla_broker.telemetry.client_telemetry import ClientTelemetry
from ottla_broker.telemetry.pushed_metrics import PushedMetrics, PushedPoint
from ottla_broker.time_slices import TimeSlices
from ottla_broker.wire.batch import Compression
from ottla_broker.wire.compression import compress
from ottla_broker.wire.errors import ErrorCode, KafkaError

CLIENT = UUID(int=3)


def counter(value: float) -> PushedPoint:
    return PushedPoint("sent_total", "counter", (), value, is_delta=True)


def gauge(value: float, **labels: str) -> PushedPoint:
    return PushedPoint("lag", "gauge", tuple(sorted(labels.items())), value)


def add(pushed: PushedMetrics, *points: PushedPoint, client: UUID = CLIENT, now_ms: int = 0) -> None:
    pushed.add(client, {"client_id": f"c{client.int}"}, points, now_ms=now_ms, interval_ms=1000)


def families(pushed: PushedMetrics, now_ms: int = 0) -> list[tuple[Metric, list[Sample]]]:
    async def collect() -> list[tuple[Metric, list[Sample]]]:
        return [(metric, list(samples)) async for metric, samples in pushed.families(now_ms, TimeSlices())]

    return asyncio.run(collect())


def exposed_values(pushed: PushedMetrics, now_ms: int = 0) -> dict[str, dict[tuple[str, ...], float]]:
    """Metric → values of its labels → value."""
    return {
        metric.name: {tuple(one.labels): one.value for one in samples} for metric, samples in families(pushed, now_ms)
    }


def test_differences_of_counters_are_added_up_and_gauges_replaced() -> None:
    pushed = PushedMetrics()
    add(pushed, counter(5), gauge(7))
    add(pushed, counter(2), gauge(1))
    assert exposed_values(pushed) == {"lag": {("c3",): 1}, "sent_total": {("c3",): 7}}


def test_series_of_one_metric_have_the_labels_of_all() -> None:
    pushed = PushedMetrics()
    add(pushed, gauge(1, topic="a"), gauge(2))
    [(metric, _)] = families(pushed)
    assert metric.labels == ("client_id", "topic")
    assert exposed_values(pushed)["lag"] == {("c3", "a"): 1, ("c3", ""): 2}


def test_a_silent_client_disappears_after_three_intervals() -> None:
    pushed = PushedMetrics()
    add(pushed, gauge(1))
    assert exposed_values(pushed, now_ms=2999)
    assert not exposed_values(pushed, now_ms=3000)


def test_series_are_bounded_by_client_and_in_total(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushed_metrics, "MAX_SERIES_OF_CLIENT", 3)
    monkeypatch.setattr(pushed_metrics, "MAX_SERIES", 5)
    pushed = PushedMetrics()
    for client in range(4):
        add(pushed, *(gauge(at, partition=str(at)) for at in range(4)), client=UUID(int=client))
    assert sum(map(len, exposed_values(pushed).values())) == 5
    assert pushed.dropped == 11
    add(pushed, gauge(9, partition="0"), client=UUID(int=0))
    assert exposed_values(pushed)["lag"]["c0", "0"] == 9, "a known series still changes"
    add(pushed, gauge(1), client=UUID(int=8), now_ms=4000)
    assert exposed_values(pushed, now_ms=4000) == {"lag": {("c8",): 1}}, "expired series make room"


needs_library = pytest.mark.skipif(not otlp.is_installed(), reason="the extra `telemetry` is not installed")


@needs_library
def test_otlp_metrics_are_read_in_each_compression() -> None:
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    data = MetricsData()
    resource = data.resource_metrics.add()
    resource.resource.attributes.add(key="client.rack").value.string_value = "r1"
    scope = resource.scope_metrics.add()
    one = scope.metrics.add(name="org.apache.kafka.consumer.records-lag")
    point = one.gauge.data_points.add(as_double=4.5)
    point.attributes.add(key="topic").value.string_value = "t"
    two = scope.metrics.add(name="org.apache.kafka.sent")
    two.sum.is_monotonic, two.sum.aggregation_temporality = True, 1
    two.sum.data_points.add(as_int=3)
    scope.metrics.add(name="nothing").gauge.data_points.add(as_double=float("nan"))

    image = MetadataImage()
    image.configs[CLIENT_METRICS_RESOURCE, "all"] = {"metrics": "*", "interval.ms": "100"}
    telemetry = ClientTelemetry(image, 10_000)
    for at, codec in enumerate(Compression):
        now_ms = 1000 + 100 * at
        subscription = telemetry.instances.get_subscription(CLIENT, {}, now_ms)
        push = Push(CLIENT, subscription.id, False, codec, 1)
        telemetry.push(push, {"client_id": "c"}, compress(codec, data.SerializeToString()), now_ms)
    found = exposed_values(telemetry.metrics, now_ms)
    instance = "AAAAAAAAAAAAAAAAAAAAAw"
    assert found["org_apache_kafka_consumer_records_lag"] == {("c", instance, "r1", "", "t"): 4.5}
    assert found["org_apache_kafka_sent_total"] == {("c", instance, "r1", ""): 3 * len(Compression)}
    assert "nothing" not in found


@needs_library
@pytest.mark.parametrize("codec", [Compression.none, Compression.zstd])
def test_unreadable_metrics_are_an_invalid_record(codec: Compression) -> None:
    telemetry = ClientTelemetry(MetadataImage(), 10_000)
    subscription = telemetry.instances.get_subscription(CLIENT, {}, 1_000_000)
    with pytest.raises(KafkaError) as refused:
        telemetry.push(Push(CLIENT, subscription.id, False, codec, 1), {}, b"\xff\xff\xff", 1_000_000)
    assert refused.value.code is ErrorCode.invalid_record
