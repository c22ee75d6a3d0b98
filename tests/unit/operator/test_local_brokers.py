"""The brokers of a cluster on this machine: what is remembered, what is started again, what does not fit together. Small scripts stand for brokers."""

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from unittest import mock

import pytest

from ottla_operator.local import broker as local_broker
from ottla_operator.local import ports
from ottla_operator.local.brokers import Brokers
from ottla_operator.local.documents import Document
from ottla_operator.local.fitting import misfits
from ottla_operator.local.home import Home
from ottla_operator.local.live_view import LiveView
from ottla_operator.local.memory import Memory
from ottla_operator.plan.broker_processes import BrokerProcessPlan, plan_broker_processes
from ottla_operator.resources.cluster import Cluster
from tests.unit.operator import samples
from tests.unit.operator.loop import on_loop

SCRIPT = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print(' ready on x', flush=True); signal.pause()"
REFUSES = "import sys; print('no'); sys.exit(2)"


def script(broker: BrokerProcessPlan) -> Sequence[str]:
    """`num.partitions=0` stands for a setting that a broker refuses."""
    return [sys.executable, "-S", "-c", REFUSES if broker.settings.get("num.partitions") == "0" else SCRIPT]


def plans(folder: Path, replicas: int = 3, config: Mapping[str, str] | None = None) -> tuple[BrokerProcessPlan, ...]:
    return plan_broker_processes([Cluster.parse(samples.cluster(replicas=replicas, config=config or {}))], folder)


def brokers(folder: Path, said: list[str]) -> Brokers:
    document = Document(folder / "x.yaml", samples.cluster(), {(): 1})
    return Brokers(Home(folder), LiveView(say=lambda text, kind: said.append(text)), document)


@pytest.fixture(autouse=True)
def _scripts() -> Iterator[None]:
    """They bind nothing: whoever has the ports is in nobody's way."""
    with mock.patch.object(local_broker, "command", script), mock.patch.object(ports, "in_use", lambda _: None):
        yield


@on_loop
async def test_all_are_started_and_stopped_together(tmp_path: Path) -> None:
    said: list[str] = []
    made = brokers(tmp_path, said)
    made.take(plans(tmp_path))
    assert await made.wait([1, 2, 3], 20)
    assert made.bootstrap.count(":") == 3
    assert json.loads((tmp_path / "demo" / "2" / "settings.json").read_text())["node.id"] == "2"
    assert await made.stop()
    assert said == []
    assert not made.ready


@on_loop
async def test_those_that_run_go_on_with_what_they_were_started_with(tmp_path: Path) -> None:
    made = brokers(tmp_path, [])
    made.take(plans(tmp_path))
    assert await made.wait([1, 2, 3], 20)
    made.take(plans(tmp_path, config={"num.partitions": "7"}))
    await made.restart_fallen()
    assert [
        it.started["num.partitions"] if it.started and "num.partitions" in it.started else None
        for it in made.by_id.values()
    ] == [None] * 3
    assert all(it.ready for it in made.by_id.values())
    await made.by_id[2].restart()
    assert await made.wait([2], 20)
    assert made.by_id[2].started == made.by_id[2].plan.settings
    await made.stop()


@on_loop
async def test_one_that_refused_its_settings_is_started_with_better_ones_at_once(tmp_path: Path) -> None:
    said: list[str] = []
    made = brokers(tmp_path, said)
    made.take(plans(tmp_path, 1, {"num.partitions": "0"}))
    assert not await made.wait([1], 20)
    assert said == ["broker demo-1: no"]
    made.take(plans(tmp_path, 1, {"num.partitions": "3"}))
    await made.restart_fallen()
    assert await made.wait([1], 20)
    assert said[-2:] == ["broker demo-1 is started again with its new settings", "broker demo-1 is back"]
    await made.stop()


@on_loop
async def test_what_was_left_behind_is_taken_over_whatever_it_was_started_with(tmp_path: Path) -> None:
    first = brokers(tmp_path, [])
    first.take(plans(tmp_path, 1))
    assert await first.wait([1], 20)
    said: list[str] = []
    second = brokers(tmp_path, said)
    second.take(plans(tmp_path, 1, {"num.partitions": "3"}))
    assert await second.wait([1], 20)
    assert "was still running" in said[0]
    assert second.by_id[1].started == plans(tmp_path, 1)[0].settings
    await second.stop()
    await first.stop()


@on_loop
async def test_one_that_is_let_go_is_gone_from_the_board_and_its_folder_stays(tmp_path: Path) -> None:
    made = brokers(tmp_path, [])
    made.take(plans(tmp_path, 2))
    assert await made.wait([1, 2], 20)
    await made.let_go(2)
    assert list(made.by_id) == [1]
    assert list(made.board.brokers) == ["demo-1"]
    assert (tmp_path / "demo" / "2" / "settings.json").exists()
    await made.stop()


@on_loop
async def test_waiting_for_brokers_has_an_end(tmp_path: Path) -> None:
    made = brokers(tmp_path, [])
    with mock.patch.object(
        local_broker, "command", lambda _: [sys.executable, "-S", "-c", "import signal; signal.pause()"]
    ):
        made.take(plans(tmp_path, 1))
        assert not await made.wait([1], 0.05)
    await asyncio.gather(made.stop())


def test_memory_is_found_again(tmp_path: Path) -> None:
    memory = Memory.of(tmp_path / "demo")
    assert memory.present == set()
    memory.present, memory.spread, memory.settings, memory.throttled = {1, 2}, {1}, {"a": "b"}, ["t"]
    memory.save()
    assert Memory.of(tmp_path / "demo") == memory


@pytest.mark.parametrize(
    "text", ["", "[]", '{"present": 1}', '{"present": ["x"], "spread": [], "settings": {}, "throttled": []}']
)
def test_a_memory_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "brokers.json").write_text(text)
    assert Memory.of(tmp_path) == Memory(tmp_path / "brokers.json")


def test_a_topic_with_more_replicas_than_brokers_is_told_with_both_lines() -> None:
    where = Path("a.yaml")
    cluster = Document(where, samples.cluster(replicas=2), {(): 1, ("spec", "replicas"): 5})
    fits, does_not = (
        Document(where, samples.topic(name, replicas=it), {(): 9, ("spec", "replicas"): 14})
        for name, it in (("a", 2), ("b", 3))
    )
    assert list(misfits([cluster, fits, does_not])) == [
        "a.yaml:14: spec.replicas: 3 replicas need as many brokers; Cluster demo has 2, in a.yaml:5"
    ]
