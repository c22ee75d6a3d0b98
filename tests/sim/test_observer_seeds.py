"""A fixed set of seeds of runs with more brokers than voters violates no invariant, and observers
copy from voters in them.
"""

from collections.abc import Sequence

import pytest

from tests.sim.fixed_seeds import outcomes, violations
from tests.sim.scenario import run_observer_seed
from tests.slow_tests import quick_and_slow

pytestmark = pytest.mark.timeout(1200)  # takes minutes of processor time, which other tests share
QUICK_SEEDS, SLOW_SEEDS = range(1, 4), range(4, 13)


@pytest.mark.parametrize("seeds", quick_and_slow(QUICK_SEEDS, SLOW_SEEDS))
def test_fixed_seeds_violate_no_invariant_with_more_brokers_than_voters(seeds: Sequence[int]) -> None:
    found = outcomes(run_observer_seed, seeds)
    assert not violations(found, "--observers")
    assert all(outcome.counts["fetches served by voters"] > 0 for outcome in found)
