"""Every committed record of every source once, in its order, whoever led, died, was wiped, or lost its end in between."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla_broker.mirroring import appended_offsets
from tests.unit.mirroring.appended_world import World

STEPS = (
    "write", "write", "write", "copy", "copy", "copy", "copy", "replicate", "replicate", "replicate", "replicate",
    "write_here", "new_settings", "copy_late", "elect", "crash", "wipe", "let_go",
)  # fmt: skip


def played(seed: int, steps: list[str]) -> World:
    world = World(seed)
    for step in steps:
        getattr(world, step)()
    world.settle()
    return world


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.lists(st.sampled_from(STEPS), max_size=80))
def test_exactly_once(seed: int, steps: list[str]) -> None:
    played(seed, steps).check()


def test_the_model_notices_a_position_that_is_not_looked_up_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or it would prove nothing."""
    monkeypatch.setattr(appended_offsets.AppendedOffsets, "_position_in_log", lambda self, _: self.recorded_position)
    with pytest.raises(AssertionError):
        for seed in range(40):
            played(seed, ["write", "write", "copy", "new_settings", "write", "copy", "copy_late", "copy"] * 4).check()


def test_the_model_notices_records_that_go_before_their_position_is_said_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "ottla_broker.mirroring.appended_retention.AppendedRetention.ensure_position_above", lambda *_: -1
    )
    with pytest.raises(AssertionError):
        for seed in range(60):
            steps = ["write", "copy", "replicate", "replicate", "write_here", "replicate", "replicate"] * 6
            play = [
                *steps,
                *["write_here", "replicate", "replicate"] * 12,
                "let_go",
                "wipe",
                *["replicate"] * 8,
                *["elect"] * 3,
            ]
            played(seed, play).check()
