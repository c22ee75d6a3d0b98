"""Prometheus's text format, and docs/metrics.md (`python -m ottla_broker.http.prometheus_text > docs/metrics.md`; a test fails when they differ).

https://prometheus.io/docs/instrumenting/exposition_formats/. Written by hand: a scrape of 2,000 partitions takes a tenth of what the usual
library needs, in an event loop that has records to move.
"""

from collections.abc import Iterable

from ottla_broker.metrics import METRICS, Metric, Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

_OPENING = """\
# Metrics

<!-- Made from the declarations in broker-image/ottla_broker/metrics.py by `python -m ottla_broker.http.prometheus_text`. Edit those instead. -->

A broker with `http.listener=host:port` serves these at `/metrics` for Prometheus. Where Kafka has a metric of the same meaning, the name is the
one that the usual JMX exporter rules give it. `/livez` answers as soon as the process serves HTTP; `/readyz` answers 200 when the broker serves
clients and 503 with the reasons, a line each, when it does not.

| metric | kind | labels | what it tells |
|---|---|---|---|
"""


def heading(metric: Metric) -> str:
    return f"# HELP {metric.name} {metric.doc}\n# TYPE {metric.name} {metric.kind}\n"


def lines(metric: Metric, samples: Iterable[Sample]) -> str:
    if not metric.labels:
        return "".join(f"{metric.name} {number(sample.value)}\n" for sample in samples)
    written = []
    for sample in samples:
        pairs = zip(metric.labels, sample.labels, strict=True)
        labels = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in pairs)
        written.append(f"{metric.name}{{{labels}}} {number(sample.value)}\n")
    return "".join(written)


def number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))


def page() -> str:
    rows = (
        f"| `{metric.name}` | {metric.kind} | {', '.join(f'`{label}`' for label in metric.labels) or '–'} | {metric.doc} |\n"
        for metric in METRICS
    )
    return _OPENING + "".join(rows)


if __name__ == "__main__":
    print(page(), end="")
