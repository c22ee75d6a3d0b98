"""A fixed set of seeds of metadata-only runs violates no invariant, and disabled rules of the
quorum are detected.
"""

from collections.abc import Sequence

import pytest

from tests.sim.conftest import IsDetected
from tests.sim.disabled_rule_runs import rules_with_name
from tests.sim.fixed_seeds import outcomes, violations
from tests.sim.scenario import run_metadata_seed
from tests.slow_tests import quick_and_slow

pytestmark = pytest.mark.timeout(1200)  # takes minutes of processor time, which other tests share
# The first two seeds found defects: a voter that did not hear its leader again, and two brokers
# that stopped while one handed its vote to the other.
QUICK_SEEDS, SLOW_SEEDS = (60695, 61862, *range(1, 9)), range(9, 41)


@pytest.mark.parametrize("seeds", quick_and_slow(QUICK_SEEDS, SLOW_SEEDS))
def test_fixed_seeds_violate_no_invariant_of_the_quorum(seeds: Sequence[int]) -> None:
    assert not violations(outcomes(run_metadata_seed, seeds), "--metadata")


@pytest.mark.slow
def test_fixed_seeds_have_every_fault_of_the_quorum() -> None:
    seeds = [*QUICK_SEEDS, *SLOW_SEEDS]
    found = outcomes(run_metadata_seed, seeds)
    faults = {name for outcome in found for name in outcome.faults}
    assert faults >= {
        "brokers split",
        "follower hears no leader",
        "controller without majority",
        "candidates slowed",
        "controllers killed in turn",
        "voter lost",
        "wiped founder",
        "brokers moved",
    }
    assert sum(outcome.counts["controller elected"] for outcome in found) > 2 * len(seeds)


# Rule → seeds that have detected it, as in `test_seeds`.
DETECTED_BY = {
    "pre votes always granted": (3, 5, 8, 2),
    "votes answered before sync": (1, 2, 3, 4),
    "several votes in an epoch": (29, 56),
    "voters do not report addresses": (12, 19),
    "metadata acknowledged before sync": (1, 2, 8, 9),
}


@pytest.mark.parametrize("name", DETECTED_BY)
def test_disabled_rule_of_the_quorum_is_detected(name: str, is_detected: IsDetected) -> None:
    (rule,) = rules_with_name(name)
    assert rule.run is run_metadata_seed
    assert is_detected(rule, DETECTED_BY[name])
