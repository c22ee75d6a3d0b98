"""One operator with a Pipeline in a fake API server, and the runner of its driver."""

import asyncio
from typing import Any, cast

from ottla_operator.kube.api import ApiClient
from ottla_operator.kube.kinds import PIPELINE, POD, TOPIC
from ottla_operator.kube.platform import KubePlatform
from ottla_operator.plan.objects.broker_pod import BrokerImages
from ottla_operator.plan.pipeline.pods import PipelineImage
from ottla_operator.plan.pipeline.status import RunnerStatus
from ottla_operator.reconcile.controller import Controller
from ottla_operator.reconcile.watch_cache import Key, WatchCache
from ottla_operator.resources.model import Json
from tests.unit.operator import samples
from tests.unit.operator.api_server import FakeApi

KEY = Key("events", "hourly")
TERMINATED = {"exitCode": 1, "message": "noise\npipeline hourly: the topic flights does not exist\n", "reason": "Error"}


class PipelineWorld:
    """One operator, which another may replace at any time. `runner`: the status that the driver's
    runner returns to the operator; None if the runner does not respond.
    """

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.runner: RunnerStatus | None = None
        self.start_another_operator()

    def start_another_operator(self) -> None:
        as_api, cache = cast(ApiClient, self.api), WatchCache()
        platform = KubePlatform(as_api, cache, "test", BrokerImages("broker", "1"), PipelineImage("spark:1"))
        platform.pipelines.read_runner_status = self._read_runner_status
        self.controller = Controller(platform, cache)

    async def _read_runner_status(self, address: str) -> RunnerStatus | None:
        assert address == "10.0.0.9:8080"
        return self.runner

    def reconcile(self) -> list[str]:
        """Returns the writes to the API server."""
        self.controller.cache.topics.clear()
        self.controller.cache.users.clear()
        for it in [it for kind in ("Cluster", "Topic", "User", "Pipeline") for it in self.api.of(kind).values()]:
            self.controller.update(it)
        before = len(self.api.writes)
        asyncio.run(self.controller.pipelines.reconcile(KEY))
        return self.api.writes[before:]

    @property
    def pipeline(self) -> Json:
        return self.api.of("Pipeline")["hourly"]

    @property
    def conditions(self) -> dict[str, dict[str, Any]]:
        return {it["type"]: it for it in self.pipeline["status"]["conditions"]}

    def edit(self, **spec: Any) -> None:
        self.pipeline["spec"] = {**self.pipeline["spec"], **spec}
        self.pipeline["metadata"]["generation"] += 1

    def put_source_topic(self, *, ready: bool = True) -> None:
        condition = {"type": "Ready", "status": str(ready), "message": "creating topic flights"}
        metadata = {"name": "flights", "namespace": "events", "generation": 1}
        it = {"apiVersion": TOPIC.api, "kind": "Topic", "metadata": metadata, "spec": {"clusterRef": {"name": "demo"}}}
        self.api.put(TOPIC, {**it, "status": {"conditions": [condition]}})

    # What Kubernetes and the kubelet do.

    @property
    def deployment(self) -> Json:
        return self.api.of("Deployment")["hourly-driver"]

    def put_pod(self, *, ready: bool = False, template: Json | None = None, **container: Any) -> None:
        """Creates or replaces the driver's pod. `template` None: that of the Deployment."""
        template = template or self.deployment["spec"]["template"]
        status = {
            "phase": "Running",
            "podIP": "10.0.0.9",
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [{"name": "driver", **container}],
        }
        metadata = {**template["metadata"], "name": "hourly-driver-x", "namespace": "events"}
        self.api.objects.pop(("Pod", "events", "hourly-driver-x"), None)
        self.api.put(POD, {"metadata": metadata, "spec": template["spec"], "status": status})

    def delete_pod(self) -> None:
        del self.api.objects["Pod", "events", "hourly-driver-x"]

    def set_application_status(self, state: str, **status: Any) -> None:
        """Sets the status as the Spark operator does."""
        it = self.api.of("SparkApplication")["hourly"]
        it["status"] = {"applicationState": {"state": state, **status.pop("app", {})}, **status}


def running_status() -> RunnerStatus:
    return RunnerStatus("running", None, "2026-01-01T00:00:00Z", 5.0, lag_records=7, lag_seconds=1.5)


def pipeline_api() -> FakeApi:
    """An API server with the Pipeline `hourly`, and without SparkApplications."""
    made = FakeApi(unserved={"SparkApplication"})
    made.put_cluster({"replicas": 1, "storage": {"size": "1Gi"}})
    it = samples.pipeline(checkpoint={"pvc": {"size": "1Gi"}})
    metadata = {"name": "hourly", "namespace": "events", "generation": 1}
    made.put(PIPELINE, {**it, "metadata": metadata, "status": {}})
    return made
