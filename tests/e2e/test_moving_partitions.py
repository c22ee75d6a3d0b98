"""`ottla topics reassign|elect|describe` and `ottla cluster drain|unregister|describe` on three
brokers of Ottla or, with `--against kafka`, of Apache Kafka. The commands use Kafka's APIs, so both
behave alike.
"""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.clusters import ProcessCluster, is_in_sync
from tests.e2e.up_resources import are_in_sync
from tests.ottla_command import run_ottla
from tests.waiting import eventually

Json = dict[str, Any]
FENCING_TIMEOUT_S = 30.0


@dataclass
class OttlaCommand:
    """Runs `ottla` commands on a cluster."""

    cluster: ProcessCluster

    def run(self, *arguments: str, code: int = 0) -> str:
        """Standard output, or standard error if `code` is not 0. Raises AssertionError if the exit
        code is not `code`.
        """
        result = self.run_unchecked(*arguments)
        assert result.returncode == code, (arguments, result.stdout, result.stderr)
        return result.stdout if code == 0 else result.stderr

    def run_unchecked(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return run_ottla(*arguments, within_s=120, variables={"OTTLA_BOOTSTRAP": self.cluster.bootstrap})

    def run_json(self, *arguments: str) -> Json:
        output: Json = json.loads(self.run(*arguments, "-o", "json"))
        return output

    def partitions(self, topic: str) -> list[Json]:
        partitions: list[Json] = self.run_json("topics", "describe", topic)["partitions"]
        return partitions

    def wait_until_in_sync(self, topic: str, replicas: int, *, preferred: bool = True) -> list[Json]:
        """Waits until each partition of a topic has this number of replicas, all in sync, and, if
        `preferred`, is led by the first of them. Returns the partitions.
        """

        def partitions_in_sync() -> list[Json]:
            partitions = self.partitions(topic)
            return partitions if are_in_sync(partitions, replicas, preferred=preferred) else []

        # Each command is a process, so a client waits first and the command is run at the end.
        eventually(lambda: is_in_sync(self.cluster.bootstrap, topic, replicas, preferred=preferred), within_s=60)
        return eventually(partitions_in_sync, within_s=60, message=f"{topic} with {replicas} replicas in sync")

    def produce(self, topic: str, count: int, size: int = 1000) -> None:
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap})
        for number in range(count):
            producer.produce(topic, f"{number:>{size}}", key=str(number))
        assert producer.flush(60) == 0

    def count_records(self, topic: str) -> int:
        return sum(it["end"] - it["start"] for it in self.partitions(topic))


@pytest.fixture
def ottla(cluster: ProcessCluster) -> OttlaCommand:
    return OttlaCommand(cluster)


def test_reassignment_is_planned_throttled_cancelled_and_completed(ottla: OttlaCommand, tmp_path: Path) -> None:
    ottla.run("topics", "create", "orders", "-p", "6", "-r", "2")
    ottla.produce("orders", 6000, 4000)
    before = ottla.wait_until_in_sync("orders", 2)

    planned = ottla.run_json("topics", "reassign", "orders", "-r", "3", "--dry-run", "--throttle", "1M")
    assert planned["copies"] == 6
    assert planned["bytes"] == pytest.approx(6000 * 4010, rel=0.1)
    assert planned["bytes"] / 3e6 < planned["seconds"] < planned["bytes"] / 1e6
    assert ottla.partitions("orders") == before
    output = ottla.run("topics", "reassign", "orders", "-r", "3", "--dry-run", "--throttle", "1M")
    assert "6 partitions to change, 6 replicas to copy, " in output

    # The throttle makes the reassignment last long enough to describe it, to have another one
    # rejected, and to cancel it.
    ottla.run("topics", "reassign", "orders", "-r", "3", "--throttle", "10k")
    moving = ottla.run_json("topics", "describe", "orders")
    assert all(len(it["adding"]) == 1 for it in moving["partitions"])
    assert not any(it["underReplicated"] for it in moving["partitions"])
    assert {it["name"] for it in moving["settings"]} == {
        f"{role}.replication.throttled.replicas" for role in ("leader", "follower")
    }
    assert ottla.run_json("cluster", "describe")["reassigning"] == 6
    assert "orders-0 is already being reassigned" in ottla.run("topics", "reassign", "orders", "-r", "1", code=1)
    assert "CANCELS ADDING" in ottla.run("topics", "reassign", "--cancel", "--dry-run")
    assert "reassignment of 6 partitions cancelled" in ottla.run("topics", "reassign", "orders", "--cancel")
    assert [it["replicas"] for it in ottla.wait_until_in_sync("orders", 2)] == [it["replicas"] for it in before]
    assert ottla.run_json("topics", "describe", "orders")["settings"] == []

    result = ottla.run_unchecked("topics", "reassign", "orders", "-r", "3", "--throttle", "100M", "--watch")
    assert result.stdout.splitlines()[-1] == "6 partitions reassigned"
    ottla.wait_until_in_sync("orders", 3)
    assert ottla.run_json("topics", "describe", "orders")["settings"] == []
    assert ottla.count_records("orders") == 6000

    rollback = tmp_path / "rollback.json"
    rollback.write_text(json.dumps(planned["rollback"]))
    ottla.run("topics", "reassign", "--plan", str(rollback), "--watch")
    assert [it["replicas"] for it in ottla.wait_until_in_sync("orders", 2)] == [it["replicas"] for it in before]

    ottla.run("topics", "reassign", "orders", "--to", "1,3", "--watch")
    assert all(set(it["replicas"]) == {1, 3} for it in ottla.wait_until_in_sync("orders", 2))
    ottla.run("topics", "reassign", "orders", "--watch")
    after = ottla.wait_until_in_sync("orders", 2)
    assert sorted(sum(broker in it["replicas"] for it in after) for broker in (1, 2, 3)) == [4, 4, 4]
    assert sorted(sum(broker == it["leader"] for it in after) for broker in (1, 2, 3)) == [2, 2, 2]
    assert ottla.count_records("orders") == 6000
    assert "there are no reassignments" in ottla.run("topics", "reassign", "--watch")


