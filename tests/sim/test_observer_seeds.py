"""A fixed set of seeds of runs with more brokers than voters violates no invariant, and observers
copy from voters in them.
"""

import pytest

from tests.sim.scenario import run_observer_seed
from tests.sim.test_seeds import pool

pytestmark = pytest.mark.timeout(1200)  # takes minutes of processor time, which other tests share
SEEDS = range(1, 13)


def test_fixed_seeds_violate_no_invariant_with_more_brokers_than_voters() -> None:
    outcomes = list(pool().map(run_observer_seed, SEEDS))
    violations = {
        f"seed {outcome.seed} (python -m tests.sim --observers {outcome.seed})": outcome.violations
        for outcome in outcomes
        if outcome.violations
    }
    assert not violations
    assert all(outcome.counts["fetches served by voters"] > 0 for outcome in outcomes)
