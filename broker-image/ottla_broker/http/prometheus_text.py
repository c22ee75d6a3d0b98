"""Prometheus's text format, and docs/metrics.md (`python -m ottla_broker.http.prometheus_text >
docs/metrics.md`).

https://prometheus.io/docs/instrumenting/exposition_formats/. Written by hand, because the event
loop also has records to move: collecting, formatting and compressing together take about a third of
the time that the client library needs for the formatting alone. A test fails when the page differs
from the declarations.
"""

from collections.abc import Iterable
from math import isfinite

from ottla_broker.metrics import METRICS, Metric, Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS_CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
OPEN_METRICS_END = "# EOF\n"
_NOT_FINITE = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

_PAGE_START = """\
# Metrics

<!-- Made from the declarations in broker-image/ottla_broker/metrics/ by `python -m
ottla_broker.http.prometheus_text`. Edit those instead. -->

A broker with `http.listener=host:port` serves these metrics at `/metrics` for Prometheus. A
metric that Kafka has too is named as the usual rules of the JMX exporter name Kafka's. `/livez`
returns 200 as soon as the process serves HTTP. `/readyz` returns 200 while the broker serves
clients, knows a controller, none of its log directories has failed, and no error requires a
restart; otherwise 503 with the reasons, one per line.
Prometheus gets OpenMetrics, compressed with gzip, if it asks for them.

`ottla_request_duration_seconds` is for alerts and for sums over brokers. The quantiles of
`kafka_network_requestmetrics_*` are those of one broker in the last five minutes, for dashboards
that were made for Kafka. A follower's Fetch requests are `FetchFollower`, all others
`FetchConsumer`.

| metric | type | labels | meaning |
|---|---|---|---|
"""

_PAGE_END = """
## Clients' own metrics

Clients of Kafka 3.7 and librdkafka 2.5 and newer push their own metrics to the brokers if a broker
asks for them (KIP-714). A broker can do that if the extra `telemetry` is installed, as it is in
Ottla's image. It asks for nothing until a subscription exists:

```sh
kafka-client-metrics.sh --bootstrap-server localhost:9092 --alter --name slow-consumers \\
  --metrics org.apache.kafka.consumer.fetch.manager.,org.apache.kafka.consumer.coordinator. \\
  --interval 60000 --match client_software_name=librdkafka
```

Each client pushes to one broker, and `/metrics` of that broker shows its metrics under the names
that the OpenTelemetry collector would give them:
`org.apache.kafka.producer.record.send.rate` is `org_apache_kafka_producer_record_send_rate`. Labels
are the attributes that the client sends, and `client_id`, `client_instance_id` and
`client_software_name`. Clients send counters as differences, and the broker adds them up from the
client's first push to it.

A broker shows at most 1000 series of one client and 10000 of all clients. Values of further series
are counted by `ottla_client_telemetry_dropped_points_total`. The series of a client disappear
three push intervals after its last push. `telemetry.max.bytes` limits one push.

## Dashboards and alerts

The chart installs dashboards for Grafana (`dashboard.enabled`: cluster, topics, groups, mirrors,
pipelines, operator), alerts and recording rules for the Prometheus operator
(`prometheusRule.enabled`), and a PodMonitor (`podMonitor.enabled`). Without Kubernetes, import
`charts/ottla/files/dashboards/*.json`, load `charts/ottla/files/alerts.yaml` as a rule file, and
give each broker's target the labels `namespace`, `cluster` and `pod`. A test evaluates every
expression in Prometheus 2.42. Another reads every dashboard by Grafana's own types
(`grafana-foundation-sdk` 0.0.22, generated from the schemas of its dashboards, panels and
Prometheus queries): unknown fields, missing ones and wrong values are errors.

No test has loaded the dashboards into a running Grafana: neither Debian, npm, PyPI nor the Go
module proxy had an installable server with its built frontend on 2026-11-27.

The lag of groups is recorded by rules: the leader of a partition knows its high watermark, the
coordinator of a group its committed offset. `kafka_consumergroup_lag` is in records.
`ottla_consumergroup_lag_seconds` is an estimate: the time that producers needed for these records
at their rate of the last ten minutes.

### Strimzi's dashboards

Of the 70 queries in Strimzi's dashboards `strimzi-kafka`, `strimzi-kraft` and
`strimzi-kafka-exporter` 49 find data, with the recording rules and with the labels of Strimzi's
targets (`strimzi_io_cluster`, `strimzi_io_name`, `kubernetes_pod_name`, and `container="kafka"`):
24 of 33, 9 of 21, and 16 of 16 (2026-11-23).

| queries without data | why |
|---|---|
| `container_*`, `kubelet_*` (6) | the kubelet exposes them, not the brokers |
| `jvm_*` (8) | there is no JVM; `process_*` has memory, processor time and files |
| `uncleanleaderelections_total` (1) | not counted yet |
| `failedfetchrequests_total` (1) | not counted yet |
| `raftmetrics_commit_latency_avg`, `raftchannelmetrics_*` (5) | not counted yet |

## Cost of a scrape

A broker with 5,000 partitions exposes 10 samples for each: 3.3 MB, 151 kB with gzip. A scrape takes
80 to 87 ms with gzip, nearly all of it processor time, and 93 ms without. prometheus-client takes
250 ms to format as many samples, without collecting or compressing them, which is why the broker
formats them itself.

A scrape is made in slices of 0.1 ms, and requests are served between them. With one scrape per
second, the 99th percentile of a producer's latency was 0.36 and 0.73 ms, in two runs, and 0.30 and
0.39 ms without. Slices of a busy broker are longer, an eighth of the pause before them and at most
2 ms, so that Prometheus gets its response there too. [More of it](measurements/2026-11-28-scrapes.md),
measured by `python -m bench.scrape`.
"""


def is_open_metrics_accepted(accept: str) -> bool:
    """True if the header Accept of a request names OpenMetrics, as Prometheus' does. Preferences in
    it are not compared.
    """
    return "application/openmetrics-text" in accept


def format_header(metric: Metric, *, open_metrics: bool = False) -> str:
    """The lines HELP and TYPE of a metric. `open_metrics`: a counter is named without its suffix
    `_total`, and one without that suffix gets the type `unknown`.
    """
    name, kind = metric.name, str(metric.kind)
    if open_metrics and kind == "counter":
        name, kind = (name.removesuffix("_total"), kind) if name.endswith("_total") else (name, "unknown")
    return f"# HELP {name} {metric.doc.translate(_ESCAPES)}\n# TYPE {name} {kind}\n"


def format_samples(metric: Metric, samples: Iterable[Sample]) -> str:
    name, _, _, names = metric
    bound_label = "le" if metric.kind == "histogram" else "quantile"
    written = []
    for values, value, suffix, bound in samples:
        labels = values if isinstance(values, str) else format_labels(names, values)
        if bound:
            labels += f'{"," if labels else ""}{bound_label}="{bound}"'
        number = value if value.__class__ is int else _format_value(value)
        written.append(f"{name}{suffix}{{{labels}}} {number}\n" if labels else f"{name}{suffix} {number}\n")
    return "".join(written)


def format_labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    return ",".join([f'{name}="{text.translate(_ESCAPES)}"' for name, text in zip(names, values, strict=True)])


def _format_value(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    return repr(float(value)) if isfinite(value) else _NOT_FINITE[repr(float(value))]


def metrics_page() -> str:
    return _PAGE_START + "".join(map(_row, METRICS)) + _PAGE_END


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "–"
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.doc} |\n"


if __name__ == "__main__":
    print(metrics_page(), end="")
