"""Histograms of durations, and quantiles of their recent past."""

import math

from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.duration_histogram import (
    SNAPSHOT_INTERVAL_S,
    WINDOW_S,
    DurationHistogram,
    RecentCounts,
    bucket_end_s,
    bucket_of,
    estimate_quantile,
)

DURATIONS = st.floats(0, 1e5)


@given(DURATIONS)
def test_duration_is_in_the_first_bucket_that_ends_after_it(duration_s: float) -> None:
    bucket = bucket_of(duration_s)
    assert duration_s < bucket_end_s(bucket)
    assert bucket == 0 or duration_s >= bucket_end_s(bucket - 1)


@given(st.lists(DURATIONS, min_size=1), st.floats(0.01, 1))
def test_quantile_is_in_the_bucket_of_the_exact_one(durations: list[float], quantile: float) -> None:
    histogram = DurationHistogram()
    for one in durations:
        histogram.observe(one)
    assert (histogram.count, histogram.sum_s) == (len(durations), sum(durations, start=0.0))
    rank = quantile * len(durations)
    exact = next(one for number, one in enumerate(sorted(durations), start=1) if number >= rank)
    estimated = estimate_quantile(histogram.counts, quantile)
    bucket = bucket_of(exact)
    assert (bucket_end_s(bucket - 1) if bucket else 0) <= estimated <= bucket_end_s(bucket)


def test_quantile_of_nothing_is_not_a_number() -> None:
    assert math.isnan(estimate_quantile([0, 0], 0.5))


def test_counts_older_than_the_window_are_left_out() -> None:
    histogram, recent = DurationHistogram(), RecentCounts()
    histogram.observe(1.0, times=5)
    assert sum(recent.update(0.0, histogram.counts)) == 5
    scrapes = int(WINDOW_S / SNAPSHOT_INTERVAL_S)
    for number in range(1, scrapes + 1):
        recent.update(number * SNAPSHOT_INTERVAL_S, histogram.counts)
    histogram.observe(0.1, times=2)
    later = recent.update((scrapes + 2) * SNAPSHOT_INTERVAL_S, histogram.counts)
    assert sum(later) == 2
    assert later[bucket_of(0.1)] == 2


def test_histograms_are_added_up() -> None:
    first, second = DurationHistogram(), DurationHistogram()
    first.observe(0.5)
    second.observe(0.5, times=2)
    merged = DurationHistogram.merge([first, second])
    assert (merged.count, merged.sum_s, merged.counts[bucket_of(0.5)]) == (3, 1.5, 3)
