"""A fixed set of seeds violates no invariant, a seed reproduces its run exactly, and disabled rules
are detected.
"""

from collections.abc import Sequence

import pytest

from tests.sim.conftest import IsDetected
from tests.sim.disabled_rule_runs import rules_with_name
from tests.sim.fixed_seeds import outcomes, pool, violations
from tests.sim.scenario import run_seed
from tests.slow_tests import quick_and_slow, slow

QUICK_SEEDS, SLOW_SEEDS = range(1, 9), range(9, 51)
pytestmark = pytest.mark.timeout(1200)  # takes minutes of processor time, which other tests share


@pytest.mark.parametrize("seeds", quick_and_slow(QUICK_SEEDS, SLOW_SEEDS))
def test_fixed_seeds_violate_no_invariant(seeds: Sequence[int]) -> None:
    assert not violations(outcomes(run_seed, seeds))


@pytest.mark.slow
def test_fixed_seeds_have_every_fault() -> None:
    found = outcomes(run_seed, [*QUICK_SEEDS, *SLOW_SEEDS])
    faults = {name for outcome in found for name in outcome.faults}
    assert faults == {
        "crash",
        "power loss",
        "clean restart",
        "pause",
        "slow disk",
        "full disk",
        "clock jump",
        "client link cut",
        "one-way isolation",
        "slow network",
        "isolation",
        "wiped disk",
        "controller fault",
        "broker link cut",
        "several power losses",
        "several crashes",
        "crashes in sequence",
        "responses lost",
        "power loss while syncing",
        "power loss of new partition",
        "leader killed during ISR expansion",
        "leader killed before ISR expansion",
        "late ISR proposal",
        "leader killed while followers lag",
        "requests delayed beyond session",
        "coordinator isolated",
        "brokers split",
        "ring cut",
        "follower hears no leader",
        "controller without majority",
        "candidates slowed",
        "controllers killed in turn",
        "voter lost",
        "wiped founder",
        "brokers moved",
    }
    assert sum(outcome.acks for outcome in found) > 10_000


def test_seed_reproduces_its_run() -> None:
    """The second run is in another process, with other string hashes and object addresses."""
    seed = 2
    elsewhere = pool().submit(run_seed, seed, 1).result()
    here = run_seed(seed, 1)
    assert here.trace == elsewhere.trace
    assert here.digest == elsewhere.digest


# (rule, brokers) → seeds that have detected it. Others are tried after them: any change of the
# broker changes all runs.
DETECTED_BY = {
    ("no duplicate detection", 1): (5, 7, 9, 11),
    ("assignment before revocation", 1): (1,),
    ("revocation not awaited", 1): (1,),
    ("assignments lost on upgrade", 1): (4,),
    ("high watermark ignores pending isr", 3): (1, 3, 14, 10, 22),
    ("isr changes of former leaders accepted", 3): (37, 332, 11, 31, 36, 40, 41),
    ("truncation by high watermark", 3): (1, 2, 3, 4),
    ("leader epoch not increased", 3): (1, 2, 3, 4),
    ("broker epochs not checked", 3): (154, 707, 1, 104, 2, 4, 3, 5, 6, 7, 8),
    ("unclean shutdown ignored", 3): (154, 104, 32, 128),
}
DETECTED_BY_LONG_RUNS = {
    ("acks before sync", 1): (7, 9, 13, 17, 5),
    ("producer state lost on restart", 1): (5, 7, 17, 27, 30, 11),
    ("recovery drops last batch", 1): (1, 2, 4, 7),
    ("commits acknowledged before write", 1): (1, 2, 4, 7),
    ("coordinators load without waiting", 1): (5, 7, 9, 11, 12, 17),
    ("new directories not synced", 1): (60, 44, 16, 38, 75),
    ("acks before high watermark", 3): (1, 2, 3, 4),
    ("coordinators serve out of session", 3): (11, 33, 20, 3, 9, 41),
    ("followers keep diverged records", 3): (462, 1, 10, 707),
    ("producer state lost on failover", 3): (1, 2, 3, 5, 7, 8),
}


@pytest.mark.parametrize(("name", "brokers"), [*DETECTED_BY, *slow(DETECTED_BY_LONG_RUNS)])
def test_disabled_rule_is_detected(name: str, brokers: int, is_detected: IsDetected) -> None:
    (rule,) = (rule for rule in rules_with_name(name) if rule.brokers == brokers)
    assert is_detected(rule, (DETECTED_BY | DETECTED_BY_LONG_RUNS)[name, brokers])
