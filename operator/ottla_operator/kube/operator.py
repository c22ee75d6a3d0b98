"""The operator put together: kopf watches and tells the index, one Lease says who acts, loops look.

kopf is used for watching alone: its handlers for changes, its daemons and its timers would write annotations and finalizers on resources, and a finalizer
wedges a namespace whose operator is gone.
"""

import asyncio
import logging
import os
import socket
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

# kopf would import what it finds of these, and pay tens of megabytes for what is never called.
for _unused in ("kubernetes", "kubernetes_asyncio", "pykube"):
    sys.modules.setdefault(_unused, None)  # type: ignore[arg-type]

import kopf  # noqa: E402

from ottla_broker.wire.errors import KafkaError  # noqa: E402
from ottla_operator.brokers.link import Unreachable  # noqa: E402
from ottla_operator.kube import metrics as figures  # noqa: E402
from ottla_operator.kube.api import Api, ApiError  # noqa: E402
from ottla_operator.kube.clusters import Clusters  # noqa: E402
from ottla_operator.kube.election import Election  # noqa: E402
from ottla_operator.kube.kinds import CLUSTER, MIRROR, PIPELINE, POD, SERVICE, STATEFUL_SET, TOPIC, Kind  # noqa: E402
from ottla_operator.kube.known import Key, Known  # noqa: E402
from ottla_operator.kube.loops import Loops  # noqa: E402
from ottla_operator.kube.mirrors import Mirrors  # noqa: E402
from ottla_operator.kube.pipelines import Pipelines  # noqa: E402
from ottla_operator.kube.telling import Telling  # noqa: E402
from ottla_operator.kube.topics import Topics  # noqa: E402
from ottla_operator.plan.objects.names import INSTANCE, MANAGER  # noqa: E402
from ottla_operator.plan.objects.pods import Images  # noqa: E402
from ottla_operator.plan.pipeline import names as pipeline_names  # noqa: E402
from ottla_operator.plan.pipeline.pods import Image  # noqa: E402
from ottla_operator.resources.model import Json  # noqa: E402

LoginError = kopf.LoginError
LEASE: Final = "ottla-operator"
CRDS_AGAIN_S: Final = 2.0
GONE_WITHIN_S: Final = 30.0
FAILURES: Final = (ApiError, KafkaError, Unreachable, TimeoutError)
log = logging.getLogger("ottla.operator")


@dataclass(frozen=True, slots=True)
class Options:
    """`namespaces`: those that are watched; empty: all. `home`: the namespace of the operator's own Lease. `http`: where figures are served."""

    namespaces: Sequence[str]
    home: str
    images: Images
    spark: Image
    http: tuple[str, int] | None


