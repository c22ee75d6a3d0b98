"""`ottla up`: reads the files, reconciles what they describe, follows their edits, and stops
everything in order.
"""

import asyncio
import contextlib
import signal
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ottla_operator.local import documents, load, secrets
from ottla_operator.local.documents import Document, InvalidFiles
from ottla_operator.local.file_watcher import PYTHON_SUFFIX, watch_edits
from ottla_operator.local.home import Home
from ottla_operator.local.lake_documents import write_lake_documents
from ottla_operator.local.live_view import LiveView
from ottla_operator.local.load import LoadScript
from ottla_operator.local.load_limit import LoadLimit
from ottla_operator.local.login_files import read_login
from ottla_operator.local.pipelines import POLL_S, find_missing_prerequisite
from ottla_operator.local.platform import LocalPlatform, local_key, local_user_uid
from ottla_operator.local.status_printer import pipeline_row_key
from ottla_operator.local.topic_metrics import TopicMetrics
from ottla_operator.plan.conditions import kstatus
from ottla_operator.plan.password_rotation import CLIENT_PROPERTIES
from ottla_operator.reconcile.controller import Controller
from ottla_operator.reconcile.watch_cache import Key, WatchCache
from ottla_operator.resources.common import format_time
from ottla_operator.resources.group import stored_group_name
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline
from ottla_operator.resources.schema_resource import stored_subject_name
from ottla_operator.resources.topic import stored_topic_name
from ottla_operator.resources.validation import validate_update

RECONCILED_KINDS: Final = ("Cluster", "Topic", "Group", "Schema", "AccessPolicy", "User", "Mirror", "Pipeline")
SETTLE_TIMEOUT_S: Final = 15.0
"""How long topics wait until all brokers are up and have their new settings, whose defaults topics
are created with. Then they are created without the brokers that cannot start.
"""
MIRROR_RESYNC_S: Final = 1.0


