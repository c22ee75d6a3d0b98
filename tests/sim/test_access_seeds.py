"""Rules, credentials and quotas through crashes and changes of the controller: a fixed set of seeds
violates no invariant, and a disabled rule is detected.
"""

import pytest

from tests.sim.conftest import IsDetected
from tests.sim.disabled_rule_runs import rules_named
from tests.sim.scenario import run_access_seed
from tests.sim.test_seeds import pool

pytestmark = pytest.mark.timeout(1200)  # takes minutes of processor time, which other tests share
SEEDS = range(1, 25)


def test_revoked_rights_never_come_back() -> None:
    outcomes = list(pool().map(run_access_seed, SEEDS))
    violations = {
        f"seed {outcome.seed} (python -m tests.sim --access {outcome.seed})": outcome.violations
        for outcome in outcomes
        if outcome.violations
    }
    assert not violations
    for what in ("rule", "credential", "quota"):
        assert sum(outcome.counts.get(f"{what} deleted", 0) for outcome in outcomes) > len(SEEDS), what


def test_rules_that_are_deleted_before_their_commit_are_detected(is_detected: IsDetected) -> None:
    (rule,) = rules_named("rules deleted before commit")
    assert is_detected(rule, (1, 2, 3, 4))
