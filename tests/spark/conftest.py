"""A broker for all tests of pipelines, and fixtures to run pipelines."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla_operator.resources.common import API_VERSION
from ottla_spark.definition import PipelineDefinition, parse_pipeline
from ottla_spark.run import run_pipeline
from ottla_spark.runtime_environment import RuntimeEnvironment
from ottla_spark.streaming import query_runner
from tests.brokers import BROKERS
from tests.ports import free_port
from tests.postgresql import PASSWORD, USER, PostgreSQL, run_postgresql
from tests.progress_log import read_progress_log
from tests.spark.spark_jvm import add_all_sinks, archive_of_all_sinks, shared_jvm_conf, write_archive

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """A consumed record. `key`: as text, with � for bytes that are not UTF-8. `value`: empty also
    for a record without a value.
    """

    key: str | None
    value: bytes
    headers: Mapping[str, str | None]
    raw_key: bytes | None = None

    @property
    def json(self) -> Any:
        return json.loads(self.value)


@dataclass(slots=True)
class Topics:
    """Creates, fills and reads topics."""

    address: str
    admin: AdminClient = field(init=False)
    producer: Producer = field(init=False)

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.address})
        self.producer = Producer(
            {"bootstrap.servers": self.address, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
        )

    def create(self, *names: str, partitions: int = 1, **config: str) -> None:
        new_topics = [
            NewTopic(name, partitions, 1, config={k.replace("_", "."): v for k, v in config.items()}) for name in names
        ]
        for created in self.admin.create_topics(new_topics).values():
            created.result(timeout=30)

    def delete(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result(timeout=30)

    def write(self, topic: str, *values: object, key: str | bytes | None = None) -> None:
        """Produces each value: bytes and None unchanged, other values as JSON."""
        for value in values:
            raw = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            self.producer.produce(topic, raw, key)
        assert self.producer.flush(30) == 0

    def read(self, topic: str) -> list[Message]:
        """All records of a topic, up to its end."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "reader",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,  # after so long without records the end is reported
            }
        )
        partitions = list(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        found, ended = [], 0
        while ended < len(partitions):
            for message in consumer.consume(1_000, timeout=0.2):
                if message.error():
                    ended += 1
                    continue
                key, headers = message.key(), message.headers() or []
                pairs = {name: None if value is None else value.decode() for name, value in headers}
                text = None if key is None else key.decode(errors="replace")
                found.append(Message(text, message.value() or b"", pairs, key))
        consumer.close()
        return found

    def committed_offsets(self, group: str, topic: str, partition_count: int) -> dict[int, int]:
        """Partition → offset that the group has committed; librdkafka's −1001 for none."""
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": group})
        found = consumer.committed(
            [TopicPartition(topic, partition) for partition in range(partition_count)], timeout=30
        )
        consumer.close()
        return {at.partition: at.offset for at in found}


@pytest.fixture(scope="session", autouse=True)
def jars_of_all_sinks() -> Iterator[None]:
    """Has all pipelines load the jars of all sinks: the tests of a process share one JVM, whose
    class path is fixed when its first pipeline starts.
    """
    with pytest.MonkeyPatch.context() as patch:
        add_all_sinks(patch.setattr)
        yield


@pytest.fixture(scope="session")
def jvm_conf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Spark's configuration of the JVM that all tests of a process share."""
    archive = archive_of_all_sinks(tmp_path_factory.mktemp("classes"))
    yield shared_jvm_conf(archive)
    write_archive(archive)


@pytest.fixture(scope="session")
def registry_address() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="session")
def address(broker_kind: str, registry_address: str) -> Iterator[str]:
    """Address of a broker with its own defaults: Ottla, or Apache Kafka with --against kafka."""
    settings: dict[str, Any] = {"schema_registry_listener": registry_address} if broker_kind == "ottla" else {}
    with BROKERS[broker_kind](test_settings=False, **settings) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="session")
def topics(address: str) -> Topics:
    return Topics(address)


@pytest.fixture(scope="session")
def registry(address: str, broker_kind: str, registry_address: str) -> str:
    """URL of the broker's schema registry."""
    if broker_kind == "kafka":
        pytest.skip("Apache Kafka has no schema registry")
    return f"http://{registry_address}"


def pipeline_document(spec: Mapping[str, Any], name: str = "p", *, is_endless: bool = False) -> dict[str, Any]:
    """A Pipeline resource. Unless it is endless, it reads the existing records and ends. Fields of
    `spec` override those that every pipeline of the tests has.
    """
    trigger = {} if is_endless else {"trigger": {"availableNow": True}}
    more = {"clusterRef": {"name": "c"}, **trigger, "spark": {"conf": {"spark.sql.shuffle.partitions": "2"}}}
    return {
        "apiVersion": API_VERSION,
        "kind": "Pipeline",
        "metadata": {"name": name},
        "spec": {**more, **spec},
    }


