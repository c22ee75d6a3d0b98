"""A fixed set of seeds of metadata-only runs violates no invariant, and disabled rules of the
quorum are detected.
"""

import pytest

from tests.sim.conftest import IsDetected
from tests.sim.disabled_rule_runs import rules_named
from tests.sim.scenario import run_metadata_seed
from tests.sim.test_seeds import pool

pytestmark = pytest.mark.timeout(1200)  # takes minutes of processor time, which other tests share
# The first found a voter that did not hear its leader again, the second two brokers that stopped
# while one handed its vote to the other.
SEEDS = (60695, 61862, *range(1, 41))


def test_fixed_seeds_violate_no_invariant_of_the_quorum() -> None:
    outcomes = list(pool().map(run_metadata_seed, SEEDS))
    violations = {
        f"seed {outcome.seed} (python -m tests.sim --metadata {outcome.seed})": outcome.violations
        for outcome in outcomes
        if outcome.violations
    }
    assert not violations
    faults = {name for outcome in outcomes for name in outcome.faults}
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
    assert sum(outcome.counts["controller elected"] for outcome in outcomes) > 2 * len(SEEDS)


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
    (rule,) = rules_named(name)
    assert rule.run is run_metadata_seed
    assert is_detected(rule, DETECTED_BY[name])
