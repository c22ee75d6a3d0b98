"""One cluster on this machine: its brokers, topics, pipelines and loads, brought to what the files say and kept there."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ottla_operator.brokers.link import Link, Unreachable, connected
from ottla_operator.local import ports
from ottla_operator.local.board import Board, BrokerRow, State
from ottla_operator.local.documents import Document
from ottla_operator.local.home import Home
from ottla_operator.local.keeper import AGAIN, Keeper
from ottla_operator.local.loading import Load
from ottla_operator.local.pipelines import PipelineRun
from ottla_operator.local.topics import Topics
from ottla_operator.plan.brokers import BrokerPlan
from ottla_operator.resources.pipeline import Pipeline
from ottla_operator.resources.topic import Topic

CONNECT_AGAIN_S = 0.2


@dataclass(frozen=True, slots=True)
class Wish:
    """What the files say about one cluster. `document`: the Cluster's own. `loads`: scripts beside the files."""

    document: Document
    brokers: tuple[BrokerPlan, ...]
    topics: tuple[Topic, ...]
    pipelines: Mapping[str, tuple[Pipeline, Document]]
    loads: tuple[Path, ...]


@dataclass(slots=True)
class ClusterRun:
    home: Home
    board: Board
    wish: Wish
    _brokers: dict[int, tuple[BrokerPlan, Keeper, asyncio.Task[None]]] = field(default_factory=dict)
    _pipelines: dict[str, tuple[PipelineRun, asyncio.Task[None]]] = field(default_factory=dict)
    _loads: list[Load] = field(default_factory=list)
    _topics: Topics = field(init=False)
    _link: Link | None = None
    _said: dict[str, str] = field(default_factory=dict)
    """Broker → what was last said to be wrong with it, so that it is said once."""
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self._topics = Topics(self.name, self.board, self.wish.topics)

    @property
    def name(self) -> str:
        return self.wish.document.name

    @property
    def bootstrap(self) -> str:
        return ",".join(plan.address for plan in self.wish.brokers)

    async def run(self) -> None:
        """Until it is cancelled. Processes go on then, until `stop`."""
        for plan in self.wish.brokers:
            self._start_broker(plan)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._first_ready())
            tasks.create_task(self._with_brokers(tasks))

    async def change(self, wish: Wish) -> None:
        """Brings the running cluster to another wish. Brokers whose settings changed are started again one after the other."""
        async with self._changing:
            gone = [it for it in self.wish.topics if it.name not in {new.name for new in wish.topics}]
            self.wish = wish
            await self._change_brokers()
            if self._link is not None:
                await self._topics.remove(self._link, gone)
            self._topics.wanted = wish.topics
            self._topics.changed.set()
            if self._topics.settled.is_set():
                await self._change_pipelines()

    async def stop(self) -> bool:
        """Pipelines first, then brokers, those together. Whether all ended by themselves."""
        await asyncio.gather(*(load.stop() for load in self._loads))
        clean = await asyncio.gather(*(run.stop() for run, _ in self._pipelines.values()))
        clean += await asyncio.gather(*(keeper.stop() for _, keeper, _ in self._brokers.values()))
        return all(clean)

    def kill(self) -> None:
        for run, _ in self._pipelines.values():
            run.keeper.kill()
        for _, keeper, _ in self._brokers.values():
            keeper.kill()

    async def _first_ready(self) -> None:
        await self._one_ready()
        self.board.first("first broker ready")

    async def _one_ready(self) -> str:
        """Waits for a broker of ours that serves; the addresses of all that do. Another cluster may have our port: nothing of ours must go there."""
        waits = [asyncio.create_task(keeper.ready.wait()) for _, keeper, _ in self._brokers.values()]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for it in waits:
                it.cancel()
        return ",".join(plan.address for plan, keeper, _ in self._brokers.values() if keeper.ready.is_set())

    async def _with_brokers(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            try:
                async with connected(await self._one_ready()) as link:
                    self._link = link
                    keeping = tasks.create_task(self._topics.keep(link))
                    tasks.create_task(self._topics.count(link))
                    await self._topics.settled.wait()
                    for script in self.wish.loads:
                        load = Load(script, self.home.path / self.name, self.bootstrap, self.board)
                        self._loads.append(load)
                        tasks.create_task(load.run(self._topics.ids))
                    async with self._changing:
                        await self._change_pipelines()
                    await keeping
            except Unreachable:
                await asyncio.sleep(CONNECT_AGAIN_S)

    def _start_broker(self, plan: BrokerPlan) -> None:
        row = self.board.brokers[plan.label] = BrokerRow(plan.label, plan.address)
        folder = self.home.broker(plan.cluster, plan.id)
        keeper = Keeper(
            folder=folder,
            command=broker_command(plan),
            hash=plan.hash,
            tell=lambda state, note, pid: self._tell_broker(row, state, note, pid),
            is_ready=lambda output: " ready on " in output,
            in_the_way=lambda: next((reason for port in plan.ports.values() if (reason := ports.in_use(port))), None),
        )
        self._brokers[plan.id] = plan, keeper, asyncio.create_task(keeper.run())

    def _tell_broker(self, row: BrokerRow, state: State, note: str, pid: int | None) -> None:
        if state is State.ready and row.state is State.waiting:
            self.board.say(f"broker {row.label} was still running (pid {pid}): taken over", "info")
        elif state in (State.retrying, State.failed) and (why := note.split(AGAIN)[0]) != self._said.get(row.label):
            self._said[row.label] = why
            self.board.say(f"broker {row.label}: {self._in_the_files(note)}", "bad")
        elif state is State.ready and self._said.pop(row.label, ""):
            self.board.say(f"broker {row.label} is back", "good")
        row.state, row.note, row.pid = state, note, pid

    def _in_the_files(self, note: str) -> str:
        """Says where in the YAML the setting or port stands that a broker complains about."""
        document = self.wish.document
        for key in document.data["spec"].get("config", {}):
            if key in note:
                return f"{note} (spec.config in {document.where(('spec', 'config', key))})"
        if note.startswith("port ") and "listeners" in document.data["spec"]:
            return f"{note} (spec.listeners in {document.where(('spec', 'listeners'))})"
        return note

    async def _change_brokers(self) -> None:
        for plan in self.wish.brokers:
            if plan.id not in self._brokers:
                self._start_broker(plan)
            elif self._brokers[plan.id][0].hash != plan.hash:
                _, keeper, task = self._brokers[plan.id]
                self.board.say(f"broker {plan.label} is started again with its new settings", "info")
                await keeper.stop()
                await task
                self._start_broker(plan)
                await self._ready_or_ended(self._brokers[plan.id][1])

    async def _ready_or_ended(self, keeper: Keeper) -> None:
        waits = [asyncio.create_task(keeper.ready.wait()), asyncio.create_task(keeper.ended.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for it in waits:
            it.cancel()

    async def _change_pipelines(self) -> None:
        wanted = {
            name: self._pipeline(resource, document) for name, (resource, document) in self.wish.pipelines.items()
        }
        for name, (run, task) in list(self._pipelines.items()):
            if name not in wanted or wanted[name].hash != run.hash:
                await run.stop()
                await task
                del self._pipelines[name]
                if name not in wanted:
                    del self.board.pipelines[self.name, name]
                    self.board.say(f"pipeline {name} is no longer described: stopped", "info")
        for name, run in wanted.items():
            if name not in self._pipelines:
                self._pipelines[name] = run, asyncio.create_task(run.run())

    def _pipeline(self, resource: Pipeline, document: Document) -> PipelineRun:
        folder = self.home.pipeline(self.name, resource.name)
        return PipelineRun(resource, document.data, document.file.resolve(), folder, self.bootstrap, self.board)


def broker_command(plan: BrokerPlan) -> Sequence[str]:
    return [
        sys.executable,
        "-m",
        "ottla_broker",
        *(part for key, value in plan.settings.items() for part in ("--set", f"{key}={value}")),
    ]
