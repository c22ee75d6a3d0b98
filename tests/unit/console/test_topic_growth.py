"""How fast a topic grows."""

import pytest

from ottla_broker.console.cluster_requests import PartitionOffsets
from ottla_broker.console.rendering import format_rate
from ottla_broker.console.topic_growth import TopicGrowth, measure_growth

OFFSETS = {0: PartitionOffsets(0, 10_000), 1: PartitionOffsets(5_000, 15_000)}


def test_rates_of_ten_minutes_are_measured_now_and_an_hour_ago() -> None:
    growth = measure_growth(OFFSETS, {0: 9_400, 1: -1}, {0: 8_000, 1: 14_000}, {0: 6_800, 1: 14_000}, 400_000)
    assert growth == TopicGrowth(now=1.0, hour_ago=2.0, in_hour=3_000, record_bytes=20.0)
    assert growth.bytes_of(growth.in_hour) == 60_000
    assert growth.bytes_of(growth.now) == 20


def test_growth_is_unknown_if_that_of_one_partition_is() -> None:
    assert measure_growth(OFFSETS, {0: 1}, {0: 1}, {0: 1, 1: 1}, -1) == TopicGrowth(-1, -1, -1, -1)
    growth = measure_growth(OFFSETS, {0: -1, 1: -1}, {0: -1, 1: -1}, {0: -1, 1: -1}, -1)
    assert (growth.now, growth.hour_ago, growth.bytes_of(growth.now)) == (0.0, 0.0, -1)


def test_topic_without_records_does_not_grow() -> None:
    growth = measure_growth({0: PartitionOffsets(0, 0)}, {0: -1}, {0: -1}, {0: -1}, 0)
    assert growth == TopicGrowth(0.0, 0.0, 0, -1)


def test_record_with_an_older_time_than_the_one_before_is_no_negative_rate() -> None:
    assert measure_growth({0: PartitionOffsets(0, 10)}, {0: 9}, {0: 2}, {0: 5}, 10).hour_ago == 0.0


@pytest.mark.parametrize(
    ("rate", "text"), [(-1, "–"), (0, "0"), (0.01, "less than 0.1"), (0.25, "0.2"), (12.4, "12"), (1234.5, "1,234")]
)
def test_rates_have_the_digits_that_matter(rate: float, text: str) -> None:
    assert format_rate(rate) == text
