"""`ottla up` when the disks of a majority of the metadata log's voters are lost: it reports the
loss, and `ottla cluster recover` recovers the cluster.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.e2e.up_process import UpProcess
from tests.e2e.up_resources import consume_values, produce_values, resource, topic
from tests.waiting import eventually

BROKERS = (1, 2, 3, 4)


@pytest.fixture
def home(up: UpProcess) -> UpProcess:
    """`ottla up` with four brokers, three of which vote, and a topic."""
    up.broker_count = len(BROKERS)
    config = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}
    listeners = [{"name": "plain", "port": up.port}]
    demo = resource("Cluster", "demo", replicas=len(BROKERS), listeners=listeners, config=config)
    up.write_resources(demo, topic("flights", partitions=6, replicas=3))
    up.start()
    up.wait_for_line("topic flights created")
    eventually(lambda: len(voters(up)) == 3, message="three voters")
    return up


def voters(home: UpProcess) -> list[int]:
    """Ids of the voters; empty if the command fails."""
    done = home.run_ottla("cluster", "metadata", "-o", "json")
    return [it["id"] for it in json.loads(done.stdout)["brokers"] if it["voter"]] if done.returncode == 0 else []


def data_folder(home: UpProcess, broker: int) -> Path:
    return home.folder / ".ottla" / "demo" / str(broker) / "data"


def cluster_id(home: UpProcess, broker: int) -> str:
    lines = (data_folder(home, broker) / "meta.properties").read_text().splitlines()
    return next((it.partition("=")[2] for it in lines if it.startswith("cluster.id=")), "")


def restart_with_lost_disks(home: UpProcess, lost: Sequence[int]) -> None:
    """Restarts `ottla up` after it has moved the data folders of these brokers aside."""
    home.stop()
    for broker in lost:
        data_folder(home, broker).rename(home.folder / f"lost-{broker}")
    home.start()
    home.wait_for_line("; ".join(f"broker {it} has another disk" for it in lost))


def test_a_cluster_without_a_majority_of_its_disks_is_recovered_from_the_remaining_ones(home: UpProcess) -> None:
    values = [f"v{number}" for number in range(300)]
    produce_values(home, "flights", *values)
    kept, *lost = members = voters(home)
    before = cluster_id(home, kept)
    remaining = ", ".join(str(it) for it in BROKERS if it not in lost)
    restart_with_lost_disks(home, lost)
    addresses = home.bootstrap

    tried = home.run_ottla("cluster", "recover", "-b", addresses, "--dry-run")
    assert tried.returncode == 0, tried.stderr
    all_voters = ", ".join(map(str, members))
    assert f"1 of the voters {all_voters} of the metadata log answer, and a majority is 2" in tried.stdout
    assert f"continues with the disks of brokers {remaining}" in tried.stdout
    assert cluster_id(home, kept) == before

    done = home.run_ottla("cluster", "recover", "-b", addresses, "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    home.wait_for_line("4 brokers ready")
    after = cluster_id(home, kept)
    assert after != before and [cluster_id(home, it) for it in BROKERS] == 4 * [after]
    # Brokers had stopped one after the other, so the last in-sync replica of some partitions was on
    # a lost disk.
    elected = home.run_ottla("topics", "elect", "--all", "--unclean", "--yes")
    assert elected.returncode == 0, elected.stdout + elected.stderr
    assert sorted(consume_values(home, "flights", len(values))) == sorted(values)
    produce_values(home, "flights", "more")
    eventually(lambda: len(voters(home)) == 3, message="three voters again")
    again = home.run_ottla("cluster", "recover", "-b", addresses, "--yes")
    assert again.returncode == 1 and "there is nothing to recover" in again.stderr

    home.stop()
    shutil.rmtree(data_folder(home, lost[0]))
    (home.folder / f"lost-{lost[0]}").rename(data_folder(home, lost[0]))
    home.start()
    refused = home.wait_for_line(f"broker demo-{lost[0]}: ottla broker: ")
    assert before in refused and after in refused


@pytest.mark.slow
def test_a_cluster_with_a_majority_of_its_disks_starts_and_is_not_recovered(home: UpProcess) -> None:
    lost = voters(home)[-1]
    home.stop()
    data_folder(home, lost).rename(home.folder / f"lost-{lost}")
    home.start()
    home.wait_for_line("4 brokers ready")
    done = home.run_ottla("cluster", "recover", "-b", home.bootstrap, "--yes")
    assert done.returncode == 1 and "there is nothing to recover" in done.stderr
