"""The brokers of a cluster as processes. Small scripts stand in for brokers."""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from ottla_operator.local import brokers as local_brokers
from ottla_operator.local import processes
from ottla_operator.local.brokers import BrokerProcesses
from ottla_operator.local.documents import Document, find_incompatible_resources
from ottla_operator.local.home import Home, read_state, write_state
from ottla_operator.local.live_view import LiveView
from ottla_operator.plan.broker_processes import BrokerProcessPlan, plan_broker_processes
from ottla_operator.reconcile.platform import ReconcileState
from ottla_operator.resources.cluster import Cluster
from tests.unit.async_tests import async_test
from tests.unit.operator import samples

SCRIPT = (
    "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print(' ready on x', "
    "flush=True); signal.pause()"
)
REJECTS_SETTINGS = "import sys; print('no'); sys.exit(2)"
NEVER_READY = "import signal; signal.pause()"


def script_command(plan: BrokerProcessPlan, console: str, registry: str) -> Sequence[str]:
    """A script instead of `broker_command`. num.partitions=0 stands for a setting with which a
    broker does not start, 9 for one with which it hangs.
    """
    script = {"0": REJECTS_SETTINGS, "9": NEVER_READY}.get(plan.settings.get("num.partitions", ""), SCRIPT)
    return [sys.executable, "-S", "-c", script]


