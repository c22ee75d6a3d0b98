"""A few rounds of `python -m tests.e2e.rounds`; their logs lie under `build/rounds`."""

import pytest

from tests.e2e.rounds.__main__ import LOG_FOLDER
from tests.e2e.rounds.round_runner import run_round, run_three_brokers


@pytest.mark.timeout(600)
def test_rounds_of_faults(broker_kind: str) -> None:
    with run_three_brokers(broker_kind) as cluster:
        for number in range(1, 5):
            outcome = run_round(cluster, f"test-{number}", LOG_FOLDER)
            assert not outcome.problems, f"{outcome.faults}; {outcome.log_file}"
