"""The lag of groups over the last hour, and the lag in seconds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.console.group_description import PartitionLag, lag_by_topic, largest_lag_s
from ottla_broker.console.lag_history import KEPT_S, MAX_GROUPS, MAX_SAMPLES, MAX_TOPICS, LagHistory, LagSample
from ottla_broker.console.rendering import format_duration
from ottla_broker.console.write_rate import count_written, estimate_lag_s


def may_describe_all(_: str) -> bool:
    return True


def test_lag_is_added_up_over_the_topics_that_the_user_may_describe() -> None:
    history = LagHistory()
    history.open("g", 0.0)
    history.add("g", LagSample(10.0, {"a": 1, "b": 20}))
    history.add("g", LagSample(40.0, {"b": 30}))
    assert history.columns("g", may_describe_all) == {"at_s": [10.0, 40.0], "lag": [21, 30]}
    assert history.columns("g", lambda topic: topic == "a") == {"at_s": [10.0, 40.0], "lag": [1, 0]}
    assert history.columns("other", may_describe_all) == {"at_s": [], "lag": []}


def test_group_is_sampled_for_an_hour_after_its_page_was_last_open() -> None:
    history = LagHistory()
    assert not history.is_sampled("g", 0.0)
    history.open("g", 0.0)
    history.renew("g", 100.0)
    assert history.is_sampled("g", KEPT_S + 100.0)
    assert not history.is_sampled("g", KEPT_S + 101.0)
    history.renew("g", KEPT_S + 101.0)
    assert not history.is_sampled("g", KEPT_S + 102.0)


def test_new_group_replaces_the_one_whose_page_was_open_longest_ago() -> None:
    history = LagHistory()
    for number in range(MAX_GROUPS):
        history.open(f"g{number}", float(number))
    history.renew("g0", 50.0)
    history.open("new", 51.0)
    assert [history.is_sampled(name, 52.0) for name in ("g0", "g1", "g2", "new")] == [True, False, True, True]


@given(st.lists(st.integers(0, MAX_TOPICS + 5), max_size=2 * MAX_SAMPLES))
def test_memory_is_bounded(topic_counts: list[int]) -> None:
    history = LagHistory()
    history.open("g", 0.0)
    for second, count in enumerate(topic_counts):
        history.add("g", LagSample(second, {f"t{number}": 1 for number in range(count)}))
    kept = [count for count in topic_counts if count <= MAX_TOPICS][-MAX_SAMPLES:]
    assert history.columns("g", may_describe_all)["lag"] == kept


@pytest.mark.parametrize(
    ("lag", "written", "seconds"), [(10, 600, 10.0), (0, 5, 0.0), (3, 0, 1800.0), (-1, 5, -1), (5, -1, -1)]
)
def test_lag_in_seconds_is_the_time_that_producers_needed_for_it(lag: int, written: int, seconds: float) -> None:
    assert estimate_lag_s(lag, written) == seconds


def test_written_offsets_are_unknown_where_a_broker_does_not_respond() -> None:
    assert [count_written(*one) for one in ((4, 10), (-1, 10), (None, 10), (4, -1), (11, 10))] == [6, 0, -1, -1, 0]


def test_lag_of_a_group_in_seconds_is_the_largest_of_its_partitions() -> None:
    lags = [
        PartitionLag("a", 0, 0, 10, written=600),
        PartitionLag("a", 1, 0, 40, written=1200),
        PartitionLag("b", 0, -1, 9),
    ]
    assert largest_lag_s(lags) == 20.0
    assert lag_by_topic(lags) == {"a": 50}
    assert largest_lag_s(lags[2:]) == -1


def test_durations_have_a_unit_that_suits_them() -> None:
    assert [format_duration(one) for one in (-1, 0, 0.25, 12.4, 119, 150, 7200, 200_000)] == [
        "–", "0 s", "0.2 s", "12 s", "119 s", "2.5 min", "2.0 h", "2.3 d",
    ]  # fmt: skip
