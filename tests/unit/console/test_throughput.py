"""The rates of the last hour."""

from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.console.throughput import MAX_SAMPLES, ThroughputHistory, Totals, add_up
from ottla_broker.metrics import PartitionTraffic


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
    }


def test_counts_that_fall_with_a_deleted_topic_are_no_negative_rate() -> None:
    history = ThroughputHistory()
    history.add(0.0, Totals(10, 1000, 10, 5))
    history.add(10.0, Totals(0, 0, 0, 6))
    assert [values[0] for values in history.columns().values()] == [10.0, 0.0, 0.0, 0.0, 0.1]


@given(st.lists(st.integers(0, 10**9), min_size=2, max_size=800))
def test_memory_is_bounded_by_an_hour(records: list[int]) -> None:
    history = ThroughputHistory()
    for second, count in enumerate(records):
        history.add(float(second), Totals(records_in=count))
    assert len(history.rates) == min(MAX_SAMPLES, len(records) - 1)
    assert all(rate >= 0 for rate in history.columns()["records_in"])


def test_traffic_of_all_partitions_is_added_up() -> None:
    traffic = [PartitionTraffic(messages_in=1, bytes_in=2, bytes_out=3), PartitionTraffic(messages_in=10)]
    assert add_up(traffic, [4, 5]) == Totals(11, 2, 3, 9)
