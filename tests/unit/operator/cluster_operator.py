"""One operator with a Cluster in a fake API server."""

import asyncio
from typing import Any, cast

from ottla_operator.kube.api import ApiClient
from ottla_operator.kube.platform import KubePlatform
from ottla_operator.plan.objects.broker_pod import BrokerImages
from ottla_operator.plan.pipeline.pods import PipelineImage
from ottla_operator.reconcile.controller import Controller
from ottla_operator.reconcile.watch_cache import Key, WatchCache
from tests.unit.operator.api_server import FakeApi

KEY = Key("events", "demo")
SPEC = {"replicas": 3, "storage": {"size": "10Gi"}}


class Operator:
    """One operator, which another may replace at any time."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        as_api, cache = cast(ApiClient, api), WatchCache()
        platform = KubePlatform(as_api, cache, "test", BrokerImages("broker", "1"), PipelineImage("spark:1"))
        self.controller = Controller(platform, cache)

    def reconcile(self) -> list[str]:
        """Returns the writes to the API server."""
        for it in self.api.of("Cluster").values():
            self.controller.update(it)
        before = len(self.api.writes)
        asyncio.run(self.controller.clusters.reconcile(KEY))
        return self.api.writes[before:]

    @property
    def conditions(self) -> dict[str, dict[str, Any]]:
        (it,) = self.api.of("Cluster").values()
        return {condition["type"]: condition for condition in it["status"]["conditions"]}

    def edit(self, **spec: Any) -> None:
        (it,) = self.api.of("Cluster").values()
        it["spec"] = {**it["spec"], **spec}
        it["metadata"]["generation"] += 1
