"""`ottla topics reassign|elect|describe` and `ottla cluster drain|unregister|describe` against three brokers, of Ottla or (`--against kafka`) of Apache
Kafka: these are Kafka's own APIs, so that both must take the same commands in the same way."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.clusters import ProcessCluster, is_in_sync
from tests.e2e.up_process import COMMAND, command_environment
from tests.waiting import eventually

Json = dict[str, Any]
FENCING_TIMEOUT_S = 30.0


@dataclass
class OttlaCommand:
    """Types commands."""

    cluster: ProcessCluster

    def run(self, *arguments: str, code: int = 0) -> str:
        """What it says on standard output, or, where it fails, on standard error."""
        done = self.run_unchecked(*arguments)
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        return done.stdout if code == 0 else done.stderr

    def run_unchecked(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*COMMAND, *arguments],
            text=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=120,
            check=False,
            env=command_environment(OTTLA_BOOTSTRAP=self.cluster.bootstrap),
        )

    def run_json(self, *arguments: str) -> Json:
        found: Json = json.loads(self.run(*arguments, "-o", "json"))
        return found

    def partitions(self, topic: str) -> list[Json]:
        found: list[Json] = self.run_json("topics", "describe", topic)["partitions"]
        return found

    def wait_until_in_sync(self, topic: str, replicas: int, *, preferred: bool = True) -> list[Json]:
        """The topic's partitions, once each has so many replicas, all in sync and led by the first."""

        def settled() -> list[Json]:
            found = self.partitions(topic)
            good = all(
                len(it["replicas"]) == len(it["isr"]) == replicas
                and (not preferred or it["leader"] == it["replicas"][0])
                for it in found
            )
            return found if good else []

        # A command is a process: it is asked when a look without one says that it is worth it.
        eventually(lambda: is_in_sync(self.cluster.bootstrap, topic, replicas, preferred=preferred), within_s=60)
        return eventually(settled, within_s=60, message=f"{topic} with {replicas} replicas in sync")

    def produce(self, topic: str, records: int, size: int = 1000) -> None:
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap})
        for number in range(records):
            producer.produce(topic, f"{number:>{size}}", key=str(number))
        assert producer.flush(60) == 0

    def count_records(self, topic: str) -> int:
        return sum(it["end"] - it["start"] for it in self.partitions(topic))


@pytest.fixture
def person(cluster: ProcessCluster) -> OttlaCommand:
    return OttlaCommand(cluster)


def test_reassigning(person: OttlaCommand, tmp_path: Path) -> None:
    person.run("topics", "create", "orders", "-p", "6", "-r", "2")
    person.produce("orders", 6000, 4000)
    before = person.wait_until_in_sync("orders", 2)

    planned = person.run_json("topics", "reassign", "orders", "-r", "3", "--dry-run", "--throttle", "1M")
    assert planned["copies"] == 6
    assert planned["bytes"] == pytest.approx(6000 * 4010, rel=0.1)
    assert planned["bytes"] / 3e6 < planned["seconds"] < planned["bytes"] / 1e6
    assert person.partitions("orders") == before
    said = person.run("topics", "reassign", "orders", "-r", "3", "--dry-run", "--throttle", "1M")
    assert "6 partitions to change, 6 replicas to copy, " in said

    # Throttled, it goes on long enough to be seen, refused a second time, and taken back.
    person.run("topics", "reassign", "orders", "-r", "3", "--throttle", "10k")
    moving = person.run_json("topics", "describe", "orders")
    assert all(len(it["adding"]) == 1 for it in moving["partitions"])
    assert not any(it["underReplicated"] for it in moving["partitions"])
    assert {it["name"] for it in moving["settings"]} == {
        f"{role}.replication.throttled.replicas" for role in ("leader", "follower")
    }
    assert person.run_json("cluster", "describe")["moving"] == 6
    assert "orders-0 is already being reassigned" in person.run("topics", "reassign", "orders", "-r", "1", code=1)
    assert "NOT ADDED TO" in person.run("topics", "reassign", "--cancel", "--dry-run")
    assert "reassignment of 6 partitions cancelled" in person.run("topics", "reassign", "orders", "--cancel")
    assert [it["replicas"] for it in person.wait_until_in_sync("orders", 2)] == [it["replicas"] for it in before]
    assert person.run_json("topics", "describe", "orders")["settings"] == []

    done = person.run_unchecked("topics", "reassign", "orders", "-r", "3", "--throttle", "100M", "--watch")
    assert done.stdout.splitlines()[-1] == "6 partitions reassigned"
    person.wait_until_in_sync("orders", 3)
    assert person.run_json("topics", "describe", "orders")["settings"] == []
    assert person.count_records("orders") == 6000

    back = tmp_path / "back.json"
    back.write_text(json.dumps(planned["rollback"]))
    person.run("topics", "reassign", "--plan", str(back), "--watch")
    assert [it["replicas"] for it in person.wait_until_in_sync("orders", 2)] == [it["replicas"] for it in before]

    person.run("topics", "reassign", "orders", "--to", "1,3", "--watch")
    assert all(set(it["replicas"]) == {1, 3} for it in person.wait_until_in_sync("orders", 2))
    person.run("topics", "reassign", "orders", "--watch")
    after = person.wait_until_in_sync("orders", 2)
    assert sorted(sum(broker in it["replicas"] for it in after) for broker in (1, 2, 3)) == [4, 4, 4]
    assert sorted(sum(broker == it["leader"] for it in after) for broker in (1, 2, 3)) == [2, 2, 2]
    assert person.count_records("orders") == 6000
    assert "there are no reassignments" in person.run("topics", "reassign", "--watch")


