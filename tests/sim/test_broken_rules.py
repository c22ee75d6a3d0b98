"""The patches that switch rules off fit the broker: each name that they replace exists."""

import pytest

from tests.sim.broken_runs import RULES, Rule


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.name}, {rule.brokers or 'two clusters'}")
def test_rule_can_be_switched_off(rule: Rule) -> None:
    with rule.off():
        pass
