"""`ottla up` with several brokers: crashes, rolling restarts, more and fewer brokers, without loss
of acknowledged records.
"""

import json
import os
import re
import signal
from collections import Counter
from typing import Any

import confluent_kafka as ck
import pytest

from tests.e2e.background_producer import produce_numbers
from tests.e2e.up_process import UpProcess, is_process_running
from tests.e2e.up_resources import (
    Json,
    consume_values,
    count_partitions,
    produce_values,
    resource,
    run_json,
    topic,
    wait_until_in_sync,
)
from tests.waiting import eventually


@pytest.fixture
def up(up: UpProcess) -> UpProcess:
    up.broker_count = 3
    return up


def cluster(up: UpProcess, replicas: int = 3, **spec: Any) -> Json:
    few = {"offsets.topic.num.partitions": 6, "transaction.state.log.num.partitions": 3}
    config = {"group.initial.rebalance.delay.ms": 0, **few, **spec.pop("config", {})}
    return resource(
        "Cluster", "demo", replicas=replicas, listeners=[{"name": "plain", "port": up.port}], config=config, **spec
    )


def count_by_leader(partitions: list[Json]) -> dict[int, int]:
    """Number of partitions that each broker leads."""
    return dict(Counter(it["leader"] for it in partitions))


def test_killed_broker_is_restarted_and_no_acknowledged_record_is_lost(up: UpProcess) -> None:
    up.write_resources(cluster(up), topic(partitions=6))
    up.start()
    up.wait_for_line("3 brokers ready after")
    up.wait_for_line("topic greetings created")
    assert set(count_by_leader(wait_until_in_sync(up, "greetings", 3)).values()) == {2}
    with produce_numbers(up.bootstrap, "greetings", 6) as acknowledged:
        count_before = len(acknowledged)
        killed = up.broker_pid(2)
        os.kill(killed, signal.SIGKILL)
        up.wait_for_line("broker demo-2: ")
        up.wait_for_line("broker demo-2 is ready again")
        wait_until_in_sync(up, "greetings", 3, preferred=False)
        eventually(lambda: len(acknowledged) > count_before + 500, within_s=30)
    assert up.broker_pid(2) != killed
    assert consume_values(up, "greetings", len(acknowledged)) == sorted(acknowledged)
    pids = [up.broker_pid(it) for it in (1, 2, 3)]
    assert up.stop() == 0
    assert not any(map(is_process_running, pids))

    up.start()
    up.wait_for_line("3 brokers ready after")
    assert consume_values(up, "greetings", len(acknowledged)) == sorted(acknowledged)
    assert up.stop() == 0
    assert not any("Traceback" in line for line in up.lines)


def test_changed_setting_restarts_one_broker_after_the_other(up: UpProcess) -> None:
    up.write_resources(cluster(up), topic(partitions=6))
    up.start()
    up.wait_for_line("topic greetings created")
    wait_until_in_sync(up, "greetings", 3)
    before = {it: up.broker_pid(it) for it in (1, 2, 3)}
    with produce_numbers(up.bootstrap, "greetings", 6) as acknowledged:
        up.write_resources(cluster(up, config={"num.partitions": 4}), topic(partitions=6), topic("wide"))
        for id_ in (1, 2, 3):
            up.wait_for_line(f"restarting broker {id_} (settings num.partitions")
        up.wait_for_line("topic wide created")
        wait_until_in_sync(up, "greetings", 3)
    assert count_partitions(up, "wide") == 4
    assert all(up.broker_pid(it) != pid for it, pid in before.items())
    controller = run_json(up, "cluster", "describe")["controller"]
    assert controller in (1, 2, 3)
    assert consume_values(up, "greetings", len(acknowledged)) == sorted(acknowledged)
    assert up.stop() == 0


def test_dynamic_setting_restarts_no_broker(up: UpProcess) -> None:
    up.write_resources(cluster(up), topic())
    up.start()
    up.wait_for_line("topic greetings created")
    pids = [up.broker_pid(it) for it in (1, 2, 3)]
    up.write_resources(cluster(up, config={"log.retention.ms": 7_200_000}), topic())
    up.wait_for_line("log.retention.ms=7200000, without a restart")
    described = run_json(up, "topics", "describe", "greetings", "--all")["settings"]
    settings = {it["name"]: it["value"] for it in described}
    assert settings["retention.ms"] == "7200000"
    up.write_resources(cluster(up, config={"log.retention.ms": "soon"}), topic())
    assert "log.retention.ms" in up.wait_for_line("resources/all.yaml:14")
    assert [up.broker_pid(it) for it in (1, 2, 3)] == pids
    assert up.stop() == 0


@pytest.mark.slow
def test_setting_that_brokers_reject_stops_the_roll_at_the_first_broker(up: UpProcess) -> None:
    up.write_resources(cluster(up), topic())
    up.start()
    up.wait_for_line("topic greetings created")
    wait_until_in_sync(up, "greetings", 3)
    up.write_resources(cluster(up, config={"num.partitions": "${env:MISSING}"}), topic())
    up.wait_for_line("num.partitions")
    up.wait_for_line("not ready after 30 s; no ready broker is restarted while roll.maxUnavailable", within_s=60)
    assert sum(is_restart(line) for line in up.lines) == 1
    produce_values(up, "greetings", "still", "here")
    up.write_resources(cluster(up, config={"num.partitions": 2}), topic())
    for id_ in (1, 2, 3):
        eventually(
            lambda id_=id_: (  # type: ignore[misc]
                json.loads((up.folder / f".ottla/demo/{id_}/settings.json").read_text()).get("num.partitions") == "2"
            ),
            within_s=60,
        )
    wait_until_in_sync(up, "greetings", 3)
    assert consume_values(up, "greetings", 2) == ["here", "still"]
    assert up.stop() == 0


