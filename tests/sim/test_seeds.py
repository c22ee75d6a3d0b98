"""A fixed set of seeds keeps every promise, a seed is always the same run, and the checks notice what is broken on purpose."""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tests.sim.broken_runs import rules_of, run_broken
from tests.sim.scenario import run

SEEDS = range(1, 101)
pytestmark = pytest.mark.timeout(1200)  # minutes of processor time, of which others want some


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
        "answers lost",
        "dark while syncing",
        "dark while new",
        "struck while letting in",
        "struck while let in",
        "led by others meanwhile",
        "struck while followers lack",
        "heard after its session",
        "coordinator apart",
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


# Rule, brokers → seeds of which at least one notices. Any change of the broker makes other runs of them, so there are more than one needs.
NOTICED_BY = {
    ("acks before the sync", 1): (7, 9, 13, 17, 5),
    ("no duplicate detection", 1): (5, 7, 9, 11),
    ("producers forgotten by a restart", 1): (5, 7, 17, 27, 30, 11),
    ("recovery drops the last batch", 1): (1, 2, 4, 7),
    ("commits acknowledged before they are written", 1): (1, 2, 4, 7),
    ("coordinators load what they know to be committed", 1): (5, 7, 9, 11, 12, 17),
    ("new folders are not synced", 1): (7, 34, 47, 5, 9, 11, 17),
    ("acks before the high watermark", 3): (1, 2, 3, 4),
    ("high watermark over the committed isr", 3): (10, 22, 24, 7, 19, 20),
    ("isrs of leaders that were", 3): (1, 25, 17, 26),
    ("coordinators answer out of session", 3): (15, 7, 12, 24, 25),
    ("truncation by high watermark", 3): (1, 2, 3, 4),
    ("followers keep what their leader never had", 3): (1, 2, 5, 8, 10, 13),
    ("new leaders in old epochs", 3): (1, 2, 3, 4),
    ("any life of a broker may join", 3): (2, 4, 1, 3, 5, 6, 7, 8),
    ("who lost power is trusted", 3): (2, 3, 4, 13, 1, 5),
    ("metadata count before they are synced", 3): (23, 3, 48, 5, 7, 11, 2, 4, 6, 8),
    ("duplicates are forgotten by new leaders", 3): (1, 2, 3, 5, 7, 8),
}


@pytest.mark.parametrize(("name", "brokers"), NOTICED_BY)
def test_a_broken_rule_is_noticed(name: str, brokers: int) -> None:
    (rule,) = (rule for rule in rules_of(name) if rule.brokers == brokers)
    assert any(run_broken(rule, seed).broken for seed in NOTICED_BY[name, brokers])