class BrokerProcessWorld:
    """`messages`: printed messages, without times. `changed`: set when a broker becomes ready or
    unready.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.messages: list[str] = []
        self.changed = asyncio.Event()
        self.view = LiveView(say=lambda text, kind: self.messages.append(text.partition(" after ")[0]))
        document = Document(folder / "x.yaml", samples.cluster(), {(): 1})
        self.brokers = BrokerProcesses("demo", Home(folder), self.view, self.changed.set, document, ())

    def prepare(self, replicas: int = 3, config: Mapping[str, str] | None = None, **rejected: str) -> None:
        cluster = Cluster.parse(samples.cluster(replicas=replicas, config=config or {}))
        existing = {"demo": read_state(self.folder / "demo")[0]}
        self.brokers.plans = plan_broker_processes([cluster], self.folder, existing)
        self.brokers.prepare(cluster, rejected)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    def ready(self) -> set[int]:
        return {id_ for id_, it in self.brokers.brokers.items() if it.is_ready}


@pytest.fixture(autouse=True)
def _scripts() -> Iterator[None]:
    """Brokers are scripts that listen on no port and serve no console."""
    with (
        mock.patch.object(local_brokers, "broker_command", script_command),
        mock.patch.object(local_brokers, "find_console_address", lambda _: ""),
        mock.patch.object(processes, "find_port_conflict", lambda _: None),
    ):
        yield


@async_test
async def test_all_brokers_are_started_and_stopped_together(tmp_path: Path) -> None:
    world = BrokerProcessWorld(tmp_path)
    world.prepare()
    await world.until(lambda: world.ready() == {1, 2, 3})
    assert len(world.brokers.access.addresses) == 3
    assert json.loads((tmp_path / "demo" / "2" / "settings.json").read_text())["node.id"] == "2"
    world.prepare()
    assert await world.brokers.stop()
    reached = [it for it in world.messages if not it.startswith("console of")]
    assert reached == ["first broker ready", "3 brokers ready"]
    assert not world.ready()


@async_test
async def test_running_brokers_keep_their_settings_until_they_are_restarted(tmp_path: Path) -> None:
    world = BrokerProcessWorld(tmp_path)
    world.prepare()
    await world.until(lambda: world.ready() == {1, 2, 3})
    world.prepare(config={"num.partitions": "7"})
    started_with = {id_: it.started_with or {} for id_, it in world.brokers.brokers.items()}
    assert [it.get("num.partitions") for it in started_with.values()] == [None] * 3
    assert [it["num.partitions"] for it in world.brokers.desired.values()] == ["7"] * 3
    assert world.ready() == {1, 2, 3}
    await world.brokers.restart(2)
    await world.until(lambda: world.ready() == {1, 2, 3})
    assert world.brokers.brokers[2].started_with == world.brokers.desired[2]
    await world.brokers.stop()


@async_test
async def test_a_broker_that_did_not_start_is_ready_again_after_a_restart_with_valid_settings(tmp_path: Path) -> None:
    world = BrokerProcessWorld(tmp_path)
    world.prepare(1, {"num.partitions": "0"})
    await world.until(lambda: bool(world.messages))
    assert world.messages == ["broker demo-1: no"]
    assert world.brokers.brokers[1].problem == "no"
    world.prepare(1, {"num.partitions": "3"})
    await world.brokers.restart(1)
    await world.until(lambda: world.ready() == {1})
    assert world.messages[1] == "broker demo-1 is ready again"
    await world.brokers.stop()


@async_test
async def test_a_rejected_setting_is_not_used_at_the_next_start(tmp_path: Path) -> None:
    world = BrokerProcessWorld(tmp_path)
    world.prepare(1)
    await world.until(lambda: world.ready() == {1})
    config: dict[str, Any] = {"num.partitions": "0"}
    world.prepare(1, config)
    world.brokers.prepare(Cluster.parse(samples.cluster(replicas=1, config=config)), config)
    await world.brokers.restart(1)
    await world.until(lambda: world.ready() == {1})
    await world.brokers.stop()


@async_test
async def test_an_orphaned_broker_is_adopted_with_the_settings_it_was_started_with(tmp_path: Path) -> None:
    first = BrokerProcessWorld(tmp_path)
    first.prepare(1)
    await first.until(lambda: first.ready() == {1})
    second = BrokerProcessWorld(tmp_path)
    second.prepare(1, {"num.partitions": "3"})
    await second.until(lambda: second.ready() == {1})
    assert "was still running" in second.messages[0]
    assert second.brokers.brokers[1].started_with == first.brokers.desired[1]
    await second.brokers.stop()
    await first.brokers.stop()


@async_test
async def test_a_process_is_outdated_until_it_is_started_after_restart_at(tmp_path: Path) -> None:
    world = BrokerProcessWorld(tmp_path)
    world.prepare(1)
    await world.until(lambda: world.ready() == {1})
    spec = samples.cluster(replicas=1, restartAt="2026-01-02T03:04:05Z")
    world.brokers.prepare(Cluster.parse(spec), {})
    assert world.brokers.brokers[1].outdated == "spec.restartAt 2026-01-02T03:04:05Z"
    await world.brokers.restart(1)
    await world.until(lambda: world.ready() == {1})
    assert world.brokers.brokers[1].outdated == ""
    again = BrokerProcessWorld(tmp_path)
    again.brokers.plans = world.brokers.plans
    again.brokers.prepare(Cluster.parse(spec), {})
    assert again.brokers.brokers[1].outdated == "", "another `ottla up` knows when the process was started"
    await again.until(lambda: again.ready() == {1})
    await again.brokers.stop()
    await world.brokers.stop()


@async_test
async def test_a_removed_broker_is_gone_from_the_view_and_its_folder_stays(tmp_path: Path) -> None:
    world = BrokerProcessWorld(tmp_path)
    world.prepare(2)
    await world.until(lambda: world.ready() == {1, 2})
    await world.brokers.save(1, ReconcileState())
    assert list(world.brokers.brokers) == [1]
    assert list(world.view.brokers) == ["demo-1"]
    assert read_state(tmp_path / "demo") == (1, ReconcileState())
    assert (tmp_path / "demo" / "2" / "settings.json").exists()
    await world.brokers.stop()


@async_test
async def test_brokers_of_a_smaller_spec_run_until_they_are_removed(tmp_path: Path) -> None:
    world = BrokerProcessWorld(tmp_path)
    world.prepare(2)
    await world.until(lambda: world.ready() == {1, 2})
    world.prepare(1)
    assert (world.brokers.count, list(world.brokers.desired)) == (2, [1])
    await world.brokers.stop()
    again = BrokerProcessWorld(tmp_path)
    again.prepare(1)
    await again.until(lambda: again.ready() == {1, 2})
    await again.brokers.stop()


@async_test
async def test_a_broker_that_hangs_is_unready_since_its_start(tmp_path: Path) -> None:
    world = BrokerProcessWorld(tmp_path)
    world.prepare(1, {"num.partitions": "9"})
    await asyncio.sleep(0.05)
    assert not world.ready() and world.brokers.brokers[1].unready_for_s >= 0.05
    await world.brokers.stop()


def test_the_state_is_read_back(tmp_path: Path) -> None:
    state = ReconcileState(frozenset({1}), {"a": "b"}, frozenset({"t"}))
    write_state(tmp_path, 2, state)
    assert read_state(tmp_path) == (2, state)


def test_a_cluster_may_be_founded_while_no_disk_has_a_cluster_id(tmp_path: Path) -> None:
    assert read_state(tmp_path) == (0, ReconcileState(is_founding=True))
    disk = tmp_path / "2" / "data"
    disk.mkdir(parents=True)
    (disk / "meta.properties").write_text("version=1\nnode.id=2\ndirectory.id=AAAA\n")
    assert read_state(tmp_path) == (0, ReconcileState(is_founding=True)), "a broker started, and joined no cluster"
    (disk / "meta.properties").write_text("version=1\nnode.id=2\ncluster.id=c\ndirectory.id=AAAA\n")
    assert read_state(tmp_path) == (0, ReconcileState())


@async_test
async def test_the_first_broker_founds_the_cluster_until_its_id_is_known(tmp_path: Path) -> None:
    world = BrokerProcessWorld(tmp_path)
    world.prepare()
    assert [it.get("cluster.found") for it in world.brokers.desired.values()] == ["true", None, None]
    again = BrokerProcessWorld(tmp_path)
    again.prepare()
    assert read_state(tmp_path / "demo")[1].is_founding, "another `ottla up` continues it"
    await again.brokers.stop()
    await world.brokers.save(3, replace(world.brokers.state, is_founding=False))
    world.prepare()
    assert [it.get("cluster.found") for it in world.brokers.desired.values()] == [None, None, None]
    await world.brokers.stop()


@pytest.mark.parametrize(
    "text", ["", "[]", '{"present": 1}', '{"present": ["x"], "spread": [], "settings": {}, "throttled": []}']
)
def test_an_unreadable_state_is_empty(tmp_path: Path, text: str) -> None:
    (tmp_path / "brokers.json").write_text(text)
    assert read_state(tmp_path) == (0, ReconcileState(is_founding=True))


def test_a_topic_with_more_replicas_than_brokers_is_reported_with_both_lines() -> None:
    where = Path("a.yaml")
    cluster = Document(where, samples.cluster(replicas=2), {(): 1, ("spec", "replicas"): 5})
    fits, does_not = (
        Document(where, samples.topic(name, replicas=it), {(): 9, ("spec", "replicas"): 14})
        for name, it in (("a", 2), ("b", 3))
    )
    assert list(find_incompatible_resources([cluster, fits, does_not])) == [
        "a.yaml:14: spec.replicas: 3 replicas need as many brokers; Cluster demo has 2, in a.yaml:5"
    ]
