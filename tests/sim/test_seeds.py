"""A fixed set of seeds keeps every promise, a seed is always the same run, and the checks notice what is broken on purpose."""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tests.sim.broken_rules import BROKEN
from tests.sim.scenario import Outcome, run

SEEDS = range(1, 101)


def run_broken(rule: str, seed: int) -> Outcome:
    with BROKEN[rule]():
        return run(seed, 1)


def pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn"))


def test_a_fixed_set_of_seeds_keeps_every_promise() -> None:
    with pool() as workers:
        outcomes = list(workers.map(run, SEEDS))
    broken = {
        f"seed {outcome.seed} (python -m tests.sim {outcome.seed})": outcome.broken
        for outcome in outcomes
        if outcome.broken
    }
    assert not broken
    happened = {name for outcome in outcomes for name in outcome.faults}
    assert happened == {
        "cut from register",
        "register away",
        "crash",
        "power loss",
        "clean restart",
        "pause",
        "slow disk",
        "full disk",
        "clock jump",
        "cut client",
        "one-way isolation",
        "slow network",
        "slow register",
        "isolation",
        "wiped disk",
        "controller loss",
        "cut between two",
        "several lose power",
        "several crash",
        "one after the other",
    }
    assert sum(outcome.acks for outcome in outcomes) > 10_000


def test_a_seed_is_always_the_same_run() -> None:
    """In another process, whose hashes of strings and addresses of objects are others."""
    seed = 2
    with pool() as workers:
        elsewhere = workers.submit(run, seed, 1).result()
    here = run(seed, 1)
    assert here.lines == elsewhere.lines
    assert here.digest == elsewhere.digest


NOTICED_BY = {  # rule → seeds of which at least one notices; more do
    "acks before the sync": (9, 13, 17),
    "no duplicate detection": (5, 7, 8),
    "producers forgotten by a restart": (11, 17),
    "recovery drops the last batch": (2, 5),
    "commits acknowledged before they are written": (2, 5, 7),
    "coordinators load what they know to be committed": (9, 11, 12, 13, 17),
}


@pytest.mark.parametrize("rule", NOTICED_BY)
def test_a_broken_rule_is_noticed(rule: str) -> None:
    assert any(run_broken(rule, seed).broken for seed in NOTICED_BY[rule])
