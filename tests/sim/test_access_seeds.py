"""Rules, credentials and quotas through crashes and changes of the controller: a fixed set of seeds
violates no invariant, and a disabled rule is detected.
"""

from collections.abc import Sequence

import pytest

from tests.sim.conftest import IsDetected
from tests.sim.disabled_rule_runs import rules_with_name
from tests.sim.fixed_seeds import outcomes, violations
from tests.sim.scenario import run_access_seed
from tests.slow_tests import quick_and_slow

pytestmark = pytest.mark.timeout(1200)  # takes minutes of processor time, which other tests share
QUICK_SEEDS, SLOW_SEEDS = range(1, 6), range(6, 25)


@pytest.mark.parametrize("seeds", quick_and_slow(QUICK_SEEDS, SLOW_SEEDS))
def test_revoked_rights_never_come_back(seeds: Sequence[int]) -> None:
    assert not violations(outcomes(run_access_seed, seeds), "--access")


@pytest.mark.slow
def test_fixed_seeds_delete_every_kind_of_right() -> None:
    seeds = [*QUICK_SEEDS, *SLOW_SEEDS]
    found = outcomes(run_access_seed, seeds)
    for what in ("rule", "credential", "quota"):
        assert sum(outcome.counts.get(f"{what} deleted", 0) for outcome in found) > len(seeds), what


def test_rules_that_are_deleted_before_their_commit_are_detected(is_detected: IsDetected) -> None:
    (rule,) = rules_with_name("rules deleted before commit")
    assert is_detected(rule, (1, 2, 3, 4))
