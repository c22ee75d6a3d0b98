"""The broker of the tests: Ottla, or Apache Kafka if OTTLA_TEST_KAFKA_LIBS names a folder with its
jars.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.ports import free_port

KAFKA_LIBS = os.environ.get("OTTLA_TEST_KAFKA_LIBS")
_READY_S = 60


@contextmanager
def broker(folder: Path, registry: str = "") -> Iterator[str]:
    """Runs a broker with its data in the folder. Yields its address. `registry`: HOST:PORT of its
    schema registry, which Apache Kafka does not have.
    """
    folder.mkdir(parents=True, exist_ok=True)
    address = f"127.0.0.1:{free_port()}"
    command = _kafka_command(folder, address, KAFKA_LIBS) if KAFKA_LIBS else _ottla_command(folder, address, registry)
    with (folder / "broker.out").open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    try:
        _wait_until_ready(process, address, folder / "broker.out")
        yield address
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        finally:
            process.kill()


def _wait_until_ready(process: subprocess.Popen[bytes], address: str, out: Path) -> None:
    """Waits until the broker responds to a client."""
    client = AdminClient({"bootstrap.servers": address, "log_level": 0})
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with suppress(KafkaException):
            client.list_topics(timeout=1)
            return
    raise AssertionError(f"the broker does not answer at {address}:\n{out.read_text()[-4000:]}")


def _ottla_command(folder: Path, address: str, registry: str) -> list[str]:
    settings = {"listeners": f"PLAINTEXT://{address}", "log.dirs": str(folder / "data"), "node.id": "1"}
    if registry:
        settings["schema.registry.listener"] = registry
    return [
        sys.executable,
        "-m",
        "ottla_broker",
        *(part for name, value in settings.items() for part in ("--set", f"{name}={value}")),
    ]


def _kafka_command(folder: Path, address: str, libs: str) -> list[str]:
    controller = f"127.0.0.1:{free_port()}"
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://{address},CONTROLLER://{controller}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{controller}",
        "log.dirs": str(folder / "data"),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    properties = folder / "server.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    java = ["java", "-Xmx512m", "-cp", f"{libs}/*"]
    done = subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", str(properties)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [*java, "kafka.Kafka", str(properties)]
