"""A fixed set of seeds of two clusters keeps every promise, a seed is always the same run, and the checks notice what is broken on purpose."""

import pytest

from tests.sim.broken_runs import MIRRORED, rules_of, run_broken
from tests.sim.mirror_scenario import run_mirrors
from tests.sim.test_seeds import pool

# In these a copy stands still in the end, which is rare: several, so that one is left when a change makes other runs of them.
STANDS_STILL = (137, 143, 145)
SEEDS = (*range(1, 20), *STANDS_STILL)


def test_a_fixed_set_of_mirrored_seeds_keeps_every_promise() -> None:
    with pool() as workers:
        outcomes = list(workers.map(run_mirrors, SEEDS))
    broken = {
        f"seed {outcome.seed} (python -m tests.sim --mirrors {outcome.seed})": outcome.broken
        for outcome in outcomes
        if outcome.broken
    }
    assert not broken
    happened = {name for outcome in outcomes for name in outcome.faults}
    assert happened >= {"link cut", "link cut for long", "slow link", "forgets unseen", "leader struck", "crash"}
    done = {name for outcome in outcomes for name in outcome.done}
    assert done >= {
        "partition copied",
        "partition appended to",
        "partition failed over",
        "partition come home",
        "run with a file of what was cut off",
        "partition stopped",
        "records deleted",
        "topic made again",
    }
    assert sum(outcome.acks for outcome in outcomes) > 5_000


def test_a_mirrored_seed_is_always_the_same_run() -> None:
    """In another process, whose hashes of strings and addresses of objects are others."""
    seed = 4
    with pool() as workers:
        elsewhere = workers.submit(run_mirrors, seed).result()
    here = run_mirrors(seed)
    assert here.lines == elsewhere.lines
    assert here.digest == elsewhere.digest


# Rule → seeds of which at least one notices, as in `test_seeds`.
NOTICED_BY = {
    "the common point is where the copy ended": (35, 29, 44, 59, 72, 76, 79),
    "nothing that is cut off is saved": (11, 7, 13, 20),
    "copies are open for writing": (7, 13, 2, 6),
}


@pytest.mark.parametrize("name", NOTICED_BY)
def test_a_broken_rule_of_mirroring_is_noticed(name: str) -> None:
    (rule,) = rules_of(name)
    assert rule.brokers == MIRRORED
    assert any(run_broken(rule, seed).broken for seed in NOTICED_BY[name])
