"""All brokers are killed at the same moment and return at other addresses: groups continue.

`python -m tests.e2e.new_addresses` repeats it any number of times, also with connections that fall
silent.
"""

from pathlib import Path

import pytest

from tests.e2e.new_addresses.moving_cluster import run_moving_cluster
from tests.e2e.new_addresses.rounds import READS_ON_WITHIN_S, lose_brokers, run_clients

ROUNDS = 3


@pytest.mark.slow
def test_groups_continue_when_all_brokers_return_at_other_addresses(broker_kind: str, tmp_path: Path) -> None:
    with run_moving_cluster(broker_kind) as moving:
        kinds = ["librdkafka", "librdkafka-quick", "kafka-python"]
        with run_clients(moving, kinds, "moved", tmp_path) as (producer, groups):
            for number in range(1, ROUNDS + 1):
                result = lose_brokers(moving, producer, groups, number, "unnamed", 0.5 * number, READS_ON_WITHIN_S)
                assert not result.stuck, f"{result}; {tmp_path}"
