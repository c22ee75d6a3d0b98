"""A few rounds of `python -m tests.e2e.rounds`; their logs lie under `build/rounds`."""

import pytest

from tests.e2e.rounds.__main__ import KEPT
from tests.e2e.rounds.play import play, stage


@pytest.mark.timeout(600)
def test_rounds_of_faults(broker_kind: str) -> None:
    with stage(broker_kind) as cluster:
        for number in range(1, 5):
            outcome = play(cluster, f"test-{number}", KEPT)
            assert not outcome.problems, f"{outcome.what}; {outcome.diary}"
