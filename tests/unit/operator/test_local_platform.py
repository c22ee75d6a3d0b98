"""Reconciles on this machine: reports on the terminal, and what becomes of topics that are removed
from the files.
"""

from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

import pytest

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.kafka.client import Unreachable
from ottla_operator.local import status_printer
from ottla_operator.local.documents import Document
from ottla_operator.local.home import Home
from ottla_operator.local.live_view import LiveView, State
from ottla_operator.local.platform import LocalPlatform, local_key
from ottla_operator.plan.conditions import Conditions, Reconciling, Stalled, kstatus
from ottla_operator.reconcile.controller import Controller
from ottla_operator.reconcile.platform import Blocked
from ottla_operator.reconcile.watch_cache import Key, WatchCache
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.mirror import Mirror
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline
from ottla_operator.resources.validation import FieldPath
from tests.unit.async_tests import async_test
from tests.unit.operator import samples
from tests.unit.operator.topic_brokers import TopicBrokers


class LocalPlatformWorld:
    """`woken`: kinds and keys that the platform passed to `on_process_change`."""

    def __init__(self, folder: Path) -> None:
        self.messages: list[str] = []
        self.woken: list[tuple[str, Key]] = []
        self.brokers = TopicBrokers()
        self.view = LiveView(say=lambda text, kind: self.messages.append(text))
        self.cache = WatchCache()
        self.platform = LocalPlatform(Home(folder), self.view, self.cache, lambda *it: self.woken.append(it))
        self.controller = Controller(self.platform, self.cache)
        self.folder = folder
        self.update(samples.cluster())

    def update(self, resource: Json) -> Json:
        """Creates or replaces a resource, and returns it with its metadata."""
        metadata = {"name": resource["metadata"]["name"], "namespace": "default", "uid": str(uuid4()), "generation": 1}
        body = {**resource, "metadata": metadata, "status": {}}
        self.controller.update(body)
        return body

    def add_topic(self, name: str, **spec: Any) -> Json:
        """Creates a Topic that is deleted with its resource."""
        return self.update(samples.topic(name, deletionPolicy="Delete", **spec))

    def remove(self, resource: Json) -> None:
        self.controller.update(resource, is_deleted=True)

    async def reconcile(self) -> None:
        with self.brokers.serve(self.platform):
            await self.controller.topics.reconcile(local_key("demo"))


@async_test
async def test_a_topic_is_deleted_with_its_resource_once_brokers_answer(tmp_path: Path) -> None:
    world = LocalPlatformWorld(tmp_path)
    flights = world.add_topic("flights")
    world.add_topic("sums")
    await world.reconcile()
    assert world.messages == ["topic flights created", "topic sums created"]
    world.remove(flights)
    world.brokers.deletion_errors = [KafkaError(ErrorCode.not_controller), Unreachable("gone")]
    for _ in range(3):
        await world.reconcile()
    assert world.brokers.topics.keys() == {"sums"}
    assert world.messages[-1] == "cluster demo: deleted with their Topics (deletionPolicy: Delete): flights"


@async_test
async def test_a_deletion_that_brokers_reject_is_reported_once(tmp_path: Path) -> None:
    world = LocalPlatformWorld(tmp_path)
    flights = world.add_topic("flights")
    await world.reconcile()
    world.remove(flights)
    world.brokers.deletion_errors = [KafkaError(ErrorCode.topic_deletion_disabled, "delete.topic.enable is false")] * 2
    await world.reconcile()
    await world.reconcile()
    assert world.brokers.topics.keys() == {"flights"}
    assert world.messages[1:] == [
        "cluster demo: cannot delete topic flights of the deleted Topic flights: delete.topic.enable is false"
    ]


@async_test
async def test_a_topic_that_another_resource_owns_now_stays(tmp_path: Path) -> None:
    world = LocalPlatformWorld(tmp_path)
    flights, sums = world.add_topic("flights"), world.add_topic("sums")
    await world.reconcile()
    world.remove(flights)
    world.remove(sums)
    world.add_topic("renamed", topicName="flights")
    await world.reconcile()
    assert world.brokers.topics.keys() == {"flights"}


