"""Transactional producers and workers: a fixed set of seeds violates no invariant, and disabled
rules of transactions are detected.
"""

from tests.sim.scenario import run_transaction_seed
from tests.sim.test_seeds import pool

SEEDS = range(1, 9)


def test_transactions_are_atomic_and_outputs_are_made_once() -> None:
    with pool() as workers:
        outcomes = list(workers.map(run_transaction_seed, SEEDS))
    violations = {
        f"seed {outcome.seed} (python -m tests.sim --transactions {outcome.seed})": outcome.violations
        for outcome in outcomes
        if outcome.violations
    }
    assert not violations
    faults = {name for outcome in outcomes for name in outcome.faults}
    assert faults >= {
        "late transactional batches",
        "coordinator killed before markers",
        "coordinator killed while deciding",
        "leader killed with a new marker",
    }
    counts = [outcome.counts for outcome in outcomes]
    assert sum(count["transaction committed"] for count in counts) > 30 * len(SEEDS)
    assert sum(count.get("transaction version changed", 0) for count in counts) > 0