NO_RESTART_MESSAGE = ", without a restart"


def is_restart(line: str) -> bool:
    """True for the line that says why one broker is restarted; a roll's first line names all
    reasons.
    """
    return re.search(r"restarting broker \d+ \(", line) is not None


def replication_factors(up: UpProcess) -> list[str]:
    """The default.replication.factor with which brokers 1 and 2 were started."""
    files = [up.folder / f".ottla/demo/{id_}/settings.json" for id_ in (1, 2)]
    return [json.loads(it.read_text())["default.replication.factor"] for it in files]


def run_transaction(up: UpProcess) -> None:
    """Commits a transaction. The first one creates __transaction_state."""
    producer = ck.Producer({"bootstrap.servers": up.bootstrap, "transactional.id": "scaled"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("of-transactions", b"committed")
    producer.commit_transaction(30)


def transactions_min_isr(up: UpProcess) -> str:
    settings = run_json(up, "topics", "describe", "__transaction_state")["settings"]
    return next(str(it["value"]) for it in settings if it["name"] == "min.insync.replicas")


@pytest.mark.slow
def test_scaling_up_and_down_loses_no_record(up: UpProcess) -> None:
    up.write_resources(cluster(up, 1), topic(partitions=6))
    up.start()
    up.wait_for_line("topic greetings created")
    produce_values(up, "greetings", *map(str, range(500)))
    assert len(consume_values(up, "greetings", 500)) == 500  # a group, so that __consumer_offsets exists
    run_transaction(up)
    assert transactions_min_isr(up) == "1"
    up.write_resources(cluster(up, 3), topic(partitions=6))
    up.wait_for_line("9 partitions to move, internal topics for 3 brokers", within_s=60)
    up.wait_for_line("partitions has ended", within_s=60)
    assert count_by_leader(wait_until_in_sync(up, "greetings", 1)) == {1: 2, 2: 2, 3: 2}
    wait_until_in_sync(up, "__consumer_offsets", 3)
    wait_until_in_sync(up, "__transaction_state", 3)
    up.wait_for_line("min.insync.replicas of __transaction_state is now 2, with 3 brokers", within_s=60)
    assert transactions_min_isr(up) == "2"
    run_transaction(up)

    up.write_resources(cluster(up, 3), topic(partitions=6, replicas=3))
    up.wait_for_line("topic greetings: reassigning to 3 replicas")
    wait_until_in_sync(up, "greetings", 3)
    assert len(consume_values(up, "greetings", 500)) == 500

    up.write_resources(cluster(up, 2), topic(partitions=6, replicas=3))
    up.wait_for_line("3 replicas need as many brokers; Cluster demo has 2, in resources/all.yaml:6")
    up.write_resources(cluster(up, 2), topic(partitions=6, replicas=2))
    up.wait_for_line("stopping broker 3, which holds no replicas", within_s=60)
    assert set(count_by_leader(wait_until_in_sync(up, "greetings", 2)).values()) == {3}
    wait_until_in_sync(up, "__consumer_offsets", 2)
    wait_until_in_sync(up, "__transaction_state", 2)
    up.wait_for_line("min.insync.replicas of __transaction_state is now 1, with 2 brokers", within_s=60)
    assert [it["id"] for it in run_json(up, "cluster", "describe")["brokers"]] == [1, 2]
    assert len(consume_values(up, "greetings", 500)) == 500

    # The brokers are being restarted, and the command does not repeat a request that fails with one
    # of them.
    create = ("topics", "create", "of-clients", "-r", "2", "--if-not-exists")
    eventually(lambda: up.run_ottla(*create).returncode == 0, message="a topic with two replicas")
    eventually(lambda: set(replication_factors(up)) == {"2"}, within_s=60, message=lambda: str(replication_factors(up)))
    wait_until_in_sync(up, "__consumer_offsets", 2)  # the broker that is restarted last is in sync
    removed_at = next(at for at, it in enumerate(up.lines) if "stopping broker 3, which holds no replicas" in it)
    assert sum(is_restart(it) for it in up.lines[removed_at:]) == 2, f"one roll after broker 3 was removed: {up.lines}"
    changes = [it for it in up.lines if is_restart(it) or NO_RESTART_MESSAGE in it]
    up.write_resources(cluster(up, 1), topic(partitions=6))
    up.wait_for_line("the brokers stay as they are: ")
    assert [it for it in up.lines if is_restart(it) or NO_RESTART_MESSAGE in it] == changes, (
        "the new size is rejected before any change"
    )
    assert set(replication_factors(up)) == {"2"}
    assert up.run_ottla("topics", "reassign", "of-clients", "-r", "1", "--watch").returncode == 0
    assert up.run_ottla("topics", "reassign", "greetings", "-r", "1", "--watch").returncode == 0
    up.wait_for_line("stopping broker 2, which holds no replicas", within_s=60)
    assert len(consume_values(up, "greetings", 500)) == 500
    assert up.stop() == 0


@pytest.mark.slow
def test_smaller_cluster_that_is_set_while_up_is_stopped_is_applied(up: UpProcess) -> None:
    up.write_resources(cluster(up, 3), topic(partitions=6, replicas=2))
    up.start()
    up.wait_for_line("topic greetings created")
    produce_values(up, "greetings", *map(str, range(100)))
    assert up.stop() == 0
    up.write_resources(cluster(up, 2), topic(partitions=6, replicas=2))
    up.start()
    up.wait_for_line("stopping broker 3, which holds no replicas", within_s=60)
    wait_until_in_sync(up, "greetings", 2)
    assert len(consume_values(up, "greetings", 100)) == 100
    assert up.stop() == 0
