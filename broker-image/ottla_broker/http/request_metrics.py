"""Histograms of durations as samples, and their recent quantiles under the names of Kafka's
metrics.
"""

from collections.abc import Iterable, Iterator
from itertools import accumulate
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
    ) -> Iterator[tuple[Metric, Iterable[Sample]]]:
        """Samples are computed when they are read. Those of one histogram are computed together, so
        that its count equals that of its last bucket.
        """
        observed = {
            (api_title(api), phase): histogram
            for api, api_times in sorted(times.by_api.items())
            for phase, histogram in api_times.phases()
            if histogram.count
        }
        yield (
            metrics.REQUEST_DURATION,
            (sample for labels, histogram in observed.items() for sample in _buckets(labels, histogram)),
        )
        for phase in PHASES:
            by_title = {title: histogram for (title, one), histogram in observed.items() if one == phase}
            yield metrics.REQUEST_QUANTILES[phase], self._summaries(phase, by_title, now_s)
        yield metrics.FLUSH_TIMES, _buckets((), flushes)
        yield metrics.FLUSH_QUANTILES, self._summary((), (), flushes, now_s)

    def _summaries(self, phase: str, by_title: dict[str, DurationHistogram], now_s: float) -> Iterator[Sample]:
        for title, histogram in by_title.items():
            yield from self._summary((title, phase), (title,), histogram, now_s)

    def _summary(
        self, key: tuple[str, ...], labels: tuple[str, ...], histogram: DurationHistogram, now_s: float
    ) -> list[Sample]:
        recent = self._recent.setdefault(key, RecentCounts()).update(now_s, histogram.counts)
        quantiles = [(text, estimate_quantile(recent, quantile)) for text, quantile in QUANTILES.items()]
        return [
            *(Sample(labels, value * 1000, bound=text) for text, value in quantiles),
            Sample(labels, histogram.sum_s * 1000, "_sum"),
            Sample(labels, histogram.count, "_count"),
        ]


def _buckets(labels: tuple[str, ...], histogram: DurationHistogram) -> list[Sample]:
    below = accumulate(histogram.counts[:SHOWN_BUCKETS])
    return [
        *(Sample(labels, count, "_bucket", repr(bucket_end_s(bucket))) for bucket, count in enumerate(below)),
        Sample(labels, histogram.count, "_bucket", "+Inf"),
        Sample(labels, histogram.sum_s, "_sum"),
        Sample(labels, histogram.count, "_count"),
    ]
