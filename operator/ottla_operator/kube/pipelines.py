"""One look at a Pipeline: what there is, what there should be, the next step between them, and what is told of it.

A look decides from what it sees and remembers nothing that matters, so that an operator that is killed anywhere is followed by one that goes on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ottla_operator.kube import drivers
from ottla_operator.kube.api import Api, ApiError
from ottla_operator.kube.checked import Checked
from ottla_operator.kube.children import Children, Leaving, Taken
from ottla_operator.kube.cluster_brokers import Brokers, brokers_of
from ottla_operator.kube.clusters import cluster_of
from ottla_operator.kube.kinds import CLAIM, CONFIG_MAP, DEPLOYMENT, POD, SPARK_APPLICATION, Kind, kind_of
from ottla_operator.kube.known import Key
from ottla_operator.kube.patience import Patience
from ottla_operator.kube.telling import Telling
from ottla_operator.kube.upkeep import refuses
from ottla_operator.plan.conditions import Conditions, ExtraCondition, Ready, Reconciling, Stalled
from ottla_operator.plan.objects.differences import find_difference, with_applied_hash
from ottla_operator.plan.objects.names import FIELD_MANAGER
from ottla_operator.plan.pipeline import names, seen
from ottla_operator.plan.pipeline import topic_readiness as gate
from ottla_operator.plan.pipeline.desired import (
    DesiredLaunch,
    Launcher,
    LaunchInputs,
    choose_launcher,
    desired_objects,
    find_unsupported,
    plaintext_bootstrap,
)
from ottla_operator.plan.pipeline.pods import PipelineImage
from ottla_operator.plan.pipeline.status import status_fields
from ottla_operator.plan.pipeline.verdict import (
    PipelineObservations,
    PipelineRun,
    evaluate_application,
    evaluate_driver,
)
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline

RESYNC_S: Final = 10.0
WAITING_S: Final = 2.0
SOON_S: Final = 0.5
SERVED_FOR_S: Final = 20.0
ENDED: Final = ("COMPLETED", "FAILED")


@dataclass(slots=True)
class Memory:
    """What need not be found out again."""

    verdict: str = ""
    patience: Patience = field(default_factory=Patience)


@dataclass(slots=True)
class Pipelines:
    """`body`: the Pipeline as it was last seen, None when it is gone; `cluster`: a Cluster's; `topics`: the Topics of a Cluster. `ask`: a driver, how it
    does."""

    api: Api
    telling: Telling
    image: PipelineImage
    body: Callable[[Key], Json | None]
    cluster: Callable[[Key], Awaitable[Json | None]]
    topics: Callable[[Key], Iterable[Json]]
    ask: Callable[[str], Awaitable[seen.RunnerStatus | None]] = drivers.ask
    _memories: dict[Key, Memory] = field(default_factory=dict)
    _checked: Checked = field(default_factory=lambda: Checked(lambda body: find_unsupported(pipeline_of(body))))
    _children: Children = field(init=False)
    _served: tuple[float, bool] | None = None

    def __post_init__(self) -> None:
        self._children = Children(self.api)

    async def look(self, key: Key) -> float | None:
        body = self.body(key)
        if body is None or "deletionTimestamp" in body["metadata"]:
            self._memories.pop(key, None)
            self._checked.forget(key)
            return None  # what it owns goes by Kubernetes' own means
        memory = self._memories.setdefault(key, Memory())
        if why := self._checked.wrong(key, body):
            return await self._tell(body, memory, PipelineRun("Pending", Stalled("InvalidSpec", why)))
        pipeline = pipeline_of(body)
        cluster = await self.cluster(Key(key.namespace, pipeline.spec.cluster_ref.name))
        if cluster is None:
            why = f"there is no Cluster {pipeline.spec.cluster_ref.name} in this namespace"
            return await self._tell(body, memory, PipelineRun("Pending", Reconciling("NoCluster", why)))
        if not plaintext_bootstrap(cluster_of(cluster)):
            why = f"every listener of Cluster {pipeline.spec.cluster_ref.name} has TLS, which pipelines do not speak yet: give it one more without"
            return await self._tell(body, memory, PipelineRun("Pending", Stalled("NoListener", why)))
        try:
            return await self._keep(body, pipeline, cluster_of(cluster), memory)
        except Taken as error:
            return await self._tell(body, memory, PipelineRun(_state(body), Stalled("NameTaken", str(error))))
        except Leaving as error:
            return await self._tell(body, memory, PipelineRun(_state(body), Reconciling("Waiting", str(error))))
        except ApiError as error:
            if not refuses(error):
                raise
            why = f"the API server refuses a change: {error}"
            return await self._tell(body, memory, PipelineRun(_state(body), Stalled("Refused", why)))

    async def failed(self, key: Key, error: Exception) -> None:
        """The API server did not do what it should: it is tried again."""
        if (body := self.body(key)) is not None:
            memory = self._memories.setdefault(key, Memory())
            await self._tell(body, memory, PipelineRun(_state(body), Reconciling("TryingAgain", str(error))))

    async def _keep(self, body: Json, pipeline: Pipeline, cluster: Cluster, memory: Memory) -> float:
        served = await self._spark_operator_is_there()
        every = await self._applications(pipeline, served)
        there = {key: it for key, it in every.items() if _is_ours(it)}
        chosen = choose_launcher(pipeline, there.keys(), served=served)
        if chosen == "SparkOperator" and not served:
            why = (
                "the API server does not know SparkApplications: install kubeflow's Spark operator, or say launcher: Driver, "
                "and this operator starts the driver itself"
            )
            return await self._tell(body, memory, PipelineRun("Pending", Stalled("NoSparkOperator", why)))
        found = await self._pods(pipeline)
        if waits := await self._others_are_gone(pipeline, chosen, there, found):
            return await self._tell(
                body, memory, PipelineRun("Pending", Reconciling("ChangingLauncher", waits)), pause=SOON_S
            )
        live = every.get(chosen)
        given = await self._given(pipeline, cluster, chosen, live)
        wanted = desired_objects(pipeline, self.image, given)
        async with brokers_of(self.api, cluster) as brokers:
            waiting = await self._waits_for(pipeline, cluster, brokers)
            aspects = (gate.topics_ready_condition(waiting),)
            if waiting and self._starts(pipeline, wanted, live):
                why = "; ".join(map(str, waiting))
                verdict = Reconciling("WaitingForTopics", f"the driver is not started: {why}")
                return await self._tell(body, memory, PipelineRun(_state(body), verdict), chosen, aspects)
            live = await self._bring(body, pipeline, chosen, wanted, live)
            run = await self._seen(pipeline, given, wanted, live, found)
            behind = await brokers.lag(pipeline.consumer_group, gate.source_topics(pipeline))
        return await self._tell(body, memory, run, chosen, aspects, behind)

    # --- what there is

    async def _spark_operator_is_there(self) -> bool:
        now = asyncio.get_running_loop().time()
        if self._served is None or now - self._served[0] > SERVED_FOR_S:
            self._served = now, await self.api.serves(SPARK_APPLICATION)
        return self._served[1]

    async def _applications(self, pipeline: Pipeline, served: bool) -> dict[Launcher, Json]:
        """Of these names, whoever they belong to."""
        namespace = pipeline.metadata.namespace
        found: dict[Launcher, Json] = {}
        if it := await self.api.get(DEPLOYMENT, namespace, names.driver(pipeline)):
            found["Driver"] = it
        if served and (it := await self.api.get(SPARK_APPLICATION, namespace, names.application(pipeline))):
            found["SparkOperator"] = it
        return found

    async def _pods(self, pipeline: Pipeline) -> list[Json]:
        return await self.api.list(POD, pipeline.metadata.namespace, names.selector_text(pipeline))

    async def _given(self, pipeline: Pipeline, cluster: Cluster, chosen: Launcher, live: Json | None) -> LaunchInputs:
        finished = ((live or {}).get("metadata", {}).get("annotations") or {}).get(names.FINISHED, "")
        modes: list[str] = []
        checkpoint = pipeline.spec.checkpoint
        if checkpoint and checkpoint.pvc and checkpoint.pvc.claim_name:
            claim = await self.api.get(CLAIM, pipeline.metadata.namespace, checkpoint.pvc.claim_name)
            modes = ((claim or {}).get("spec") or {}).get("accessModes") or []
        return LaunchInputs(chosen, plaintext_bootstrap(cluster), modes, finished)

    async def _waits_for(self, pipeline: Pipeline, cluster: Cluster, brokers: Brokers) -> list[gate.UnreadyTopic]:
        resources = gate.resources_by_topic(self.topics(Key(pipeline.metadata.namespace, cluster.name)))
        unowned = gate.unmanaged_sources(pipeline, resources)
        return gate.find_unready_topics(pipeline, resources, await brokers.existing(unowned) if unowned else ())

    def _starts(self, pipeline: Pipeline, wanted: DesiredLaunch, live: Json | None) -> bool:
        """Whether bringing it to what is wanted starts a driver, the first or another."""
        if pipeline.spec.state == "suspended" or wanted.application["spec"].get("replicas") == 0:
            return False
        return find_difference(with_applied_hash(wanted.application), live) is not None

    async def _seen(
        self, pipeline: Pipeline, given: LaunchInputs, wanted: DesiredLaunch, live: Json, found: list[Json]
    ) -> PipelineRun:
        facts = PipelineObservations(
            settings=wanted.settings,
            is_suspended=pipeline.spec.state == "suspended",
            drivers=seen.driver_pods(found),
            executors=seen.executor_pods(found),
            is_finished=(live["metadata"].get("annotations") or {}).get(names.FINISHED) == wanted.settings,
            application=live,
        )
        pod = facts.driver
        if pod is not None and pod.address and not pod.address.endswith(":0"):
            facts = replace(facts, runner=await self.ask(pod.address))
        if given.launcher == "SparkOperator":
            return evaluate_application(facts)
        if facts.runner and facts.runner.state == "finished" and not facts.is_finished and not facts.is_suspended:
            # Noted on the Deployment, so that neither Kubernetes nor another operator starts it again.
            done = desired_objects(pipeline, self.image, replace(given, finished=wanted.settings))
            await self._children.ensure(done.application, live)
            facts = replace(facts, is_finished=True)
        return evaluate_driver(facts)

    # --- what is done

    async def _others_are_gone(
        self, pipeline: Pipeline, chosen: Launcher, there: Mapping[Launcher, Json], found: list[Json]
    ) -> str:
        """Two drivers on one checkpoint undo each other's work: what was launched otherwise goes first. What is waited for, in words."""
        for other, it in there.items():
            if other != chosen:
                await self._delete(it)
                return f"{it['kind']} {it['metadata']['name']} goes first"
        left = [it.name for it in seen.driver_pods(found)]
        if chosen not in there and left and pipeline.spec.state != "suspended":
            return f"pod {left[0]} of a driver before goes first"
        return ""

    async def _bring(
        self, body: Json, pipeline: Pipeline, chosen: Launcher, wanted: DesiredLaunch, live: Json | None
    ) -> Json:
        """Everything as wanted; the application as it is then."""
        for it in wanted.prerequisites:
            await self._ensure(it)
        if live is not None and pipeline.spec.state == "suspended" and _has_ended(live):
            await self._delete(live)  # it would never run again: it makes room for one that can be resumed
            live = None
        after = await self._children.ensure(wanted.application, live)
        if live is None or _ran_with(live) != _ran_with(after):
            kind, name = after["kind"], after["metadata"]["name"]
            await self.telling.event(body, "Launched", f"{kind} {name} runs the pipeline of {wanted.settings}")
        await self._take_away(pipeline, wanted)
        return after

    async def _ensure(self, wanted: Json) -> Json:
        metadata = wanted["metadata"]
        live = await self.api.get(kind_of(wanted), metadata["namespace"], metadata["name"])
        return await self._children.ensure(wanted, live)

    async def _take_away(self, pipeline: Pipeline, wanted: DesiredLaunch) -> None:
        """ConfigMaps that no driver will be started with again."""
        prefix = names.settings(pipeline, "")
        for it in await self.api.list(CONFIG_MAP, pipeline.metadata.namespace, names.selector_text(pipeline)):
            name = it["metadata"]["name"]
            if _is_ours(it) and name.startswith(prefix) and name != wanted.settings:
                await self.api.delete(CONFIG_MAP, it)

    async def _delete(self, it: Json) -> None:
        kind: Kind = kind_of(it)
        if "deletionTimestamp" not in it["metadata"]:
            await self.api.delete(kind, it)

    # --- what is told

    async def _tell(
        self,
        body: Json,
        memory: Memory,
        run: PipelineRun,
        chosen: Launcher | None = None,
        aspects: tuple[ExtraCondition, ...] = (),
        behind: int | None = None,
        pause: float | None = None,
    ) -> float:
        judged = Conditions(run.readiness, body["metadata"]["generation"], aspects)
        await self.telling.status(body, judged, status_fields(body, run, chosen, behind))
        message = run.readiness.message
        if memory.verdict != message and (isinstance(run.readiness, Stalled) or memory.verdict):
            warning = isinstance(run.readiness, Stalled) or run.state in ("Failing", "Failed")
            if warning or isinstance(run.readiness, Ready):
                await self.telling.event(body, run.readiness.reason, message, warning=warning)
        memory.verdict = message
        if pause is not None:
            return pause
        soon_s = WAITING_S if isinstance(run.readiness, Reconciling) else RESYNC_S
        return memory.patience.pause(run.readiness, asyncio.get_running_loop().time(), soon_s, RESYNC_S)


def pipeline_of(body: Json) -> Pipeline:
    return Pipeline.parse({key: body[key] for key in ("apiVersion", "kind", "metadata", "spec")})


def _is_ours(it: Json) -> bool:
    return (it["metadata"].get("labels") or {}).get("app.kubernetes.io/managed-by") == FIELD_MANAGER


def _has_ended(application: Json) -> bool:
    """Whether a SparkApplication has."""
    return ((application.get("status") or {}).get("applicationState") or {}).get("state") in ENDED


def _ran_with(it: Json) -> object:
    """What decides whether another driver is started."""
    spec = it["spec"]
    return (spec.get("template"), spec.get("replicas"), spec.get("driver"), spec.get("arguments"), spec.get("suspend"))


def _state(body: Json) -> str:
    """As it was last told."""
    return str((body.get("status") or {}).get("state") or "Pending")
