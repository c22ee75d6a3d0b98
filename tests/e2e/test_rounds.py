"""Four rounds of `python -m tests.e2e.rounds`, with logs under `build/rounds`."""

from tests.e2e.rounds.__main__ import LOG_FOLDER
from tests.e2e.rounds.round_runner import run_round, run_three_brokers


def test_no_acknowledged_record_is_lost_under_faults(broker_kind: str) -> None:
    with run_three_brokers(broker_kind) as cluster:
        for number in range(1, 5):
            result = run_round(cluster, f"test-{number}", LOG_FOLDER)
            assert not result.problems, f"{result.faults}; {result.log_file}"
