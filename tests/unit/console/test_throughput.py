"""The rates of the last hour."""

from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.console.throughput import MAX_SAMPLES, NO_DURATIONS, ThroughputHistory, Totals, sum_totals
from ottla_broker.duration_histogram import DurationHistogram
from ottla_broker.metrics import PartitionTraffic
from ottla_broker.request_times import RequestTimes, ServedRequest
from ottla_broker.wire.api_keys import ApiKey

LATENCIES = ("produce_p50_ms", "produce_p99_ms", "fetch_p50_ms", "fetch_p99_ms")


def test_rates_are_differences_per_second() -> None:
    history = ThroughputHistory()
    history.add(100.0, Totals(10, 1000, 0, 5))
    assert history.columns()["at_s"] == []
    history.add(110.0, Totals(30, 2000, 500, 105))
    assert history.columns() == {
        "at_s": [110.0],
        "records_in": [2.0],
        "bytes_in": [100.0],
        "bytes_out": [50.0],
        "requests": [10.0],
    } | {name: [None] for name in LATENCIES}


def test_quantiles_are_those_of_the_requests_of_an_interval() -> None:
    history, produce = ThroughputHistory(), DurationHistogram()
    produce.observe(2.0, 1000)  # before the first interval
    history.add(100.0, Totals(produce=tuple(produce.counts)))
    produce.observe(0.0005, 98)
    produce.observe(0.1, 2)
    history.add(110.0, Totals(produce=tuple(produce.counts)))
    history.add(120.0, Totals(produce=tuple(produce.counts)))
    columns = history.columns()
    (p50, nothing), (p99, _) = columns["produce_p50_ms"], columns["produce_p99_ms"]
    assert nothing is None and columns["fetch_p99_ms"] == [None, None]
    assert p50 is not None and 0.4 < p50 < 1.0
    assert p99 is not None and 60 < p99 < 130


def test_fetches_are_measured_without_their_wait_for_records() -> None:
    times = RequestTimes(lambda: 10.0)
    times.observe_deferred(ServedRequest(ApiKey.FETCH, queue_s=0.0, began_s=9.0, handled_s=9.001))
    times.observe_deferred(ServedRequest(ApiKey.PRODUCE, queue_s=0.0, began_s=9.0, handled_s=9.001))
    history = ThroughputHistory()
    history.add(0.0, Totals())
    history.add(10.0, sum_totals([], [], times.by_api))
    (rates,) = history.rates
    assert rates.fetch_p99_ms is not None and 0.9 < rates.fetch_p99_ms < 2.0
    assert rates.produce_p99_ms is not None and 900 < rates.produce_p99_ms < 2000


def test_counts_that_fall_with_a_deleted_topic_are_no_negative_rate() -> None:
    history = ThroughputHistory()
    history.add(0.0, Totals(10, 1000, 10, 5))
    history.add(10.0, Totals(0, 0, 0, 6))
    assert [values[0] for values in history.columns().values()] == [10.0, 0.0, 0.0, 0.0, 0.1, *[None] * len(LATENCIES)]


@given(st.lists(st.integers(0, 10**9), min_size=2, max_size=800))
def test_memory_is_bounded_by_an_hour(record_totals: list[int]) -> None:
    history = ThroughputHistory()
    for second, count in enumerate(record_totals):
        history.add(float(second), Totals(records_in=count))
    assert len(history.rates) == min(MAX_SAMPLES, len(record_totals) - 1)
    assert all(rates.records_in >= 0 for rates in history.rates)


def test_traffic_of_all_partitions_is_added_up() -> None:
    traffic = [PartitionTraffic(messages_in=1, bytes_in=2, bytes_out=3), PartitionTraffic(messages_in=10)]
    assert sum_totals(traffic, [4, 5], {}) == Totals(11, 2, 3, 9, NO_DURATIONS, NO_DURATIONS)
