"""A share group: a fixed set of seeds violates no invariant, and disabled rules of share groups are
detected.
"""

from collections.abc import Sequence

import pytest

from tests.sim.conftest import IsDetected
from tests.sim.disabled_rule_runs import rules_with_name
from tests.sim.fixed_seeds import outcomes, violations
from tests.sim.scenario import run_share_seed
from tests.slow_tests import quick_and_slow, slow

pytestmark = pytest.mark.timeout(1200)  # takes minutes of processor time, which other tests share
QUICK_SEEDS, SLOW_SEEDS = (1, 3), (6, 16, 23, 110, 132)


@pytest.mark.parametrize("seeds", quick_and_slow(QUICK_SEEDS, SLOW_SEEDS))
def test_records_of_a_share_group_are_finished_once_and_none_is_lost(seeds: Sequence[int]) -> None:
    assert not violations(outcomes(run_share_seed, seeds), "--shares")


@pytest.mark.slow
def test_fixed_seeds_have_every_acknowledgement() -> None:
    seeds = [*QUICK_SEEDS, *SLOW_SEEDS]
    found = outcomes(run_share_seed, seeds)
    for kind in ("accept", "release", "reject", "renew"):
        assert sum(outcome.counts.get(f"{kind} acknowledged", 0) for outcome in found) > len(seeds)


@pytest.mark.slow
def test_a_seed_of_a_share_group_replays() -> None:
    assert run_share_seed(14).digest == run_share_seed(14).digest


# Rule → seeds that have detected it, as in `test_seeds`.
DETECTED_BY = {
    "acknowledgements not stored": (1, 2),
    "updates forgotten on takeover": (1, 2, 3),
    "records delivered without a session": (6, 45),
    "delivery limit ignored": (20,),
}
DETECTED_BY_LONG_RUNS = {
    "acknowledgements answered before replication": (806, 2),
    "delivery counts not stored": (1, 2),
    "acknowledgements of any member accepted": (1,),
    "acquired records lost on takeover": (5, 2, 1),
    "released records archived": (144, 1),
    "dead letters forgotten on takeover": (76, 8, 6),
    "records archived before their dead letters": (76, 8, 6),
}


@pytest.mark.parametrize("name", [*DETECTED_BY, *slow(DETECTED_BY_LONG_RUNS)])
def test_disabled_rule_of_share_groups_is_detected(name: str, is_detected: IsDetected) -> None:
    (rule,) = rules_with_name(name)
    assert rule.run is run_share_seed
    assert is_detected(rule, (DETECTED_BY | DETECTED_BY_LONG_RUNS)[name])
