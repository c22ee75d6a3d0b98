"""Which requests are traced."""

from itertools import count
from random import Random

import pytest

from ottla_broker.metrics import TraceCounts
from ottla_broker.tracing.sampler import MAX_TRACES_PER_S, Sampler


@pytest.mark.parametrize(("ratio", "low", "high"), [(0.0, 0, 0), (0.25, 2300, 2700), (1.0, 10_000, 10_000)])
def test_share_of_requests_is_traced(ratio: float, low: int, high: int) -> None:
    seconds = count(1)  # every request comes in a second of its own
    sampler = Sampler(lambda: ratio, Random(7).random, lambda: next(seconds), TraceCounts())
    assert low <= sum(sampler.is_sampled() for _ in range(10_000)) <= high


def test_number_of_traces_in_a_second_is_bounded() -> None:
    now_s, counts = [5.0], TraceCounts()
    sampler = Sampler(lambda: 1.0, Random(7).random, lambda: now_s[0], counts)
    assert sum(sampler.is_sampled() for _ in range(1000)) == MAX_TRACES_PER_S
    assert counts.limited_requests == 1000 - MAX_TRACES_PER_S
    now_s[0] += 1
    assert sampler.is_sampled()