@dataclass(slots=True)
class Operator:
    options: Options
    known: Known = field(default_factory=Known)
    metrics: figures.Metrics = field(default_factory=figures.Metrics)
    api: Api = field(init=False)
    clusters: Clusters = field(init=False)
    topics: Topics = field(init=False)
    pipelines: Pipelines = field(init=False)
    mirrors: Mirrors = field(init=False)
    _cluster_loops: Loops[Key] = field(init=False)
    _topic_loops: Loops[Key] = field(init=False)
    _pipeline_loops: Loops[Key] = field(init=False)
    _mirror_loops: Loops[Key] = field(init=False)

    def __post_init__(self) -> None:
        who = f"{os.environ.get('POD_NAME') or socket.gethostname()}-{uuid.uuid4().hex[:6]}"
        self.api = Api(login, self.metrics.wrote)
        telling = Telling(self.api, who)
        self.clusters = Clusters(self.api, telling, self.options.images, self.known.clusters.get, self.wake_topics)
        self.topics = Topics(self.api, telling, lambda key: self.known.topics.get(key, {}), self.cluster)
        self.pipelines = Pipelines(
            self.api,
            telling,
            self.options.spark,
            self.known.pipelines.get,
            self.cluster,
            lambda key: self.known.topics.get(key, {}).values(),
        )
        self.mirrors = Mirrors(self.api, telling, self.known.mirrors.get, self.cluster)
        self._cluster_loops = Loops(self._timed("Cluster", self.clusters.look), FAILURES, self.clusters.failed)
        self._topic_loops = Loops(self._timed("Topic", self.topics.look), FAILURES, self.topics.failed)
        self._pipeline_loops = Loops(self._timed("Pipeline", self.pipelines.look), FAILURES, self.pipelines.failed)
        self._mirror_loops = Loops(self._timed("Mirror", self.mirrors.look), FAILURES, self.mirrors.failed)
        self._who = who

    _who: str = ""
    _served: set[Key] = field(default_factory=set)
    """Clusters whose topics have been woken since their brokers became reachable."""

    async def cluster(self, key: Key) -> Json | None:
        """As it was last seen. That there is none, the API server itself has to say: when we have just begun, watches have not shown everything yet."""
        return self.known.clusters.get(key) or await self.api.get(CLUSTER, key.namespace, key.name)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`. Watches go on all the time, so that whoever takes over knows everything already."""
        served = await figures.serve(self.metrics, *self.options.http) if self.options.http else None
        watching = asyncio.create_task(self._watch(stop))
        acting = asyncio.create_task(self._act())
        missing = asyncio.create_task(self._find_gone())
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((watching, acting, missing, stopped), return_when=asyncio.FIRST_COMPLETED)
            for it in (watching, acting, missing):
                if it.done():
                    it.result()
        finally:
            stop.set()
            for task in (acting, missing, stopped):
                task.cancel()
            await asyncio.gather(acting, missing, watching, stopped, return_exceptions=True)
            if served is not None:
                await served.cleanup()
            await self.api.close()

    async def _act(self) -> None:
        election = Election(self.api, self.options.home, LEASE, self._who)
        while True:
            async with election.elected() as lost:
                self.metrics.active = True
                loops = (self._cluster_loops, self._topic_loops, self._pipeline_loops, self._mirror_loops)
                for it in loops:
                    it.start()
                try:
                    for key in {*self.known.clusters, *self.known.topics}:
                        self.wake(key)
                    for key in self.known.pipelines:
                        self.wake_pipeline(key)
                    for key in self.known.mirrors:
                        self.wake_mirror(key)
                    await lost.wait()
                finally:
                    self.metrics.active = False
                    for it in loops:
                        await it.stop()

    def wake(self, key: Key) -> None:
        self.metrics.resources |= {
            "Cluster": len(self.known.clusters),
            "Topic": sum(map(len, self.known.topics.values())),
        }
        self._cluster_loops.wake(key)
        self._topic_loops.wake(key)

    def wake_pipeline(self, key: Key) -> None:
        self.metrics.resources["Pipeline"] = len(self.known.pipelines)
        self._pipeline_loops.wake(key)

    def wake_mirror(self, key: Key) -> None:
        self.metrics.resources["Mirror"] = len(self.known.mirrors)
        self._mirror_loops.wake(key)

    def wake_cluster(self, key: Key) -> None:
        self._served.discard(key)
        self._cluster_loops.wake(key)

    def wake_topics(self, key: Key) -> None:
        """Its brokers are reachable: topics that waited for that need not wait longer."""
        if key not in self._served:
            self._served.add(key)
            self._topic_loops.wake(key)

    def wake_own_topics(self, key: Key) -> None:
        self.metrics.resources["Topic"] = sum(map(len, self.known.topics.values()))
        self._topic_loops.wake(key)

    def _timed(self, kind: str, look: Callable[[Key], Any]) -> Callable[[Key], Any]:
        async def timed(key: Key) -> float | None:
            loop = asyncio.get_running_loop()
            began, result = loop.time(), "failed"
            try:
                pause: float | None = await look(key)
                result = "done"
                return pause
            finally:
                self.metrics.looked(kind, result, loop.time() - began)

        return timed

    async def _watch(self, stop: asyncio.Event) -> None:
        registry = kopf.OperatorRegistry()
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        settings.scanning.disabled = True  # it would take rights on all CRDs and namespaces
        settings.peering.standalone = True
        settings.watching.server_timeout = 300
        settings.watching.client_timeout = 330
        for kind in (POD, SERVICE, STATEFUL_SET):
            settings.watching.label_selectors[_resource(kind)] = f"app.kubernetes.io/managed-by={MANAGER}"
        self._register(registry)
        await self._crds_are_there()
        await kopf.operator(
            registry=registry,
            settings=settings,
            namespaces=self.options.namespaces,
            clusterwide=not self.options.namespaces,
            stop_flag=stop,
            identity=cast(Any, self._who),  # kopf would ask for the user's name, and a container's user has none
        )

    async def _find_gone(self) -> None:
        """A watch that begins anew, as after the API server was away, tells what there is, and nothing of what was deleted meanwhile."""
        while True:
            await asyncio.sleep(GONE_WITHIN_S)
            for it in self._kept():
                before = self.known.every(it.kind.name)
                try:
                    there = (
                        [await self.api.uids(it.kind, at) for at in self.options.namespaces or (None,)]
                        if before
                        else []
                    )
                except ApiError as error:
                    log.debug("%s cannot be listed: %s", it.kind.plural, error)
                    continue
                for body in before:
                    now = any(body is known for known in self.known.every(it.kind.name))
                    if now and not any(body["metadata"]["uid"] in uids for uids in there):
                        await it.event(body, "DELETED")

    def _kept(self) -> "tuple[_Kept, ...]":
        return (
            _Kept(CLUSTER, self.known.see_cluster, self.wake),
            _Kept(TOPIC, self.known.see_topic, self.wake_own_topics),
            _Kept(PIPELINE, self.known.see_pipeline, self.wake_pipeline),
            _Kept(MIRROR, self.known.see_mirror, self.wake_mirror),
        )

    async def _crds_are_there(self) -> None:
        """kopf never looks again for a kind that was not there when it began."""
        while True:
            try:
                lacking = [it.plural for it in (CLUSTER, TOPIC, PIPELINE, MIRROR) if not await self.api.serves(it)]
                why = f"the API server does not know {' and '.join(lacking)} yet: their CRDs are to be installed"
            except ApiError as error:
                lacking, why = ["?"], str(error)
            if not lacking:
                return
            log.warning("%s", why)
            await asyncio.sleep(CRDS_AGAIN_S)

    def _register(self, registry: kopf.OperatorRegistry) -> None:
        @kopf.on.login(registry=registry)
        def credentials(**_: object) -> kopf.ConnectionInfo:
            return login()

        def on(kind: Kind) -> Callable[..., Any]:
            group, _, version = kind.api.rpartition("/")
            return kopf.on.event(group, version, kind.plural, registry=registry, id=kind.plural)

        for it in self._kept():
            on(it.kind)(it.event)

        async def part(labels: kopf.Labels, namespace: str | None, **_: object) -> None:
            key = Key(namespace or "", labels.get(INSTANCE, ""))
            if labels.get(pipeline_names.COMPONENT) in pipeline_names.PODS:
                if key in self.known.pipelines:
                    self.wake_pipeline(key)
            elif key in self.known.clusters:
                self.wake_cluster(key)

        for kind in (POD, SERVICE, STATEFUL_SET):
            on(kind)(part)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A kind that is kept as wished: how what a watch shows of it is remembered, and who is to look then."""

    kind: Kind
    see: Callable[..., Key | None]
    wake: Callable[[Key], None]

    async def event(self, body: Mapping[str, Json], type: str | None, **_: object) -> None:
        """As kopf tells it."""
        if (key := self.see(body, gone=type == "DELETED")) is not None:
            self.wake(key)


def _resource(kind: Kind) -> Any:
    group, _, version = kind.api.rpartition("/")
    return group, version, kind.plural


def login() -> kopf.ConnectionInfo:
    """A pod's own account; outside of one, the kubeconfig's current context. kopf.LoginError without either."""
    settings = kopf.OperatorSettings()
    found = kopf.login_with_service_account(settings=settings) or kopf.login_with_kubeconfig(settings=settings)
    if found is None:
        raise kopf.LoginError(
            "there is neither a service account's token nor a kubeconfig to reach the API server with"
        )
    return found
