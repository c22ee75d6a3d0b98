"""Which seeds detect a disabled rule."""

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import pytest

from tests.sim.__main__ import replay_without_rules
from tests.sim.disabled_rule_runs import DisabledRule, detecting_seed, shortest_seeds
from tests.sim.plan import Plan
from tests.sim.simulation import Outcome

BROKERS = 1


def build_rule(
    *, violating_without: Collection[int], violating_with: Collection[int] = (), name: str = "a rule"
) -> DisabledRule:
    """A rule with fake runs. Those of the seeds `violating_without` violate an invariant while the
    rule is disabled, and those of `violating_with` while it is not.
    """
    disabled = False

    @contextmanager
    def disable() -> Iterator[None]:
        nonlocal disabled
        disabled = True
        try:
            yield
        finally:
            disabled = False

    def run(choose_plan: object, seed: int, brokers: int, *, on_line: Callable[[str], None] | None = None) -> Outcome:
        violations = ["lost: a record"] if seed in (violating_without if disabled else violating_with) else []
        return Outcome(seed, brokers, violations, 0, [], {}, {}, 0, 0, 0.0, 0.0, 0)

    disable_rule: Callable[[], AbstractContextManager[None]] = disable
    return DisabledRule(name, disable_rule, BROKERS, partial(run, Plan.of))


def test_seed_that_is_not_likely_detects_a_rule_only_if_it_violates_nothing_with_the_rule() -> None:
    first, second, third = shortest_seeds(build_rule(violating_without=()))[:3]
    rule = build_rule(violating_without=(first, second), violating_with=(first,))
    assert detecting_seed(rule, (third,)) == second
    assert detecting_seed(rule, (third,), last=first) == second
    assert detecting_seed(build_rule(violating_without=(first,), violating_with=(first,)), ()) is None


def test_likely_seed_is_tried_first_and_not_run_with_the_rule() -> None:
    first, second = shortest_seeds(build_rule(violating_without=()))[:2]
    rule = build_rule(violating_without=(first, second), violating_with=(second,))
    assert detecting_seed(rule, (second,)) == second
    assert detecting_seed(rule, (second,), last=first) == first


def test_seed_is_replayed_without_each_rule(capsys: pytest.CaptureFixture[str]) -> None:
    rules = [
        build_rule(violating_without=violating, name=name) for name, violating in (("x", (7,)), ("y", ()), ("z", (7,)))
    ]
    assert replay_without_rules(rules, 7) == 1
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if line.startswith("without")] == [f"without the rule: {it}" for it in "xyz"]
    assert sum("VIOLATIONS" in line for line in printed) == 2
    assert printed[-1] == "seed 7 does not detect 1 of 3: y"
    assert replay_without_rules([rules[0], rules[2]], 7) == 0
