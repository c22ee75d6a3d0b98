"""`ottla up`: reads the files, runs what they describe, follows their edits, and stops everything in order."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ottla_operator.local import certificates, documents, loading, secrets
from ottla_operator.local.cluster import ClusterRun, Wish
from ottla_operator.local.documents import Document, InvalidFiles
from ottla_operator.local.fitting import misfits
from ottla_operator.local.following import STEPS, edits
from ottla_operator.local.home import Home
from ottla_operator.local.live_view import LiveView
from ottla_operator.local.memory import Memory
from ottla_operator.local.mirrors import MirrorWish
from ottla_operator.plan import broker_processes, listener_certificates
from ottla_operator.resources import validation
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.mirror import Mirror
from ottla_operator.resources.pipeline import Pipeline
from ottla_operator.resources.topic import Topic

PASSED_OVER = ("User",)


@dataclass(slots=True)
class UpRunner:
    """`inputs`: files and folders as given. `load`: whether load scripts are run."""

    inputs: Sequence[Path]
    home: Home
    board: LiveView
    load: bool = True
    _documents: list[Document] = field(default_factory=list)
    _clusters: dict[str, tuple[ClusterRun, asyncio.Task[None]]] = field(default_factory=dict)

    def read_files(self) -> None:
        """Reads and checks the files; BadInput says what is wrong."""
        self._documents = self._fitting()
        if not any(it.kind == "Cluster" for it in self._documents):
            raise InvalidFiles([f"{', '.join(map(str, self.inputs))}: there is no Cluster to start"])

    def _fitting(self) -> list[Document]:
        """What the files say, if it can be. BadInput."""
        found = documents.read_files(self.inputs, held={it.file for it in self._documents})
        if wrong := list(misfits(found)):
            raise InvalidFiles(wrong)
        return found

    async def run(self) -> bool:
        """Until SIGINT, SIGTERM or SIGHUP. Whether everything ended by itself. A second signal kills what still runs."""
        ending = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._signalled, ending)
        self._say_what_is_passed_over()
        for wish in self._wishes():
            self._start(wish)
        following = asyncio.create_task(self._follow(ending))
        ended = asyncio.create_task(ending.wait())
        tasks = [following, ended, *(task for _, task in self._clusters.values())]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        following.cancel()
        clean = await self._stop()
        for task in done - {ended}:
            task.result()  # a fault of our own: everything is stopped, and now it is told
        return clean

    def _start(self, wish: Wish) -> None:
        run = ClusterRun(self.home, self.board, wish)
        self._clusters[run.name] = run, asyncio.create_task(run.run())

    async def _stop(self) -> bool:
        self.board.say("stopping pipelines and brokers", "info")
        clean = await asyncio.gather(*(run.stop() for run, _ in self._clusters.values()))
        for _, task in self._clusters.values():
            task.cancel()
        await asyncio.gather(*(task for _, task in self._clusters.values()), return_exceptions=True)
        return all(clean)

    def _signalled(self, ending: asyncio.Event) -> None:
        if ending.is_set():
            for run, _ in self._clusters.values():
                run.kill()
        ending.set()

    async def _follow(self, ending: asyncio.Event) -> None:
        """Takes in edits of the files, and of the Python steps beside them. What is wrong with an edit is said, and everything stays as it was."""
        wrong: tuple[str, ...] = ()
        async for names in edits(self.inputs, self.home.path, ending):
            try:
                new = self._fitting()
                self._check_change(new)
            except InvalidFiles as bad:
                wrong = self._say_wrong(bad, wrong)
                continue
            if wrong:
                wrong = ()
                self.board.say("the files are good again", "good")
            steps = any(name.endswith(STEPS) for name in names)
            if steps or [it.data for it in new] != [it.data for it in self._documents]:
                self._documents = new
                await self._change()

    def _say_wrong(self, bad: InvalidFiles, before: tuple[str, ...]) -> tuple[str, ...]:
        """Says what is wrong, once: editors write a file several times."""
        if bad.lines != before:
            for line in bad.lines:
                self.board.say(line, "bad")
            self.board.say("the files are not good as they are; everything goes on as before", "bad")
        return bad.lines

    def _check_change(self, new: Sequence[Document]) -> None:
        old = {(it.kind, it.name): it for it in self._documents}
        wrong = [
            it.says(problem)
            for it in new
            if (was := old.get((it.kind, it.name))) and not secrets.is_secret(it.data)
            for problem in validation.validate_update(it.data, was.data)
        ]
        if wrong:
            raise InvalidFiles(wrong)

    async def _change(self) -> None:
        wishes = {wish.document.name: wish for wish in self._wishes()}
        for name in list(self._clusters):
            if name not in wishes:
                run, task = self._clusters.pop(name)
                self.board.say(f"cluster {name} is no longer described: its brokers are stopped, its data stay", "warn")
                await run.stop()
                task.cancel()
        for name, wish in wishes.items():
            if name in self._clusters:
                await self._clusters[name][0].change(wish)
            else:
                self._start(wish)

    def _wishes(self) -> list[Wish]:
        clusters = {it.name: (Cluster.parse(it.data), it) for it in self._documents if it.kind == "Cluster"}
        home = self.home.path.resolve()
        found = secrets.seen(it.data for it in self._documents if it.kind == secrets.KIND)
        still_there = {name: max(Memory.of(home / name).present, default=0) for name in clusters}
        folders = {
            name: certificates.written(home / name, made)
            for name, (cluster, _) in clusters.items()
            if (made := listener_certificates.read_certificates(cluster, found)) is not None
        }
        topics = [(Topic.parse(it.data), it) for it in self._documents if it.kind == "Topic"]
        plans = broker_processes.plan_broker_processes(
            [cluster for cluster, _ in clusters.values()], home, still_there, folders
        )
        return [
            Wish(
                cluster=cluster,
                document=document,
                brokers=tuple(plan for plan in plans if plan.cluster == name),
                topics=tuple(it for it, _ in topics if it.spec.cluster_ref.name == name),
                topic_documents={it.topic_name: at for it, at in topics if it.spec.cluster_ref.name == name},
                mirrors=tuple(
                    MirrorWish(mirror, mirror.spec.source.bootstrap or _addresses(plans, clusters, mirror), found)
                    for it in self._documents
                    if it.kind == "Mirror" and (mirror := Mirror.parse(it.data)).spec.target.cluster_ref.name == name
                ),
                pipelines={
                    it.name: (pipeline, it)
                    for it in self._documents
                    if it.kind == "Pipeline" and (pipeline := Pipeline.parse(it.data)).spec.cluster_ref.name == name
                },
                loads=self._loads_beside(document),
            )
            for name, (cluster, document) in clusters.items()
        ]

    def _loads_beside(self, cluster: Document) -> tuple[Path, ...]:
        """The scripts beside the cluster's file: the one that has the cluster's name, and the one without a name, which is the first cluster's there."""
        folder = cluster.file.parent
        first = next(it for it in self._documents if it.kind == "Cluster" and it.file.parent == folder)
        scripts = [loading.script_of(cluster.name), *([loading.SCRIPT] if first is cluster else [])]
        return tuple(folder / name for name in scripts if self.load and (folder / name).is_file())

    def _say_what_is_passed_over(self) -> None:
        for document in self._documents:
            if document.kind in PASSED_OVER:
                self.board.say(
                    f"{document.where(())}: {document.kind} {document.name} is passed over: not built yet", "warn"
                )
            if document.kind == "Cluster":
                for it in broker_processes.unsupported_fields(Cluster.parse(document.data)):
                    self.board.say(f"{document.where(it.field)}: {it.reason}", "warn")


def _addresses(
    plans: Sequence[broker_processes.BrokerProcessPlan],
    clusters: Mapping[str, tuple[Cluster, Document]],
    mirror: Mirror,
) -> str:
    """Of the brokers of a source that is described beside it."""
    assert mirror.spec.source.cluster_ref is not None  # or it has addresses: the schema wants one of them
    source = mirror.spec.source.cluster_ref.name
    count = clusters[source][0].spec.replicas
    them = [it for it in plans if it.cluster == source and it.id <= count]
    return ",".join((mirror.spec.source.tls and it.tls_address) or it.address for it in them)


def default_home() -> Path:
    """$OTTLA_HOME, or .ottla in the current folder."""
    return Path(os.environ.get("OTTLA_HOME") or ".ottla")
