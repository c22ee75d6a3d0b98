"""The example of change data capture: a real PostgreSQL, Debezium on Kafka Connect, and an Iceberg
table that equals the database's table although the worker and the driver are killed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from examples.cdc import compare, connect
from examples.cdc.database import Database, NotInstalled, database, find_programs
from examples.cdc.orders import OrderChanges, add_pauses
from ottla_spark.definition import load_pipeline
from ottla_spark.streaming.cases import run_cases
from tests.jars import QUIET, kafka_classpath, skip_or_fail_in_ci
from tests.ports import free_port
from tests.spark.conftest import Runner, Topics
from tests.spark.dying_driver import run_driver
from tests.waiting import eventually

EXAMPLE = connect.DEBEZIUM.parent
TOPIC = "shop.public.orders"
VERSION = "2.7.4.Final"


@pytest.fixture(scope="module")
def classpath() -> str:
    """The jars of the example's pom.xml."""
    dependencies = ElementTree.parse(connect.DEBEZIUM / "pom.xml").getroot().iter("dependency")
    return kafka_classpath(VERSION, [":".join(part.text or "" for part in it) for it in dependencies])


@pytest.fixture
def server() -> Iterator[Database]:
    try:
        find_programs()
    except NotInstalled as reason:
        skip_or_fail_in_ci(f"{reason} (`make postgresql` as root)")
    # Not in pytest's folder, which the server's user cannot enter.
    folder = Path(tempfile.mkdtemp(prefix="ottla-cdc-"))
    try:
        with database(folder, free_port()) as running:
            yield running
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Worker:
    """How a Connect worker is started, and the connector that it runs."""

    folder: Path
    classpath: str
    bootstrap: str
    database_port: int
    port: int

    @contextmanager
    def run(self) -> Iterator[subprocess.Popen[bytes]]:
        """A worker while the block runs. At the end it is killed with SIGKILL, so that it cannot
        commit anything more.
        """
        process = connect.start_worker(self.folder, self.classpath, self.bootstrap, self.port, QUIET)
        try:
            config = json.loads((connect.DEBEZIUM / "connector.json").read_text())
            connect.put_connector(process, config | {"database.port": str(self.database_port)}, self.port)
            yield process
        finally:
            process.kill()
            process.wait(30)


def changes(topics: Topics) -> list[dict[str, Any]]:
    return [it.json for it in topics.read(TOPIC)]


def has_committed_offsets(topics: Topics) -> bool:
    """True if Connect has committed a position after the snapshot. A worker that is killed before
    that takes another snapshot.
    """
    if "connect-offset" not in topics.admin.list_topics(timeout=30).topics:
        return False
    return any(it.value and "snapshot" not in it.json for it in topics.read("connect-offset"))


def run_pipeline_until_killed(pipeline: Runner, spec: dict[str, Any]) -> None:
    """Kills the driver when it has committed a batch to the table, but not to the checkpoint."""
    document = yaml.safe_load((EXAMPLE / "pipeline.yaml").read_text()) | {"spec": spec}
    file, progress = pipeline.folder / "pipeline.yaml", pipeline.folder / "killed.jsonl"
    file.write_text(yaml.safe_dump(document))
    code = run_driver(
        [("ottla_spark.streaming.iceberg_writer:commit_rows", "after")],
        *("run", "--pipeline", str(file), "--bootstrap", pipeline.topics.address, "--progress", str(progress)),
        *("--checkpoint", str(pipeline.folder / "checkpoint"), "--master", "local[2,2]"),
    )
    assert code == -signal.SIGKILL, progress.read_text()[-500:] if progress.exists() else os.strerror(abs(code))


@pytest.mark.slow
def test_iceberg_table_equals_the_table_of_the_database(
    pipeline: Runner, topics: Topics, server: Database, classpath: str
) -> None:
    topics.create(TOPIC, partitions=3)
    spec = yaml.safe_load((EXAMPLE / "pipeline.yaml").read_text())["spec"]
    spec["sources"]["changes"]["maxOffsetsPerTrigger"] = 400
    spec["spark"]["conf"] = {"spark.sql.shuffle.partitions": "2"}
    worker = Worker(pipeline.folder, classpath, topics.address, server.port, free_port())
    orders = OrderChanges()
    server.run(orders.transactions(60))
    with ThreadPoolExecutor() as executor:
        with worker.run():
            eventually(lambda: topics.read(TOPIC), within_s=60, message="the snapshot's records")
            writing = executor.submit(server.run, add_pauses(orders.transactions(500)))
            eventually(lambda: has_committed_offsets(topics), within_s=60, message="committed offsets of the connector")
        writing.result()
        killing = executor.submit(run_pipeline_until_killed, pipeline, spec)
        with worker.run():
            server.run([*orders.transactions(100), "INSERT INTO orders VALUES (0, '', 'last', 1, NULL, now());"])
            is_last = {"id": 0}.items()
            eventually(
                lambda: any(is_last <= (it["after"] or {}).items() for it in changes(topics)),
                within_s=120,
                message=lambda: (pipeline.folder / "connect.log").read_text()[-2000:],
            )
        killing.result()
    pipeline(spec | {"trigger": {"availableNow": True}}, name="orders")
    assert {it["op"] for it in changes(topics)} == {"r", "c", "u", "d"}
    expected = compare.orders_of_database(server)
    assert expected.total() > 100
    assert compare.orders_of_lake(pipeline.folder) == expected
    # After the pipeline: a JVM that has begun without the connector's jars cannot load them later.
    assert run_cases(load_pipeline(EXAMPLE / "pipeline.yaml"), EXAMPLE / "pipeline.test", print) == 0
