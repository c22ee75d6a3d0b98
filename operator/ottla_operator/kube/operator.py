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
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

# kopf would import what it finds of these, and pay tens of megabytes for what is never called.
for _unused in ("kubernetes", "kubernetes_asyncio", "pykube"):
    sys.modules.setdefault(_unused, None)  # type: ignore[arg-type]

import kopf  # noqa: E402

from ottla_broker.wire.errors import KafkaError  # noqa: E402
from ottla_operator.kafka.client import Unreachable  # noqa: E402
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
from ottla_operator.plan.objects.names import FIELD_MANAGER, INSTANCE  # noqa: E402
from ottla_operator.plan.objects.pods import BrokerImages  # noqa: E402
from ottla_operator.plan.pipeline import names as pipeline_names  # noqa: E402
from ottla_operator.plan.pipeline.pods import PipelineImage  # noqa: E402
from ottla_operator.resources.model import Json  # noqa: E402

LoginError = kopf.LoginError
CRDS_AGAIN_S: Final = 2.0
SHOWN_AGAIN_S: Final = 0.5
COMPARED_AGAIN_S: Final = 60.0
RESOURCES: Final = (CLUSTER, TOPIC, PIPELINE, MIRROR)
FAILURES: Final = (ApiError, KafkaError, Unreachable, TimeoutError)
log = logging.getLogger("ottla.operator")


