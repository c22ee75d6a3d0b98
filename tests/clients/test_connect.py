"""Kafka Connect: a file is read into a topic and written to another file, by standalone and
distributed workers, and exactly once by a worker that is killed. MirrorMaker 2 copies a topic.
"""

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclBindingFilter, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clients.conftest import NewBroker
from tests.clients.test_sasl import MODULES, acl, login_settings
from tests.jars import CONNECT, MIRROR_MAKER, java_command, kafka_classpath
from tests.ports import free_port
from tests.waiting import eventually

CONVERTERS = "org.apache.kafka.connect.converters"
WORKER = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "offset.flush.interval.ms": "500",
    "plugin.discovery": "service_load",
}
STARTS_WITHIN_S = 60.0


@pytest.fixture(scope="module")
def connect_classpath() -> str:
    return kafka_classpath(coordinates=CONNECT)


@contextmanager
def run_worker(
    classpath: str, mode: str, folder: Path, settings: Mapping[str, str], *connectors: Path, is_killed: bool = False
) -> Iterator[str]:
    """Runs a Connect worker; yields its REST address. Its output is in `folder`/worker.log. At the
    end it is stopped, or killed."""
    port = free_port()
    folder.mkdir()
    listening = {"listeners": f"http://127.0.0.1:{port}"}
    properties = write_properties(folder / "worker.properties", WORKER | listening | dict(settings))
    command = java_command(classpath, f"org.apache.kafka.connect.cli.{mode}", str(properties), *map(str, connectors))
    with (folder / "worker.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            (process.kill if is_killed else process.terminate)()
            process.wait(30)


def write_properties(path: Path, settings: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


def distributed_settings(broker: BrokerProcess, name: str) -> dict[str, str]:
    """Settings of a worker in the group `name`, whose topics begin with this name."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": name, "scheduled.rebalance.max.delay.ms": "0"}
    for kind in ("config", "offset", "status"):
        settings |= {f"{kind}.storage.topic": f"{name}-{kind}", f"{kind}.storage.replication.factor": "1"}
    return settings


def rest(method: str, url: str, body: object = None) -> Any:
    """The response's JSON; None while the worker does not respond, rebalances, or does not know the
    resource.
    """
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method), timeout=30) as answer:
            return json.loads(answer.read() or b"true")
    except urllib.error.HTTPError as refused:
        if refused.code in (404, 409):
            return None
        raise AssertionError(f"{method} {url}: {refused.code} {refused.read().decode()}") from refused
    except OSError:
        return None


def source_config(name: str, file: Path, **more: str) -> dict[str, str]:
    return {"connector.class": "FileStreamSource", "tasks.max": "1", "file": str(file), "topic": name} | more


def sink_config(name: str, file: Path) -> dict[str, str]:
    return {"connector.class": "FileStreamSink", "tasks.max": "2", "file": str(file), "topics": name}


def read_lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_standalone_worker_copies_a_file(
    connect_classpath: str, broker: BrokerProcess, name: str, tmp_path: Path
) -> None:
    read, written = tmp_path / "read", tmp_path / "written"
    read.write_text("".join(f"line {number}\n" for number in range(100)))
    connectors = [
        write_properties(tmp_path / "source.properties", {"name": f"{name}-source"} | source_config(name, read)),
        write_properties(tmp_path / "sink.properties", {"name": f"{name}-sink"} | sink_config(name, written)),
    ]
    settings = {"bootstrap.servers": broker.bootstrap, "offset.storage.file.filename": str(tmp_path / "offsets")}
    with run_worker(connect_classpath, "ConnectStandalone", tmp_path / "worker", settings, *connectors):
        eventually(lambda: read_lines(written) == read_lines(read), within_s=STARTS_WITHIN_S)
        with read.open("a") as more:
            more.write("one more\n")
        eventually(lambda: read_lines(written) == read_lines(read))


def test_distributed_workers_take_over_and_reset_offsets(
    connect_classpath: str, broker: BrokerProcess, name: str, tmp_path: Path
) -> None:
    read, written = tmp_path / "read", tmp_path / "written"
    read.write_text("".join(f"line {number}\n" for number in range(100)))
    settings = distributed_settings(broker, name)
    with ExitStack() as first, ExitStack() as second:
        one = first.enter_context(run_worker(connect_classpath, "ConnectDistributed", tmp_path / "one", settings))
        eventually(lambda: rest("GET", f"{one}/connectors") == [], within_s=STARTS_WITHIN_S)
        two = second.enter_context(run_worker(connect_classpath, "ConnectDistributed", tmp_path / "two", settings))
        topic_creation = {"topic.creation.default.replication.factor": "1", "topic.creation.default.partitions": "2"}
        eventually(lambda: create_connector(one, f"{name}-source", source_config(name, read, **topic_creation)))
        admin = rd.admin_client(broker.bootstrap)
        # The sink's consumer would create the topic too, with other settings.
        eventually(lambda: name in admin.list_topics(timeout=20).topics, within_s=60)
        eventually(lambda: create_connector(one, f"{name}-sink", sink_config(name, written)))
        eventually(lambda: sorted(read_lines(written)) == sorted(read_lines(read)), within_s=60)
        eventually(lambda: rest("GET", f"{two}/connectors"), within_s=STARTS_WITHIN_S)
        first.close()  # the second worker takes over the first one's tasks
        with read.open("a") as more:
            more.write("one more\n")
        eventually(lambda: "one more" in read_lines(written), within_s=60)
        eventually(lambda: committed_count(two, f"{name}-sink") == 101)
        eventually(lambda: rest("PUT", f"{two}/connectors/{name}-sink/stop"))
        eventually(lambda: not rest("GET", f"{two}/connectors/{name}-sink/status")["tasks"])
        eventually(lambda: rest("DELETE", f"{two}/connectors/{name}-sink/offsets"))
        assert committed_count(two, f"{name}-sink") == 0
    topics = admin.list_topics(timeout=20).topics
    assert len(topics[name].partitions) == 2
    assert len(topics[f"{name}-offset"].partitions) == 25


@pytest.mark.slow
def test_exactly_once_source_that_is_killed_repeats_no_line(
    connect_classpath: str, broker: BrokerProcess, name: str, tmp_path: Path
) -> None:
    read = tmp_path / "read"
    read.write_text("".join(f"line {number}\n" for number in range(100)))
    settings = distributed_settings(broker, name) | {
        "exactly.once.source.support": "enabled",
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "500",
    }
    rd.create_topic(broker.bootstrap, name)

    def read_copies() -> list[str]:
        found = rd.consume(broker.bootstrap, name, isolation_level="read_committed")
        return [(each.value() or b"").decode() for each in found]

    with run_worker(connect_classpath, "ConnectDistributed", tmp_path / "one", settings, is_killed=True) as one:
        eventually(lambda: rest("GET", f"{one}/connectors") == [], within_s=STARTS_WITHIN_S)
        required = {"exactly.once.support": "required", "transaction.boundary": "poll"}
        eventually(lambda: create_connector(one, f"{name}-source", source_config(name, read, **required)))
        eventually(lambda: read_copies() == read_lines(read), within_s=STARTS_WITHIN_S)
    with read.open("a") as more:
        more.write("one more\n")
    with run_worker(connect_classpath, "ConnectDistributed", tmp_path / "two", settings):
        eventually(lambda: read_copies()[-1] == "one more", within_s=STARTS_WITHIN_S)
    assert read_copies() == read_lines(read)


def create_connector(address: str, connector: str, config: dict[str, str]) -> object:
    return rest("POST", f"{address}/connectors", {"name": connector, "config": config})


def committed_count(address: str, connector: str) -> int:
    """The number of records that the sink has committed; 0 while the worker does not know it."""
    answer = rest("GET", f"{address}/connectors/{connector}/offsets")
    return sum(each["offset"]["kafka_offset"] for each in answer["offsets"]) if answer else 0


def test_worker_and_mirror_maker_log_in(new_broker: NewBroker, tmp_path: Path) -> None:
    """MirrorMaker 2 copies a topic and its access rules within one cluster. The copy has the
    source's alias in its name.
    """
    classpath = kafka_classpath(coordinates=(*CONNECT, *MIRROR_MAKER))
    login_port = free_port()
    with new_broker(start=False) as broker:
        broker.settings |= login_settings(broker.port, login_port) | {"super.users": "User:ANONYMOUS;User:bob"}
        broker.start()
        login = {
            "bootstrap.servers": f"127.0.0.1:{login_port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{MODULES}.plain.PlainLoginModule required username="bob" password="bobs";',
        }
        of_worker = {f"{prefix}{key}": value for prefix in ("", "producer.", "admin.") for key, value in login.items()}
        cluster_aliases = {"source.cluster": "site", "target.cluster": "copy"}
        mirror = {
            "name": "mirror",
            "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
            **{f"{side}.alias": alias for side, alias in cluster_aliases.items()},
            **{f"{side}.{key}": value for side in cluster_aliases for key, value in login.items()},
            **dict.fromkeys(("key.converter", "value.converter"), f"{CONVERTERS}.ByteArrayConverter"),
            "topics": "orders",
            "replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "sync.topic.acls.interval.seconds": "1",
        }
        rd.create_topic(broker.bootstrap, "orders")
        sent = rd.numbered_messages(0, 100)
        rd.produce(broker.bootstrap, "orders", sent)
        admin = rd.admin_client(broker.bootstrap)
        for made in admin.create_acls([acl(ResourceType.TOPIC, "orders", AclOperation.READ)]).values():
            made.result(30)
        settings = {**of_worker, "offset.storage.file.filename": str(tmp_path / "offsets")}
        connector = write_properties(tmp_path / "mirror.properties", mirror)
        with run_worker(classpath, "ConnectStandalone", tmp_path / "worker", settings, connector):
            eventually(lambda: "site.orders" in admin.list_topics(timeout=20).topics, within_s=STARTS_WITHIN_S)
            copied = rd.consume(broker.bootstrap, "site.orders", len(sent))
            any_of_copy = AclBindingFilter(
                ResourceType.TOPIC,
                "site.orders",
                ResourcePatternType.LITERAL,
                None,
                None,
                AclOperation.ANY,
                AclPermissionType.ANY,
            )
            eventually(lambda: [it.principal for it in admin.describe_acls(any_of_copy).result(30)] == ["User:alice"])
    assert [message.value() for message in copied] == [message.value for message in sent]
