"""Every committed record of every source is appended once and in order, over leader changes,
crashes, wiped disks and truncations.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla_broker.mirroring import appended_offsets
from tests.unit.mirroring.appended_world import AppendedMirrorWorld

STEPS = (
    "write",
    "write",
    "write",
    "mirror",
    "mirror",
    "mirror",
    "mirror",
    "replicate",
    "replicate",
    "replicate",
    "replicate",
    "write_here",
    "change_settings",
    "mirror_by_stale_fetcher",
    "elect",
    "crash",
    "wipe",
    "delete_records",
)
STALE_STEPS = [
    "write",
    "write",
    "mirror",
    "change_settings",
    "write",
    "mirror",
    "mirror_by_stale_fetcher",
    "mirror",
]


def run_steps(seed: int, steps: list[str]) -> AppendedMirrorWorld:
    world = AppendedMirrorWorld(seed)
    for step in steps:
        getattr(world, step)()
    world.settle()
    return world


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.lists(st.sampled_from(STEPS), max_size=80))
def test_records_are_appended_exactly_once(seed: int, steps: list[str]) -> None:
    run_steps(seed, steps).check()


def test_model_detects_a_position_that_is_not_read_from_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the model would prove nothing."""
    monkeypatch.setattr(appended_offsets.AppendedOffsets, "_position_in_log", lambda self, _: self.recorded_position)
    with pytest.raises(AssertionError):
        for seed in range(40):
            run_steps(seed, STALE_STEPS * 4).check()


def test_model_detects_deletion_before_positions_are_preserved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "ottla_broker.mirroring.appended_retention.AppendedRetention.ensure_position_above", lambda *_: -1
    )
    with pytest.raises(AssertionError):
        for seed in range(60):
            steps = ["write", "mirror", "replicate", "replicate", "write_here", "replicate", "replicate"] * 6
            play = [
                *steps,
                *["write_here", "replicate", "replicate"] * 12,
                "delete_records",
                "wipe",
                *["replicate"] * 8,
                *["elect"] * 3,
            ]
            run_steps(seed, play).check()
