"""Disabled rules must be detected."""

from collections.abc import Callable, Sequence

import pytest

from tests.sim.disabled_rule_runs import DisabledRule, detecting_seed

IsDetected = Callable[[DisabledRule, Sequence[int]], bool]


@pytest.fixture
def is_detected(pytestconfig: pytest.Config) -> IsDetected:
    """Returns a function that is True if a run without a rule violates an invariant. The seed that
    detected it in the last run of the test with this cache is tried first, then `likely_seeds`,
    then others.
    """
    cache: pytest.Cache | None = getattr(pytestconfig, "cache", None)  # None with -p no:cacheprovider

    def is_detected(rule: DisabledRule, likely_seeds: Sequence[int]) -> bool:
        key = f"ottla/detected by/{rule.name}, {rule.brokers}"
        last = cache.get(key, None) if cache else None
        found = detecting_seed(rule, likely_seeds, last)
        if cache:
            cache.set(key, found)
        return found is not None

    return is_detected
