"""The clients as processes on their host. Each writes to a file the offsets that it has read or
produced.
"""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.brokers import broker_environment
from tests.e2e.new_addresses.client import MEMBERS, PARTITIONS
from tests.e2e.new_addresses.moving_cluster import CLIENTS, MovingCluster
from tests.jars import java_command, kafka_classpath

CHECKOUT = Path(__file__).parent.parent.parent.parent
GROUP_KINDS = ("librdkafka", "librdkafka-quick", "kafka-python", "java", "librdkafka-short-polls")
JOINING = b"-> wait-join"  # in librdkafka's log


@dataclass
class ClientProcesses:
    """The processes of a producer, or of the members of a group. `ends`: by partition, the offset
    after the last record that was read, or acknowledged to the producer.
    """

    name: str
    processes: list["subprocess.Popen[bytes]"]
    outputs: list[Path]
    ends: dict[int, int] = field(default_factory=dict)
    _read_bytes: dict[Path, int] = field(default_factory=dict)

    def update(self) -> None:
        """Reads what the processes have written since the last call, and updates `ends`."""
        for output in self.outputs:
            with output.open("rb") as file:
                file.seek(self._read_bytes.get(output, 0))
                data = file.read()
            whole = data.rpartition(b"\n")[0]
            self._read_bytes[output] = self._read_bytes.get(output, 0) + (len(whole) + 1 if whole else 0)
            for line in whole.splitlines():
                partition, offset = (int(word.rpartition(b":")[2]) for word in line.split()[:2])
                self.ends[partition] = max(self.ends.get(partition, 0), offset + 1)

    def has_all_partitions(self) -> bool:
        self.update()
        return len(self.ends) == PARTITIONS

    def count_join_requests(self) -> int:
        """How many JoinGroup requests librdkafka's members have sent, by their logs: as many as
        there are members, unless one has joined again.
        """
        return sum(output.with_suffix(".log").read_bytes().count(JOINING) for output in self.outputs)

    def has_reached(self, ends: dict[int, int]) -> bool:
        self.update()
        return all(self.ends.get(partition, 0) >= end for partition, end in ends.items())

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()


def start_client(moving: MovingCluster, kind: str, topic: str, group: str, folder: Path) -> ClientProcesses:
    """Starts a "producer", or a group of one of `GROUP_KINDS`."""
    module = [sys.executable, "-m", "tests.e2e.new_addresses.client", kind, moving.bootstrap, topic, group]
    commands = [java_consumer(moving.bootstrap, topic, group)] * MEMBERS if kind == "java" else [module]
    client = ClientProcesses(group, [], [])
    for number, command in enumerate(commands):
        output = folder / f"{group}-{number}.out"
        with output.open("wb") as out, output.with_suffix(".log").open("wb") as log:
            client.processes.append(
                subprocess.Popen(
                    moving.network.hosts[CLIENTS].command_on_host(*command),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=log,
                    cwd=CHECKOUT,
                    env=broker_environment(),
                    start_new_session=True,
                )
            )
        client.outputs.append(output)
    return client


def java_consumer(bootstrap: str, topic: str, group: str) -> Sequence[str]:
    properties = ("print.partition=true", "print.offset=true", "print.value=false")
    return java_command(
        kafka_classpath(),
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--group", group, "--from-beginning"),
        *(part for each in properties for part in ("--property", each)),
    )
