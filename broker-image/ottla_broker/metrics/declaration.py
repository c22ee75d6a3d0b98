"""How a metric is declared, and the list of all, in the order of docs/metrics.md."""

from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram", "summary"]


class Metric(NamedTuple):
    """One family of samples. `labels`: the names of the labels that distinguish them."""

    name: str
    kind: Kind
    doc: str
    labels: tuple[str, ...] = ()


class Sample(NamedTuple):
    """`labels`: the values of the metric's labels, in their order; or the labels as text, which
    samples of several metrics can share. `suffix`: follows the metric's name. `bound`: a last
    label, `le` of a histogram or `quantile` of a summary.
    """

    labels: tuple[str, ...] | str
    value: float
    suffix: str = ""
    bound: str = ""


METRICS: list[Metric] = []


def metric(kind: Kind, name: str, doc: str, *labels: str) -> Metric:
    """Declares a metric. Called once for each."""
    declared = Metric(name, kind, doc, labels)
    METRICS.append(declared)
    return declared


def counter(name: str, doc: str, *labels: str) -> Metric:
    return metric("counter", name, doc, *labels)


def gauge(name: str, doc: str, *labels: str) -> Metric:
    return metric("gauge", name, doc, *labels)
