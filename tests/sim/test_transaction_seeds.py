"""Transactional producers and workers: a fixed set of seeds violates no invariant, and disabled
rules of transactions are detected.
"""

from collections.abc import Sequence

import pytest

from tests.sim.conftest import IsDetected
from tests.sim.disabled_rule_runs import rules_with_name
from tests.sim.fixed_seeds import outcomes, violations
from tests.sim.scenario import run_transaction_seed
from tests.slow_tests import quick_and_slow, slow

pytestmark = pytest.mark.timeout(1200)  # takes minutes of processor time, which other tests share
QUICK_SEEDS, SLOW_SEEDS = range(1, 4), range(4, 9)


@pytest.mark.parametrize("seeds", quick_and_slow(QUICK_SEEDS, SLOW_SEEDS))
def test_transactions_are_atomic_and_outputs_are_made_once(seeds: Sequence[int]) -> None:
    assert not violations(outcomes(run_transaction_seed, seeds), "--transactions")


@pytest.mark.slow
def test_fixed_seeds_have_every_fault_of_transactions() -> None:
    seeds = [*QUICK_SEEDS, *SLOW_SEEDS]
    found = outcomes(run_transaction_seed, seeds)
    faults = {name for outcome in found for name in outcome.faults}
    assert faults >= {
        "late transactional batches",
        "coordinator killed before markers",
        "coordinator killed while deciding",
        "leader killed with a new marker",
        "late marker",
        "late batch",
    }
    counts = [outcome.counts for outcome in found]
    assert sum(count["transaction committed"] for count in counts) > 30 * len(seeds)
    assert sum(count.get("transaction version changed", 0) for count in counts) > 0


# Rule → seeds that have detected it, as in `test_seeds`.
DETECTED_BY = {
    "zombies not fenced by coordinator": (1, 2),
    "markers without epoch check": (24, 28, 56, 68),
    "markers with epoch of open transaction accepted": (24, 28),
    "last stable offset is high watermark": (1, 2),
    "offsets count before commit": (101, 837, 814),
    "unstable offsets served": (4, 6),
    "generation of transactional commit not checked": (814, 2, 3),
    "decision forgotten on takeover": (10, 11),
    "decided transactions aborted on takeover": (10, 5),
    "partitions not verified": (7, 55, 119),
}
DETECTED_BY_LONG_RUNS = {
    "new instance keeps epoch": (1, 2),
    "markers of former coordinators accepted": (160,),
    "aborted transactions not indexed": (1, 2),
    "aborted transactions end at segment seam": (2, 7),
    "markers to some partitions only": (1, 2),
    "open transactions forgotten on restart": (3, 5),
    "answer before decision is replicated": (11, 2, 7),
    "markers acknowledged before replication": (3, 43, 115),
    "unreplicated markers end transactions": (3, 27, 107),
}


@pytest.mark.parametrize("name", [*DETECTED_BY, *slow(DETECTED_BY_LONG_RUNS)])
def test_disabled_rule_of_transactions_is_detected(name: str, is_detected: IsDetected) -> None:
    (rule,) = rules_with_name(name)
    assert rule.run is run_transaction_seed
    assert is_detected(rule, (DETECTED_BY | DETECTED_BY_LONG_RUNS)[name])
