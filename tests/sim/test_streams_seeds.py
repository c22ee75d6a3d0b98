"""An application of Kafka Streams: a fixed set of seeds violates no invariant, and disabled rules
of streams groups are detected.
"""

from collections.abc import Sequence

import pytest

from tests.sim.conftest import IsDetected
from tests.sim.disabled_rule_runs import rules_with_name
from tests.sim.fixed_seeds import outcomes, violations
from tests.sim.scenario import run_streams_seed
from tests.slow_tests import quick_and_slow

pytestmark = pytest.mark.timeout(1200)  # takes a minute of processor time, which other tests share
QUICK_SEEDS, SLOW_SEEDS = range(1, 4), range(4, 13)


@pytest.mark.parametrize("seeds", quick_and_slow(QUICK_SEEDS, SLOW_SEEDS))
def test_no_task_is_active_twice_or_has_two_copies_in_one_process(seeds: Sequence[int]) -> None:
    found = outcomes(run_streams_seed, seeds)
    assert not violations(found, "--streams")
    for what in ("active tasks assigned", "standby tasks assigned", "threads left"):
        assert min(outcome.counts.get(what, 0) for outcome in found) > 1, what


# Rule → seeds that have detected it, as in `test_seeds`.
DETECTED_BY = {
    "tasks assigned before release": (1, 2, 7),
    "copies of a task in one process": (1, 2, 3),
    "task revocation not awaited": (1, 2, 3),
}


@pytest.mark.parametrize("name", DETECTED_BY)
def test_disabled_rule_of_streams_groups_is_detected(name: str, is_detected: IsDetected) -> None:
    (rule,) = rules_with_name(name)
    assert rule.run is run_streams_seed
    assert is_detected(rule, DETECTED_BY[name])
