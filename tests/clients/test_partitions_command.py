"""`ottla partitions`, also as a plugin of kubectl."""

import json
import subprocess
import sys
from pathlib import Path

from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clients.sample_messages import START_MS, Message
from tests.ottla_command import command_environment, run_ottla


def run(broker: BrokerProcess, *arguments: str, program: str = "ottla") -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / program), "partitions", *arguments, "--bootstrap", broker.bootstrap]
    return subprocess.run(command, env=command_environment(), capture_output=True, text=True, timeout=60, check=False)


def test_partitions_are_listed_with_leader_offsets_and_size(broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name, partitions=2)
    rd.produce(broker.bootstrap, name, [Message(None, b"record", START_MS)] * 3, partition=1)
    first, second = json.loads(run(broker, name, "-o", "json").stdout)
    assert (first["partition"], first["end"], second["end"]) == (0, 0, 3)
    assert (second["topic"], second["leader"], second["replicas"], second["isr"]) == (name, 1, [1], [1])
    assert second["bytes"] > first["bytes"] == 0
    heading, *rows = run(broker, program="kubectl-ottla").stdout.splitlines()
    assert heading.split()[:4] == ["TOPIC", "PARTITION", "LEADER", "REPLICAS"]
    assert sum(row.split()[0] == name for row in rows) == 2
    assert not any(row.startswith("__") for row in rows)


def test_partitions_without_problems_are_left_out_on_demand(broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name)
    assert json.loads(run(broker, name, "--problems", "-o", "json").stdout) == []
    described = json.loads(run_ottla("topics", "describe", name, "-o", "json", "-b", broker.bootstrap).stdout)
    assert [it["problem"] for it in described["partitions"]] == [""]
    health = json.loads(run_ottla("cluster", "health", "-o", "json", "-b", broker.bootstrap).stdout)
    assert (health["healthy"], health["problems"]) == (True, [])
    missing = run(broker, "no-such-topic")
    assert missing.returncode == 3 and "no-such-topic" in missing.stderr
