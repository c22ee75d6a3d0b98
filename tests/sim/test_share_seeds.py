"""A share group: a fixed set of seeds violates no invariant, and disabled rules of share groups are
detected.
"""

import pytest

from tests.sim.conftest import IsDetected
from tests.sim.disabled_rule_runs import rules_named
from tests.sim.scenario import run_share_seed
from tests.sim.test_seeds import pool

pytestmark = pytest.mark.timeout(1200)  # takes minutes of processor time, which other tests share
SEEDS = (1, 3, 6, 16, 23, 110, 132)


def test_records_of_a_share_group_are_finished_once_and_none_is_lost() -> None:
    outcomes = list(pool().map(run_share_seed, SEEDS))
    violations = {
        f"seed {outcome.seed} (python -m tests.sim --shares {outcome.seed})": outcome.violations
        for outcome in outcomes
        if outcome.violations
    }
    assert not violations
    for kind in ("accept", "release", "reject", "renew"):
        assert sum(outcome.counts.get(f"{kind} acknowledged", 0) for outcome in outcomes) > len(SEEDS)


def test_a_seed_of_a_share_group_replays() -> None:
    assert run_share_seed(14).digest == run_share_seed(14).digest


# Rule → seeds that have detected it, as in `test_seeds`.
DETECTED_BY = {
    "acknowledgements not stored": (1, 2),
    "acknowledgements answered before replication": (806, 2),
    "delivery counts not stored": (1, 2),
    "acknowledgements of any member accepted": (1,),
    "acquired records lost on takeover": (5, 2, 1),
    "released records archived": (144, 1),
    "updates forgotten on takeover": (1, 2, 3),
    "records delivered without a session": (6, 45),
    "dead letters forgotten on takeover": (76, 8, 6),
    "records archived before their dead letters": (76, 8, 6),
    "delivery limit ignored": (20,),
}


@pytest.mark.parametrize("name", DETECTED_BY)
def test_disabled_rule_of_share_groups_is_detected(name: str, is_detected: IsDetected) -> None:
    (rule,) = rules_named(name)
    assert rule.run is run_share_seed
    assert is_detected(rule, DETECTED_BY[name])