@async_test
async def test_a_status_becomes_conditions_and_a_row(tmp_path: Path) -> None:
    world = LocalPlatformWorld(tmp_path)
    flights = world.add_topic("flights")
    await world.platform.write_status(
        flights, Conditions(Reconciling("CreatingTopic", "creating topic flights"), 1), {}
    )
    row = world.view.topics["demo", "flights"]
    assert (row.state, row.note, kstatus(flights)) == (State.starting, "creating topic flights", "InProgress")
    await world.platform.write_status(flights, Conditions(Stalled("InvalidSpec", "no"), 1), {"partitions": 3})
    assert (row.state, row.note, kstatus(flights)) == (State.failed, "no", "Failed")
    assert flights["status"]["partitions"] == 3
    assert world.woken == [("Topic", local_key("demo"))] * 2


@async_test
async def test_an_error_is_printed_once_with_the_line_of_the_setting(tmp_path: Path) -> None:
    world = LocalPlatformWorld(tmp_path)
    data = samples.topic("flights", config={"retention.ms": "soon"})
    lines: dict[FieldPath, int] = {(): 1, ("spec",): 4, ("spec", "config", "retention.ms"): 7}
    files = [Document(tmp_path / "a.yaml", samples.cluster(), {(): 1}), Document(tmp_path / "a.yaml", data, lines)]
    world.platform.load(files)
    flights = world.update(data)
    for _ in range(2):
        await world.platform.record_event(
            flights, "RejectedByBrokers", "topic 'flights': retention.ms: no", is_warning=True
        )
    assert world.messages == [f"{tmp_path}/a.yaml:7: topic 'flights': retention.ms: no"]


@async_test
async def test_a_resource_that_waits_for_a_long_time_is_reported(tmp_path: Path) -> None:
    world = LocalPlatformWorld(tmp_path)
    cluster, now = world.update(samples.cluster()), 100.0
    waiting = Conditions(Reconciling("RollingRestart", "waiting: flights-0"), 1)
    with mock.patch("time.monotonic", lambda: now):
        await world.platform.write_status(cluster, waiting, {})
        now += status_printer.REPORT_WAITING_S - 1
        await world.platform.write_status(cluster, waiting, {})
        assert not world.messages
        now += 1
        for _ in range(2):
            await world.platform.write_status(cluster, waiting, {})
    assert world.messages == ["cluster demo: waiting: flights-0"]


@async_test
async def test_pipelines_and_mirrors_do_not_read_a_secured_cluster_by_the_inter_broker_listener(tmp_path: Path) -> None:
    """A pipeline or a mirror without a login would be a super user there."""
    world = LocalPlatformWorld(tmp_path)
    listeners = [{"name": "clients", "port": 9094, "authentication": "SCRAM"}]
    data = samples.cluster(listeners=listeners, authorization={"type": "ACL"})
    pipeline = Document(tmp_path / "all.yaml", samples.pipeline(), {(): 1})
    world.platform.load([Document(tmp_path / "all.yaml", data, {(): 1}), pipeline])
    secured = Cluster.parse(data)
    with pytest.raises(Blocked, match="User pipeline-hourly of Cluster demo does not exist yet"):
        await world.platform.plan_launch(samples.pipeline(), Pipeline.parse(samples.pipeline()), secured)
    source = {"clusterRef": {"name": "demo"}}
    with pytest.raises(Blocked, match="has no listener with PLAINTEXT"):
        world.platform.source_bootstrap(secured, Mirror.parse(samples.mirror(source=source)))
    credentials = {"mechanism": "SCRAM-SHA-512", "secretRef": {"name": "login"}}
    mirror = Mirror.parse(samples.mirror(source={**source, "credentials": credentials}))
    assert world.platform.source_bootstrap(secured, mirror) == "127.0.0.1:9094"
