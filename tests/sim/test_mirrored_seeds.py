"""A fixed set of seeds with two clusters violates no invariant, a seed reproduces its run exactly,
and disabled rules are detected.
"""

from collections.abc import Sequence
from itertools import chain

import pytest

from tests.sim.conftest import IsDetected
from tests.sim.disabled_rule_runs import TWO_CLUSTERS, rules_with_name
from tests.sim.fixed_seeds import outcomes, pool, violations
from tests.sim.mirror_plan import COPY, STOP, MirrorPlan
from tests.sim.mirror_scenario import run_mirror_seed
from tests.slow_tests import quick_and_slow

pytestmark = pytest.mark.timeout(1200)  # takes minutes of processor time, which other tests share
QUICK_SEEDS, SLOW_SEEDS = range(1, 5), range(5, 22)
# Seed of a run that ends with a stopped copy, which is rare. Others are tried after it: any change
# of the broker changes all runs.
STOPPED_COPY = 158
MAX_SEED = 2000


@pytest.mark.parametrize("seeds", quick_and_slow(QUICK_SEEDS, SLOW_SEEDS))
def test_fixed_seeds_violate_no_invariant_of_mirroring(seeds: Sequence[int]) -> None:
    assert not violations(outcomes(run_mirror_seed, seeds), "--mirrors")


@pytest.mark.slow
def test_fixed_seeds_have_every_fault_of_mirroring() -> None:
    found = outcomes(run_mirror_seed, [*QUICK_SEEDS, *SLOW_SEEDS])
    faults = {name for outcome in found for name in outcome.faults}
    assert faults >= {"link cut", "long link cut", "slow link", "records lost unobserved", "leader killed", "crash"}
    counts = {name for outcome in found for name in outcome.counts}
    assert counts >= {
        "partition copied",
        "credential copied",
        "partition appended to",
        "partition failed over",
        "partition failed back",
        "run with saved records",
        "records deleted",
        "topic recreated",
    }
    assert sum(outcome.acks for outcome in found) > 5_000


def test_a_copy_that_diverges_from_its_source_stops() -> None:
    may_stop = (seed for seed in range(1, MAX_SEED) if seed != STOPPED_COPY and can_stop(MirrorPlan.of(seed)))
    runs = (run_mirror_seed(seed) for seed in chain([STOPPED_COPY], may_stop))
    assert any(run.counts.get("partition stopped") for run in runs)


def can_stop(plan: MirrorPlan) -> bool:
    return plan.loses_records and plan.on_source_truncation == STOP and plan.last_stage == COPY


@pytest.mark.slow
def test_mirror_seed_reproduces_its_run() -> None:
    """The second run is in another process, with other string hashes and object addresses."""
    seed = 4
    elsewhere = pool().submit(run_mirror_seed, seed).result()
    here = run_mirror_seed(seed)
    assert here.trace == elsewhere.trace
    assert here.digest == elsewhere.digest


# Rule → seeds that have detected it, as in `test_seeds`.
DETECTED_BY = {
    "divergence offset is end of copy": (94, 124, 222),
    "truncated records not saved": (11, 7, 13, 20),
    "mirrored topics writable": (7, 13, 2, 6),
    "own credentials not kept": (3, 6, 9, 12),
}


@pytest.mark.parametrize("name", DETECTED_BY)
def test_disabled_rule_of_mirroring_is_detected(name: str, is_detected: IsDetected) -> None:
    (rule,) = rules_with_name(name)
    assert rule.brokers == TWO_CLUSTERS
    assert is_detected(rule, DETECTED_BY[name])