def test_impossible_reassignments_are_rejected(ottla: OttlaCommand, tmp_path: Path) -> None:
    ottla.run("topics", "create", "orders", "-p", "2", "-r", "2")
    message = ottla.run("topics", "reassign", "orders", "--to", "1", code=1)
    assert "orders-0 has 2 replicas, which need as many brokers" in message
    assert "--to: broker 9 is not up; brokers that are up: 1, 2, 3" in ottla.run(
        "topics", "reassign", "orders", "--to", "3,9", code=2
    )
    assert "there is no topic 'nothing'" in ottla.run("topics", "reassign", "nothing", code=3)
    assert "4 replicas need as many brokers" in ottla.run("topics", "reassign", "orders", "-r", "4", code=1)
    plan = tmp_path / "plan.json"
    plan.write_text('{"version": 1, "partitions": [{"topic": "orders", "partition": 5, "replicas": [1]}]}')
    assert "there is no partition orders-5" in ottla.run("topics", "reassign", "--plan", str(plan), code=3)
    assert "there is no broker 9; registered brokers: 1, 2, 3" in ottla.run("cluster", "drain", "9", code=3)
    assert "it has 0 to 1" in ottla.run("topics", "elect", "orders:7", code=3)


def test_drained_broker_can_be_unregistered(ottla: OttlaCommand) -> None:
    ottla.run("topics", "create", "orders", "-p", "6", "-r", "2")
    ottla.produce("orders", 1000, 100)
    others = {
        it["partition"]: it["replicas"] for it in ottla.wait_until_in_sync("orders", 2) if 3 not in it["replicas"]
    }
    assert "COPY TO" in ottla.run("cluster", "drain", "3", "--dry-run")
    assert "has 4 replicas; move them off first" in ottla.run("cluster", "unregister", "3", code=1)
    ottla.run("cluster", "drain", "3", "--watch")
    after = ottla.wait_until_in_sync("orders", 2)
    assert all(3 not in it["replicas"] for it in after)
    assert {it["partition"]: it["replicas"] for it in after if it["partition"] in others} == others
    assert "broker 3 is running; stop it first" in ottla.run("cluster", "unregister", "3", code=1)
    ottla.cluster.brokers[3].stop()
    eventually(lambda: ottla.run_json("cluster", "describe")["brokers"][2]["fenced"], within_s=FENCING_TIMEOUT_S)
    assert "broker 3 is unregistered" in ottla.run("cluster", "unregister", "3")
    assert [it["id"] for it in ottla.run_json("cluster", "describe")["brokers"]] == [1, 2]
    assert ottla.count_records("orders") == 1000
    assert "all 6 partitions" in ottla.run("cluster", "health")


@pytest.mark.slow
def test_preferred_leaders_are_elected(ottla: OttlaCommand) -> None:
    ottla.run("topics", "create", "orders", "-p", "6", "-r", "3")
    ottla.wait_until_in_sync("orders", 3)
    ottla.cluster.brokers[3].kill()
    eventually(lambda: all(it["leader"] in (1, 2) for it in ottla.partitions("orders")), within_s=FENCING_TIMEOUT_S)
    assert ottla.run_json("cluster", "describe")["underReplicated"] == 6
    unhealthy = ottla.run_unchecked("cluster", "health", "-o", "json")
    found = json.loads(unhealthy.stdout)
    assert (unhealthy.returncode, found["healthy"]) == (1, False)
    assert [it["problem"] for it in found["problems"] if it["topic"] == "orders"] == ["under-replicated"] * 6
    ottla.cluster.brokers[3].start()
    ottla.wait_until_in_sync("orders", 3, preferred=False)
    # The controller may have elected them in its periodic election.
    if any(it["leader"] != it["replicas"][0] for it in ottla.partitions("orders")):
        assert "orders" in ottla.run("topics", "elect", "orders", "--dry-run")
        assert "elected" in ottla.run("topics", "elect", "--all")
    ottla.wait_until_in_sync("orders", 3)
    assert "nothing to elect" in ottla.run("topics", "elect", "orders")


def test_unclean_election_asks_for_confirmation_and_loses_records(ottla: OttlaCommand) -> None:
    ottla.run("topics", "create", "orders", "-p", "1", "-r", "2", "-c", "min.insync.replicas=1")
    ((first, second),) = (it["replicas"] for it in ottla.wait_until_in_sync("orders", 2))
    ottla.produce("orders", 10, 10)
    ottla.cluster.brokers[second].kill()
    eventually(lambda: ottla.partitions("orders")[0]["isr"] == [first], within_s=FENCING_TIMEOUT_S)
    ottla.produce("orders", 5, 10)
    ottla.cluster.brokers[first].kill()
    ottla.cluster.brokers[second].start()
    eventually(lambda: ottla.partitions("orders")[0]["leader"] == -1, within_s=FENCING_TIMEOUT_S)
    assert f"one of {second}" in ottla.run("topics", "elect", "orders", "--unclean", "--dry-run")
    assert "Continue?" in ottla.run_unchecked("topics", "elect", "orders", "--unclean").stdout
    assert ottla.partitions("orders")[0]["leader"] == -1
    assert "1 leader elected" in ottla.run("topics", "elect", "orders", "--unclean", "--yes")
    assert ottla.partitions("orders")[0]["leader"] == second
    assert ottla.count_records("orders") == 10
