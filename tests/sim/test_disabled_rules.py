"""The patches that switch rules off fit the broker: each name that they replace exists."""

import pytest

from tests.sim.disabled_rule_runs import RULES, DisabledRule


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.name}, {rule.brokers or 'two clusters'}")
def test_rule_can_be_switched_off(rule: DisabledRule) -> None:
    with rule.disable():
        pass
