"""One cluster on this machine: its brokers, topics, mirrors, pipelines and loads, brought to what the files say and kept there."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ottla_operator.kafka.client import InvalidAddress, KafkaClient, Unreachable, connect
from ottla_operator.local.brokers import Brokers
from ottla_operator.local.documents import Document
from ottla_operator.local.home import Home
from ottla_operator.local.live_view import LiveView
from ottla_operator.local.loading import Load
from ottla_operator.local.memory import Memory
from ottla_operator.local.mirrors import Mirrors, MirrorWish
from ottla_operator.local.pipelines import PipelineRun
from ottla_operator.local.tending import Tending
from ottla_operator.local.topics import Topics
from ottla_operator.plan.broker_processes import BrokerProcessPlan, broker_count_for_defaults, with_replication_defaults
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.pipeline import Pipeline
from ottla_operator.resources.topic import Topic

CONNECT_AGAIN_S = 0.2
ALL_READY_WITHIN_S = 15.0
ROLLED_WITHIN_S = 15.0
ASK_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Wish:
    """What the files say about one cluster. `document`: the Cluster's own. `topic_documents`: those of its topics, by the topics' names. `mirrors`: those that copy into it. `brokers`: plans of those that are wanted, and of those that are still there.
    `loads`: scripts beside the files."""

    cluster: Cluster
    document: Document
    brokers: tuple[BrokerProcessPlan, ...]
    topics: tuple[Topic, ...]
    topic_documents: Mapping[str, Document]
    mirrors: tuple[MirrorWish, ...]
    pipelines: Mapping[str, tuple[Pipeline, Document]]
    loads: tuple[Path, ...]


@dataclass(slots=True)
class ClusterRun:
    home: Home
    board: LiveView
    wish: Wish
    _memory: Memory = field(init=False)
    _brokers: Brokers = field(init=False)
    _tending: Tending = field(init=False)
    _pipelines: dict[str, tuple[PipelineRun, asyncio.Task[None]]] = field(default_factory=dict)
    _loads: list[Load] = field(default_factory=list)
    _topics: Topics = field(init=False)
    _mirrors: Mirrors = field(init=False)
    _link: KafkaClient | None = None
    _tended: asyncio.Task[None] | None = None
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self._memory = Memory.of(self.home.cluster(self.name))
        self._brokers = Brokers(self.home, self.board, self.wish.document)
        self._tending = Tending(self.wish.cluster, self._brokers, self._memory, self.board)
        self._topics = Topics(self.name, self.board, self.wish.topics, self.wish.topic_documents)
        self._mirrors = Mirrors(self.name, self.board, self.wish.mirrors)

    @property
    def name(self) -> str:
        return self.wish.document.name

    @property
    def bootstrap(self) -> str:
        return ",".join(it.address for it in self.wish.brokers if it.id <= self.wish.cluster.spec.replicas)

    async def run(self) -> None:
        """Until it is cancelled. Processes go on then, until `stop`."""
        self._start_brokers()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._first_ready())
            tasks.create_task(self._with_brokers(tasks))

    async def change(self, wish: Wish) -> None:
        """Brings the running cluster to another wish."""
        async with self._changing:
            self.wish = wish
            self._brokers.document = wish.document
            self._start_brokers()
            await self._brokers.restart_fallen()
            self._tending.want(wish.cluster)
            if self._link is not None:
                await self._rolled()
            self._topics.want(wish.topics, wish.topic_documents)
            self._mirrors.wanted = wish.mirrors
            self._mirrors.changed.set()
            if self._topics.settled.is_set():
                await self._change_pipelines()

    async def stop(self) -> bool:
        """Pipelines first, then brokers, those together. Whether all ended by themselves."""
        if self._tended is not None:  # or it might be about to start a broker again
            self._tended.cancel()
            await asyncio.gather(self._tended, return_exceptions=True)
        await asyncio.gather(*(load.stop() for load in self._loads))
        clean = await asyncio.gather(*(run.stop() for run, _ in self._pipelines.values()))
        return all([*clean, await self._brokers.stop()])

    def kill(self) -> None:
        for run, _ in self._pipelines.values():
            run.keeper.kill()
        self._brokers.kill()

    def _start_brokers(self) -> None:
        there = self._memory.present | set(range(1, self.wish.cluster.spec.replicas + 1))
        if there != self._memory.present:
            self._memory.present = there
            self._memory.save()
        count = broker_count_for_defaults(self.wish.cluster.spec.replicas, self._memory.spread)
        self._brokers.take(
            with_replication_defaults(it, self.wish.cluster, count) for it in self.wish.brokers if it.id in there
        )

    async def _rolled(self) -> None:
        """New topics follow new settings; but a roll that is held up must not hold up everything else."""
        try:
            async with asyncio.timeout(ROLLED_WITHIN_S):
                await self._tending.rolled.wait()
        except TimeoutError:
            pass

    async def _first_ready(self) -> None:
        await self._brokers.one_ready()
        self.board.first("first broker ready")
        if (count := self.wish.cluster.spec.replicas) > 1 and await self._brokers.wait(self._tending.wanted_ids):
            self.board.first(f"{count} brokers ready")

    async def _with_brokers(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            try:
                await self._brokers.one_ready()
                # A topic that is made while few brokers are there has its replicas on those few.
                await self._brokers.wait(self._tending.wanted_ids, ALL_READY_WITHIN_S)
                async with connect(self._brokers.bootstrap, ASK_WITHIN_S) as link:
                    self._link = link
                    self._tended = tasks.create_task(self._tending.keep(link))
                    keeping = tasks.create_task(self._topics.keep(link))
                    tasks.create_task(self._topics.count(link))
                    tasks.create_task(self._mirrors.keep(link))
                    await self._topics.settled.wait()
                    for script in self.wish.loads:
                        load = Load(script, self.home.path / self.name, self.bootstrap, self.board)
                        self._loads.append(load)
                        tasks.create_task(load.run(self._topics.ids))
                    async with self._changing:
                        await self._change_pipelines()
                    await keeping
            except (Unreachable, InvalidAddress):  # the last one that served has fallen meanwhile
                await asyncio.sleep(CONNECT_AGAIN_S)

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
        return PipelineRun(resource, document, folder, self.bootstrap, self.board)