def test_what_cannot_be_moved_is_told(person: OttlaCommand, tmp_path: Path) -> None:
    person.run("topics", "create", "orders", "-p", "2", "-r", "2")
    refused = person.run("topics", "reassign", "orders", "--to", "1", code=1)
    assert "orders-0 has 2 replicas, which need as many brokers" in refused
    assert "--to: broker 9 is not up; brokers that are up: 1, 2, 3" in person.run(
        "topics", "reassign", "orders", "--to", "3,9", code=2
    )
    assert "there is no topic 'nothing'" in person.run("topics", "reassign", "nothing", code=3)
    assert "4 replicas need as many brokers" in person.run("topics", "reassign", "orders", "-r", "4", code=1)
    plan = tmp_path / "plan.json"
    plan.write_text('{"version": 1, "partitions": [{"topic": "orders", "partition": 5, "replicas": [1]}]}')
    assert "there is no partition orders-5" in person.run("topics", "reassign", "--plan", str(plan), code=3)
    assert "there is no broker 9; registered brokers: 1, 2, 3" in person.run("cluster", "drain", "9", code=3)
    assert "it has 0 to 1" in person.run("topics", "elect", "orders:7", code=3)


def test_draining_a_broker_until_it_can_go(person: OttlaCommand) -> None:
    person.run("topics", "create", "orders", "-p", "6", "-r", "2")
    person.produce("orders", 1000, 100)
    kept = {it["partition"]: it["replicas"] for it in person.wait_until_in_sync("orders", 2) if 3 not in it["replicas"]}
    assert "COPY TO" in person.run("cluster", "drain", "3", "--dry-run")
    assert "has 4 replicas; move them off first" in person.run("cluster", "unregister", "3", code=1)
    person.run("cluster", "drain", "3", "--watch")
    after = person.wait_until_in_sync("orders", 2)
    assert all(3 not in it["replicas"] for it in after)
    assert {it["partition"]: it["replicas"] for it in after if it["partition"] in kept} == kept
    assert "broker 3 is running; stop it first" in person.run("cluster", "unregister", "3", code=1)
    person.cluster.brokers[3].stop()
    eventually(lambda: person.run_json("cluster", "describe")["brokers"][2]["fenced"], within_s=FENCING_TIMEOUT_S)
    assert "broker 3 is unregistered" in person.run("cluster", "unregister", "3")
    assert [it["id"] for it in person.run_json("cluster", "describe")["brokers"]] == [1, 2]
    assert person.count_records("orders") == 1000
    assert "all 6 partitions" in person.run("cluster", "health")


def test_electing_preferred_leaders(person: OttlaCommand) -> None:
    person.run("topics", "create", "orders", "-p", "6", "-r", "3")
    person.wait_until_in_sync("orders", 3)
    person.cluster.brokers[3].kill()
    eventually(lambda: all(it["leader"] in (1, 2) for it in person.partitions("orders")), within_s=FENCING_TIMEOUT_S)
    assert person.run_json("cluster", "describe")["underReplicated"] == 6
    person.run("cluster", "health", code=1)
    person.cluster.brokers[3].start()
    person.wait_until_in_sync("orders", 3, preferred=False)
    if any(
        it["leader"] != it["replicas"][0] for it in person.partitions("orders")
    ):  # the brokers' own balancing may be quicker
        assert "orders" in person.run("topics", "elect", "orders", "--dry-run")
        assert "elected" in person.run("topics", "elect", "--all")
    person.wait_until_in_sync("orders", 3)
    assert "nothing to elect" in person.run("topics", "elect", "orders")


def test_electing_a_leader_that_has_not_everything(person: OttlaCommand) -> None:
    person.run("topics", "create", "orders", "-p", "1", "-r", "2", "-c", "min.insync.replicas=1")
    ((first, second),) = (it["replicas"] for it in person.wait_until_in_sync("orders", 2))
    person.produce("orders", 10, 10)
    person.cluster.brokers[second].kill()
    eventually(lambda: person.partitions("orders")[0]["isr"] == [first], within_s=FENCING_TIMEOUT_S)
    person.produce("orders", 5, 10)
    person.cluster.brokers[first].kill()
    person.cluster.brokers[second].start()
    eventually(lambda: person.partitions("orders")[0]["leader"] == -1, within_s=FENCING_TIMEOUT_S)
    assert f"one of {second}" in person.run("topics", "elect", "orders", "--unclean", "--dry-run")
    assert "Continue?" in person.run_unchecked("topics", "elect", "orders", "--unclean").stdout
    assert person.partitions("orders")[0]["leader"] == -1
    assert "1 leader elected" in person.run("topics", "elect", "orders", "--unclean", "--yes")
    assert person.partitions("orders")[0]["leader"] == second
    assert person.count_records("orders") == 10