@dataclass(frozen=True, slots=True)
class Options:
    """`namespaces`: those that are watched; empty: all. `home` and `lease`: namespace and name of the operator's own Lease. `http`: where figures are served."""

    namespaces: Sequence[str]
    home: str
    lease: str
    images: BrokerImages
    spark: PipelineImage
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
        self.topics = Topics(
            self.api,
            telling,
            lambda key: self.known.topics.get(key, {}),
            self.cluster,
            lambda key: self.known.gone.setdefault(key, {}),
        )
        self.pipelines = Pipelines(
            self.api,
            telling,
            self.options.spark,
            self.known.pipelines.get,
            self.cluster,
            lambda key: self.known.topics.get(key, {}).values(),
        )
        self.mirrors = Mirrors(self.api, telling, self.known.mirrors.get, self.cluster)
        self._cluster_loops = Loops(
            self._timed("Cluster", self.clusters.look), FAILURES, _unless_away(self.clusters.failed)
        )
        self._topic_loops = Loops(self._timed("Topic", self.topics.look), FAILURES, _unless_away(self.topics.failed))
        self._pipeline_loops = Loops(
            self._timed("Pipeline", self.pipelines.look), FAILURES, _unless_away(self.pipelines.failed)
        )
        self._mirror_loops = Loops(
            self._timed("Mirror", self.mirrors.look), FAILURES, _unless_away(self.mirrors.failed)
        )
        self._who = who

    _who: str = ""
    _served: set[Key] = field(default_factory=set)
    """Clusters whose topics have been woken since their brokers became reachable."""
    _unshown: dict[str, str | None] = field(default_factory=dict)
    """Uids of resources that watches had shown in another version, or in none, when it was last compared."""

    async def cluster(self, key: Key) -> Json | None:
        """As it was last seen. That there is none, the API server itself has to say: when we have just begun, watches have not shown everything yet."""
        return self.known.clusters.get(key) or await self.api.get(CLUSTER, key.namespace, key.name)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`. Watches go on all the time, so that whoever takes over knows everything already."""
        served = await figures.serve(self.metrics, *self.options.http) if self.options.http else None
        watching = asyncio.create_task(self._watch(stop))
        acting = asyncio.create_task(self._act())
        shown = asyncio.create_task(self.everything_shown())
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((watching, acting, stopped), return_when=asyncio.FIRST_COMPLETED)
            for it in (watching, acting):
                if it.done():
                    it.result()
        finally:
            stop.set()
            for task in (acting, shown, stopped):
                task.cancel()
            await asyncio.gather(acting, shown, watching, stopped, return_exceptions=True)
            if served is not None:
                await served.cleanup()
            await self.api.close()

    async def _act(self) -> None:
        election = Election(self.api, self.options.home, self.options.lease, self._who)
        while True:
            async with election.elected() as lost:
                self.metrics.active = True
                loops = (self._cluster_loops, self._topic_loops, self._pipeline_loops, self._mirror_loops)
                for it in loops:
                    it.start()
                comparing = asyncio.create_task(self._compare_now_and_then())
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
                    comparing.cancel()
                    for it in loops:
                        await it.stop()

    async def everything_shown(self) -> None:
        """Returns when watches have shown all that there is, and says that the operator is ready."""
        while not self.metrics.ready:
            try:
                there = await self._there()
                known = {it["metadata"]["uid"] for it in self.known.every()}
                self.metrics.ready = there.keys() <= known
            except (ApiError, LoginError) as error:
                log.warning("cannot look whether everything is known: %s", error)
            await asyncio.sleep(SHOWN_AGAIN_S)

    async def _there(self) -> dict[str, tuple[Kind, Json]]:
        """Metadata of the resources that there are now, by uid. ApiError."""
        places = [(kind, name) for kind in RESOURCES for name in self.options.namespaces or (None,)]
        found = await asyncio.gather(*(self.api.list_metadata(*it) for it in places))
        return {it["uid"]: (kind, it) for (kind, _), every in zip(places, found, strict=True) for it in every}

    async def _compare_now_and_then(self) -> None:
        while True:
            try:
                await self.compare()
            except (ApiError, LoginError) as error:
                log.warning("cannot look whether what is known is as it is: %s", error)
            except Exception:  # a mistake of ours is not to end this for ever
                log.exception("looking whether what is known is as it is")
            await asyncio.sleep(COMPARED_AGAIN_S)

    async def compare(self) -> None:
        """What watches have shown with what there is. ApiError.

        A watch that was cut off for long begins anew with what there is then: that something went meanwhile, kopf tells nobody, and what is kept as
        wished would be made again and again. Nor does anybody tell that something was not shown; that is asked for once it has not been for a whole turn.
        """
        known = {it["metadata"]["uid"]: it for it in self.known.every()}
        versions = {uid: it["metadata"].get("resourceVersion") for uid, it in known.items()}
        there = await self._there()
        for uid in known.keys() - there.keys():
            self._wake_for(known[uid]["kind"], self.known.forget(known[uid]))
        unshown = {
            uid: versions.get(uid) for uid, (_, it) in there.items() if versions.get(uid) != it["resourceVersion"]
        }
        for uid in [uid for uid, version in unshown.items() if self._unshown.get(uid, "") == version]:
            kind, it = there[uid]
            if (body := await self.api.get(kind, it["namespace"], it["name"])) is not None:
                self._see(body, gone=False)
        self._unshown = unshown

    def _see(self, body: Mapping[str, Json], *, gone: bool) -> None:
        if (key := self.known.see(body, gone=gone)) is not None:
            self._wake_for(body["kind"], key)

    def _wake_for(self, kind: str, key: Key) -> None:
        wakes = {"Topic": self.wake_own_topics, "Pipeline": self.wake_pipeline, "Mirror": self.wake_mirror}
        wakes.get(kind, self.wake)(key)

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
            settings.watching.label_selectors[_resource(kind)] = f"app.kubernetes.io/managed-by={FIELD_MANAGER}"
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

    async def _crds_are_there(self) -> None:
        """kopf never looks again for a kind that was not there when it began."""
        while True:
            try:
                lacking = [it.plural for it in RESOURCES if not await self.api.serves(it)]
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

        async def resource(body: kopf.Body, type: str | None, **_: object) -> None:
            self._see(body, gone=type == "DELETED")

        for kind in RESOURCES:
            on(kind)(resource)

        async def part(labels: kopf.Labels, namespace: str | None, **_: object) -> None:
            key = Key(namespace or "", labels.get(INSTANCE, ""))
            if labels.get(pipeline_names.COMPONENT) in pipeline_names.PODS:
                if key in self.known.pipelines:
                    self.wake_pipeline(key)
            elif key in self.known.clusters:
                self.wake_cluster(key)

        for kind in (POD, SERVICE, STATEFUL_SET):
            on(kind)(part)


def _unless_away(failed: Callable[[Key, Exception], Awaitable[None]]) -> Callable[[Key, Exception], Awaitable[None]]:
    """An API server that is away, or has too much to do, is no news of a resource, and cannot take any: what was told stays, with the generation it was told of."""

    async def tell(key: Key, error: Exception) -> None:
        if isinstance(error, ApiError) and error.away:
            log.warning("%s is looked at again: %s", key, error)
        else:
            await failed(key, error)

    return tell


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