class UpRunner:
    """`inputs`: files and folders as given. `runs_loads`: whether load scripts are run."""

    def __init__(self, inputs: Sequence[Path], home: Home, view: LiveView, runs_loads: bool = True) -> None:
        cache = WatchCache()
        self.inputs = inputs
        self.home = home
        self.view = view
        self.platform = LocalPlatform(home, view, cache, self._on_process_change)
        self.controller = Controller(self.platform, cache, mirror_resync_s=MIRROR_RESYNC_S)
        self._runs_loads = runs_loads
        self._documents: list[Document] = []
        self._resources: dict[tuple[str, str], Json] = {}
        """The applied resources, by kind and name."""
        self._loads: list[LoadScript] = []
        self._metrics: dict[str, tuple[TopicMetrics, asyncio.Task[None]]] = {}
        self._tasks = asyncio.TaskGroup()

    def read_files(self) -> None:
        """Reads and validates the files, and the passwords of their Clusters. Raises
        InvalidFiles.
        """
        self._documents = documents.read_files(self.inputs)
        if not any(it.kind == "Cluster" for it in self._documents):
            raise InvalidFiles([f"{', '.join(map(str, self.inputs))}: no Cluster is described"])
        self._validate_logins(self._documents)

    async def run(self) -> bool:
        """Runs until SIGINT, SIGTERM or SIGHUP, which stops all processes. A second signal kills
        those that are still running. Returns False if processes had to be killed."""
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal, stop)
        self.controller.start()
        working = asyncio.create_task(self._work(stop))
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait([working, stopped], return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        working.cancel()
        is_clean = await self._stop()
        with contextlib.suppress(asyncio.CancelledError):
            await working  # its error, which would be a bug, is raised once everything is stopped
        return is_clean

    def _on_signal(self, stop: asyncio.Event) -> None:
        if stop.is_set():
            self.platform.pipelines.kill()
            for brokers in self.platform.clusters.values():
                brokers.kill()
        stop.set()

    async def _work(self, stop: asyncio.Event) -> None:
        async with self._tasks:
            self._tasks.create_task(self._follow_edits(stop))
            for document in self._documents:
                if document.kind == "Cluster" and self._runs_loads:
                    for script in self._load_scripts(document):
                        self._tasks.create_task(self._run_load(document.name, script))

    async def _stop(self) -> bool:
        """Stops loads and pipelines, then all brokers at once. False if pipelines or brokers had to
        be killed.
        """
        self.view.say("stopping pipelines and brokers", "info")
        await self.controller.stop()
        await asyncio.gather(*(it.stop() for it in self._loads))
        is_clean = await self.platform.pipelines.stop()
        for metrics, measuring in self._metrics.values():
            measuring.cancel()
            await metrics.measure_for_summary()
        return all([is_clean, *await asyncio.gather(*(it.stop() for it in self.platform.clusters.values()))])

    def _on_process_change(self, kind: str, key: Key) -> None:
        match kind:
            case "Cluster":
                self.controller.wake_cluster(key)
            case "Pipeline":
                self.controller.wake_pipeline(key)
            case "Topic":
                self.controller.wake_waiting_pipelines(key)

    # --- applying the files

    async def _follow_edits(self, stop: asyncio.Event) -> None:
        """Applies the files, and then edits of them and of Python steps beside them. Invalid files
        change nothing.
        """
        await self._apply()
        reported: tuple[str, ...] = ()
        async for names in watch_edits(self.inputs, self.home.path, stop, self._schema_files):
            try:
                new = documents.read_files(self.inputs, had_resources={it.file for it in self._documents})
                self._validate_updates(new)
                self._validate_logins(new)
            except InvalidFiles as invalid:
                reported = self._print_invalid(invalid, reported)
                continue
            if reported:
                reported = ()
                self.view.say("the files are valid again", "success")
            if any(it.endswith(PYTHON_SUFFIX) for it in names) or [it.data for it in new] != [
                it.data for it in self._documents
            ]:
                self._documents = new
                await self._apply()

    def _schema_files(self) -> list[Path]:
        return [it.schema_file for it in self._documents if it.schema_file is not None]

    def _print_invalid(self, invalid: InvalidFiles, reported: tuple[str, ...]) -> tuple[str, ...]:
        """Prints problems once: editors write a file several times."""
        if invalid.lines != reported:
            for line in invalid.lines:
                self.view.say(line, "error")
            self.view.say("the files are invalid; nothing is changed", "error")
        return invalid.lines

    def _validate_updates(self, new: Sequence[Document]) -> None:
        old = {(it.kind, it.name): it for it in self._documents}
        problems = [
            it.describe(problem)
            for it in new
            if (before := old.get((it.kind, it.name))) and not secrets.is_secret(it.data)
            for problem in validate_update(it.data, before.data)
        ]
        if problems:
            raise InvalidFiles(problems)

    def _validate_logins(self, new: Sequence[Document]) -> None:
        for cluster in new:
            if cluster.kind == "Cluster":
                read_login(self.home.login(cluster.name))

    async def _apply(self) -> None:
        """Passes the files' resources to the controller: Clusters first, and the others once
        brokers have settled.
        """
        with_lake_pipelines = [*self._documents, *write_lake_documents(self._documents, self.home)]
        all_documents = [*with_lake_pipelines, *documents.component_documents(with_lake_pipelines)]
        self.platform.load(all_documents)
        described = {(it.kind, it.name): it for it in all_documents if it.kind in RECONCILED_KINDS}
        for key in [it for it in self._resources if it not in described]:
            self._remove(self._resources.pop(key))
        clusters = [it for it in described.values() if it.kind == "Cluster"]
        for cluster in clusters:
            self._update(cluster)
            self._measure(cluster.name)
        self.platform.start_spark()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_TIMEOUT_S):
                for cluster in clusters:
                    await self._wait_until(lambda name=cluster.name: self._has_settled(name))  # type: ignore[misc]
                    await self._metrics[cluster.name][0].measured.wait()
        for document in described.values():
            if document.kind != "Cluster":
                self._update(document)
        for name in [name for kind, name in described if kind == "Pipeline"]:
            self.controller.wake_pipeline(local_key(name))  # a Python step may have changed

    def _update(self, document: Document) -> None:
        """Passes a resource to the controller as an API server would show it."""
        previous = self._find_cached(document.kind, document.name)
        uid = local_user_uid(document.name) if document.kind == "User" else str(uuid.uuid4())
        metadata: Json = previous["metadata"] if previous else {"uid": uid, "generation": 0}
        is_changed = previous is None or previous["spec"] != document.data["spec"]
        generation = metadata["generation"] + (1 if is_changed else 0)
        key = local_key(document.name)
        resource = {
            **{field: document.data[field] for field in ("apiVersion", "kind", "spec")},
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "uid": metadata["uid"],
                "generation": generation,
                **({"finalizers": metadata["finalizers"]} if "finalizers" in metadata else {}),
            },
            "status": previous["status"] if previous else {},
        }
        self._resources[document.kind, document.name] = resource
        self.controller.update(resource)

    def _remove(self, resource: Json) -> None:
        """Removes a resource that is no longer in the files. One with a finalizer stays until the
        reconciler has removed the finalizer.
        """
        name = resource["metadata"]["name"]
        finalizers = (self._find_cached(resource["kind"], name) or resource)["metadata"].get("finalizers")
        if finalizers:
            resource["metadata"] |= {"finalizers": finalizers, "deletionTimestamp": format_time(time.time())}
        self.controller.update(resource, is_deleted=not finalizers)
        match resource["kind"]:
            case "Cluster":
                self._metrics.pop(name)[1].cancel()
            case "Topic":
                self.view.topics.pop((resource["spec"]["clusterRef"]["name"], stored_topic_name(resource)), None)
                if resource["spec"].get("deletionPolicy") != "Delete":
                    message = (
                        f"topic {stored_topic_name(resource)} is no longer described; it stays with its records "
                        "(deletionPolicy: Retain)"
                    )
                    self.view.say(message, "info")
            case "Group":
                self.view.say(f"group {stored_group_name(resource)} is no longer described; its settings stay", "info")
            case "Schema":
                subject = stored_subject_name(resource)
                self.view.schemas.pop((resource["spec"]["clusterRef"]["name"], subject), None)
                if resource["spec"].get("deletionPolicy") != "Delete":
                    self.view.say(
                        f"subject {subject} is no longer described; it stays (deletionPolicy: Retain)", "info"
                    )
                elif not finalizers:
                    message = f"subject {subject} is no longer described; it stays, as it was not reconciled before"
                    self.view.say(message, "info")
            case "User":
                self.view.say(f"user {name} is no longer described: revoking its credential, rules and quotas", "info")
            case "Mirror":
                self.view.mirrors.pop((resource["spec"]["target"]["clusterRef"]["name"], name), None)
                self.view.say(f"mirror {name} is no longer described; the brokers keep it with its settings", "info")
            case "Pipeline":
                self.view.pipelines.pop(pipeline_row_key(resource), None)
                self.view.say(f"pipeline {name} is no longer described: stopping it", "info")

    def _find_cached(self, kind: str, name: str) -> Json | None:
        cache = self.controller.cache
        return next((it for it in cache.all() if (it["kind"], it["metadata"]["name"]) == (kind, name)), None)

    def _has_settled(self, cluster: str) -> bool:
        """True if all brokers are ready and have their settings."""
        resource = self.controller.cache.clusters[local_key(cluster)]
        status = resource["status"]
        is_observed = status.get("observedGeneration") == resource["metadata"]["generation"]
        return is_observed and status.get("readyReplicas") == resource["spec"]["replicas"] and "roll" not in status

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.platform.reported.clear()
            await self.platform.reported.wait()

    # --- loads and measurements

    def _measure(self, cluster: str) -> None:
        if cluster not in self._metrics:
            brokers = self.platform.clusters[cluster]
            metrics = TopicMetrics(
                cluster, self.view, lambda: brokers.access, lambda name: name in self._topics(cluster)
            )
            self._metrics[cluster] = metrics, self._tasks.create_task(metrics.run())

    def _topics(self, cluster: str) -> dict[str, Json]:
        """The cluster's Topic resources by the topic's name."""
        return {stored_topic_name(it): it for it in self.controller.cache.topics.get(local_key(cluster), {}).values()}

    def _load_scripts(self, cluster: Document) -> list[Path]:
        """Scripts beside the cluster's file: one named after the cluster, and the unnamed one, for
        the first cluster there.
        """
        folder = cluster.file.parent
        first = next(it for it in self._documents if it.kind == "Cluster" and it.file.parent == folder)
        scripts = [load.cluster_script(cluster.name), *([load.SCRIPT] if first is cluster else [])]
        return [folder / name for name in scripts if (folder / name).is_file()]

    async def _run_load(self, cluster: str, script: Path) -> None:
        """Runs the load when the cluster's topics are ready or stalled."""
        described = {
            it.name for it in self._documents if it.kind == "Topic" and it.data["spec"]["clusterRef"]["name"] == cluster
        }

        def are_settled() -> bool:
            found = self.controller.cache.topics.get(local_key(cluster), {})
            return found.keys() >= described and all(kstatus(it) in ("Current", "Failed") for it in found.values())

        await self._wait_until(are_settled)
        brokers = self.platform.clusters[cluster]
        login = self.home.login(cluster).resolve() / CLIENT_PROPERTIES if brokers.access.security.uses_sasl else None
        bootstrap, limit = ",".join(brokers.bootstrap_addresses), self._load_limit(cluster)
        work = LoadScript(script, self.home.cluster(cluster), bootstrap, self.view, login, limit)
        self._loads.append(work)
        ids = {name: it["status"]["topicId"] for name, it in self._topics(cluster).items() if "topicId" in it["status"]}
        ending = asyncio.create_task(self._end_limit(cluster, work))
        try:
            await work.run(ids)
        finally:
            ending.cancel()

    def _load_limit(self, cluster: str) -> LoadLimit | None:
        """None if no pipeline of the cluster starts, or one has read rows already."""
        pipelines = [Pipeline.parse(it.data).spec for it in self._documents if it.kind == "Pipeline"]
        starting = [it for it in pipelines if it.cluster_ref.name == cluster and it.state != "suspended"]
        topics = {source.topic for spec in starting for source in spec.streams.values()}
        if not topics or self._reads_rows(cluster) or find_missing_prerequisite() is not None:
            return None
        return LoadLimit(tuple(sorted(topics)))

    def _reads_rows(self, cluster: str) -> bool:
        return any(it.rows_in for it in self.view.pipelines.values() if it.cluster == cluster)

    async def _end_limit(self, cluster: str, work: LoadScript) -> None:
        while not self._reads_rows(cluster):  # noqa: ASYNC110  # rows of the view are no events
            await asyncio.sleep(POLL_S)
        work.end_limit()