def parse_spec(spec: Mapping[str, Any], folder: Path) -> PipelineDefinition:
    """The pipeline of this spec, whose files are in the folder."""
    return parse_pipeline(pipeline_document(spec, is_endless=True), folder)


@dataclass(slots=True)
class Runner:
    """Runs pipelines in this process, each test in its own folder."""

    topics: Topics
    folder: Path
    conf: Mapping[str, str]
    registry: str = ""
    secrets: Path | None = None
    checkpoint_on_s3: str = ""
    lines: list[Line] = field(default_factory=list)

    @property
    def checkpoint(self) -> str:
        return self.checkpoint_on_s3 or str(self.folder / "checkpoint")

    def __call__(
        self, spec_: Mapping[str, Any], *, name: str = "p", stop_when: Callable[[list[Line]], bool] | None = None
    ) -> list[Line]:
        """Runs a pipeline and returns the lines of its progress log.

        Without `stop_when` the pipeline ends by itself. With it, the pipeline is stopped when
        `stop_when` is True for the lines so far.
        """
        document = pipeline_document(spec_, name, is_endless=stop_when is not None)
        progress = self.folder / "progress.jsonl"
        progress.unlink(missing_ok=True)
        environment = RuntimeEnvironment(
            self.topics.address,
            self.checkpoint,
            progress=progress,
            log=self.folder / "spark.log",
            master="local[2,2]",
            registry=self.registry,
            conf=self.conf,
            secrets=self.secrets,
        )
        stop_requested, ended = threading.Event(), threading.Event()
        follower = threading.Thread(target=_follow, args=(progress, stop_when, stop_requested, ended))
        follower.start()
        try:
            run_pipeline(parse_pipeline(document, self.folder), environment, stop_requested)
        finally:
            ended.set()
            follower.join()
            self.lines = read_progress_log(progress)
        return self.lines


def _follow(
    progress: Path,
    stop_when: Callable[[list[Line]], bool] | None,
    stop_requested: threading.Event,
    ended: threading.Event,
) -> None:
    while stop_when is not None and not ended.wait(0.05):
        if progress.exists() and stop_when(read_progress_log(progress)):
            stop_requested.set()
            return


@pytest.fixture(scope="session")
def database() -> Iterator[PostgreSQL]:
    with run_postgresql() as running:
        yield running


@pytest.fixture
def pipeline(topics: Topics, tmp_path: Path, jvm_conf: dict[str, str]) -> Runner:
    return Runner(topics, tmp_path, jvm_conf)


@pytest.fixture
def query_plans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Spark's physical plans of the queries of this test that have ended, in their order. A query
    starts when the one before has ended.
    """
    plans: list[str] = []
    start_query = query_runner.QueryRunner._start_query

    def run_query(*arguments: Any) -> Any:
        query = start_query(*arguments)
        query.awaitTermination()
        plans.append(query._jsq.explainInternal(False))
        return query

    monkeypatch.setattr(query_runner.QueryRunner, "_start_query", run_query)
    return plans


@pytest.fixture
def login(pipeline: Runner) -> None:
    """The Secret of the database's user."""
    folder = pipeline.folder / "secrets" / "db"
    folder.mkdir(parents=True)
    (folder / "user").write_text(f"{USER}\n")
    (folder / "password").write_text(f"{PASSWORD}\n")
    pipeline.secrets = folder.parent


def jdbc(database: PostgreSQL, table: str) -> dict[str, Any]:
    """The target of a JDBC sink. It needs the fixture `login`."""
    return {"jdbc": {"url": database.url, "table": table, "secretRef": {"name": "db"}}}


def count_written(lines: list[Line]) -> int:
    """Number of rows that sinks have written, by the lines of a progress log."""
    return sum(line.get("written", 0) for line in lines)


EVENTS: Mapping[str, Any] = {
    "topic": "",
    "format": {"type": "json", "schema": "id INT NOT NULL, at TIMESTAMP, city STRING"},
}


def events(topic: str, **more: object) -> dict[str, Any]:
    """A source whose records have an id, a time and a city."""
    return {**EVENTS, "topic": topic, **more}


def ids(topics: Topics, topic: str) -> list[int]:
    return sorted(message.json["id"] for message in topics.read(topic))
