"""Reads the metrics of a push: OpenTelemetry's MetricsData, version 1, in Protobuf.

The messages come from the library `opentelemetry-proto` (the extra `telemetry`), which is imported
with the first push: it takes some megabytes of memory. Names are translated to Prometheus' as by
the OpenTelemetry collector: a character that Prometheus does not allow becomes an underscore, and a
counter ends in `_total`. A histogram is exposed as its count and sum. Exponential histograms and
summaries are left out.
"""

import math
import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from ottla_broker.telemetry.pushed_metrics import Labels, PushedPoint
from ottla_broker.wire.errors import ErrorCode, KafkaError

MAX_LABELS: Final = 32  # of one series; further attributes are left out
MAX_NAME: Final = 200  # characters of a name or of a label's value; what is longer is cut off
_NOT_IN_NAME: Final = re.compile(r"[^a-zA-Z0-9_]")
_DELTA: Final = 1  # AGGREGATION_TEMPORALITY_DELTA


@cache
def is_installed() -> bool:
    """True if the broker can read pushed metrics."""
    return find_spec("opentelemetry") is not None and find_spec("opentelemetry.proto") is not None


def read_points(data: bytes) -> list[PushedPoint]:
    """The points of a push, without values that are not finite. Raises INVALID_RECORD for bytes
    that are not a MetricsData message.
    """
    messages = import_module("opentelemetry.proto.metrics.v1.metrics_pb2")
    decode_error: type[Exception] = import_module("google.protobuf.message").DecodeError
    pushed = messages.MetricsData()
    try:
        pushed.ParseFromString(data)
    except decode_error as error:
        raise KafkaError(ErrorCode.invalid_record, f"the metrics are no MetricsData: {error}") from error
    return [
        point
        for resource in pushed.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in _metric_points(metric, resource.resource.attributes)
        if math.isfinite(point.value)
    ]


def _metric_points(metric: Any, resource: Iterable[Any]) -> Iterator[PushedPoint]:
    name = _prometheus_name(metric.name)
    match metric.WhichOneof("data"):
        case "gauge":
            for point in metric.gauge.data_points:
                yield PushedPoint(name, "gauge", _labels(resource, point.attributes), _number(point))
        case "sum":
            is_counter, is_delta = metric.sum.is_monotonic, metric.sum.aggregation_temporality == _DELTA
            for point in metric.sum.data_points:
                labels = _labels(resource, point.attributes)
                full_name = name if not is_counter or name.endswith("_total") else f"{name}_total"
                yield PushedPoint(full_name, "counter" if is_counter else "gauge", labels, _number(point), is_delta)
        case "histogram":
            is_delta = metric.histogram.aggregation_temporality == _DELTA
            for point in metric.histogram.data_points:
                labels = _labels(resource, point.attributes)
                yield PushedPoint(f"{name}_count", "counter", labels, point.count, is_delta)
                yield PushedPoint(f"{name}_sum", "counter", labels, point.sum, is_delta)


def _number(point: Any) -> float:
    return int(point.as_int) if point.WhichOneof("value") == "as_int" else float(point.as_double)


def _labels(*attributes: Iterable[Any]) -> Labels:
    found = {
        _prometheus_name(one.key): str(getattr(one.value, kind))[:MAX_NAME]
        for some in attributes
        for one in some
        if (kind := one.value.WhichOneof("value")) in ("string_value", "int_value", "bool_value", "double_value")
    }
    return tuple(sorted(found.items())[:MAX_LABELS])


def _prometheus_name(name: str) -> str:
    text = _NOT_IN_NAME.sub("_", name[:MAX_NAME])
    return text if text[:1].isalpha() else f"_{text}"
