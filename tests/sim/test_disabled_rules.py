"""The patches that disable rules match the broker's code: each name that they replace exists."""

import pytest

from tests.sim.disabled_rule_runs import RULES, DisabledRule


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.name}, {rule.brokers or 'two clusters'}")
def test_rule_can_be_disabled(rule: DisabledRule) -> None:
    with rule.disable():
        pass
