"""Histograms of durations as samples, and their recent quantiles under the names of Kafka's
metrics.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from ottla_broker import metrics
from ottla_broker.duration_histogram import (
    SHOWN_BUCKETS,
    DurationHistogram,
    RecentCounts,
    bucket_end_s,
    estimate_quantile,
)
from ottla_broker.metrics import Metric, Sample
from ottla_broker.request_times import PHASES, RequestTimes, api_title

QUANTILES: Final = {"0.50": 0.5, "0.75": 0.75, "0.95": 0.95, "0.98": 0.98, "0.99": 0.99, "0.999": 0.999}
"""As the JMX exporter writes those of Kafka's histograms."""


class LatencyMetrics:
    """The samples of a broker's histograms. It keeps the counts of earlier scrapes for the
    quantiles of the last minutes."""

    def __init__(self) -> None:
        self._recent: dict[tuple[str, ...], RecentCounts] = {}

    def collect(
        self, times: RequestTimes, flushes: DurationHistogram, now_s: float
    ) -> Iterator[tuple[Metric, list[Sample]]]:
        observed = {
            (api_title(api), phase): histogram
            for api, found in sorted(times.by_api.items())
            for phase, histogram in found.phases()
            if histogram.count
        }
        yield (
            metrics.REQUEST_DURATION,
            [sample for labels, histogram in observed.items() for sample in _buckets(labels, histogram)],
        )
        for phase in PHASES:
            summaries = [
                sample
                for (title, one), histogram in observed.items()
                if one == phase
                for sample in self._summary((title, phase), (title,), histogram, now_s)
            ]
            yield metrics.REQUEST_QUANTILES[phase], summaries
        yield metrics.FLUSH_TIMES, list(_buckets((), flushes))
        yield metrics.FLUSH_QUANTILES, list(self._summary((), (), flushes, now_s))

    def _summary(
        self, key: tuple[str, ...], labels: Sequence[str], histogram: DurationHistogram, now_s: float
    ) -> Iterator[Sample]:
        recent = self._recent.setdefault(key, RecentCounts()).update(now_s, histogram.counts)
        for text, quantile in QUANTILES.items():
            yield Sample(labels, estimate_quantile(recent, quantile) * 1000, bound=text)
        yield Sample(labels, histogram.sum_s * 1000, "_sum")
        yield Sample(labels, histogram.count, "_count")


def _buckets(labels: Sequence[str], histogram: DurationHistogram) -> Iterator[Sample]:
    below = 0
    for bucket in range(SHOWN_BUCKETS):
        below += histogram.counts[bucket]
        yield Sample(labels, below, "_bucket", repr(bucket_end_s(bucket)))
    yield Sample(labels, histogram.count, "_bucket", "+Inf")
    yield Sample(labels, histogram.sum_s, "_sum")
    yield Sample(labels, histogram.count, "_count")
