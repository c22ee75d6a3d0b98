"""Kubernetes as a `reconcile.platform.Platform`, put together from its parts."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ottla_operator.kube.api import ApiClient
from ottla_operator.kube.brokers import PodBrokerSet, PodPlatform, ready_addresses
from ottla_operator.kube.kinds import CLUSTER, CONFIG_MAP, POD, TOPIC
from ottla_operator.kube.pipelines import PipelineLauncher, PodLaunch
from ottla_operator.kube.secrets import read_secrets
from ottla_operator.kube.status_writer import EventRecorder, StatusWriter
from ottla_operator.plan import mirror as mirror_plan
from ottla_operator.plan.conditions import Conditions, Reconciling
from ottla_operator.plan.objects import desired as cluster_objects
from ottla_operator.plan.objects import names
from ottla_operator.plan.objects.pods import BrokerImages
from ottla_operator.plan.objects.services import in_cluster_bootstrap
from ottla_operator.plan.observed_pods import broker_pods
from ottla_operator.plan.pipeline import desired as pipeline_objects
from ottla_operator.plan.pipeline.pods import PipelineImage
from ottla_operator.plan.settings import Settings
from ottla_operator.plan.source_credentials import ObservedSecret
from ottla_operator.plan.topic_deletion import DeletionRecord
from ottla_operator.reconcile.platform import Blocked
from ottla_operator.reconcile.watch_cache import Key, WatchCache, resource_key
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.mirror import Mirror
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline

RECORDS_KEY: Final = "topics.json"


class KubePlatform:
    """`identity`: of this operator."""

    roll_timeout_s = 600.0

    def __init__(
        self, api: ApiClient, cache: WatchCache, identity: str, images: BrokerImages, pipeline_image: PipelineImage
    ) -> None:
        self.api = api
        self.cache = cache
        self.status = StatusWriter(api)
        self.events = EventRecorder(api, identity)
        self.pods = PodPlatform(api, self.events, images)
        self.pipelines = PipelineLauncher(api, self.events, pipeline_image)

    # Resources.

    async def find_cluster(self, key: Key) -> Json | None:
        """Asks the API server if the cache has none: right after a start watches have not shown
        everything.
        """
        return self.cache.clusters.get(key) or await self.api.get(CLUSTER, key.namespace, key.name)

    def find_unsupported(self, resource: Json) -> str:
        match resource["kind"]:
            case "Cluster":
                return cluster_objects.find_unsupported(Cluster.parse_stored(resource))
            case "Pipeline":
                return pipeline_objects.find_unsupported(Pipeline.parse_stored(resource))
            case "Mirror":
                return mirror_plan.find_unsupported(Mirror.parse_stored(resource))
        return ""

    async def read_secrets(self, namespace: str, names: Iterable[str]) -> dict[str, ObservedSecret]:
        return await read_secrets(self.api, namespace, names)

    # Reports.

    async def write_status(self, resource: Json, conditions: Conditions, fields: Mapping[str, Json]) -> None:
        await self.status.write(resource, conditions, fields)

    async def record_event(
        self, resource: Json, reason: str, message: str, *, warning: bool = False, lasts: bool = False
    ) -> None:
        await self.events.record(resource, reason, message, warning=warning, lasts=lasts)

    # Clusters.

    async def broker_addresses(self, cluster: Cluster) -> Sequence[str]:
        pods = await self.api.list(POD, cluster.metadata.namespace, names.selector_text(cluster))
        return ready_addresses(broker_pods(cluster, pods).values())

    async def prepare_brokers(self, resource: Json, cluster: Cluster, rejected: Settings, refused: str) -> PodBrokerSet:
        return await self.pods.prepare(resource, cluster, rejected, refused)

    async def forget_cluster(self, key: Key) -> None:
        """Kubernetes deletes what the Cluster owns."""

    # Topics.

    async def find_topic_uid(self, namespace: str, name: str) -> str | None:
        found = await self.api.get(TOPIC, namespace, name)
        return None if found is None else str(found["metadata"]["uid"])

    async def read_deletion_records(self, cluster: Key) -> dict[str, DeletionRecord]:
        found = await self.api.get(CONFIG_MAP, cluster.namespace, _records_name(cluster.name))
        return _parse_records(((found or {}).get("data") or {}).get(RECORDS_KEY, "{}"))

    async def write_deletion_records(self, cluster: Json, records: Mapping[str, DeletionRecord]) -> None:
        """A ConfigMap that is deleted with the Cluster."""
        key = resource_key(cluster)
        owner = {
            "apiVersion": cluster["apiVersion"],
            "kind": cluster["kind"],
            "name": key.name,
            "uid": cluster["metadata"]["uid"],
        }
        await self.api.apply(
            {
                "apiVersion": CONFIG_MAP.api,
                "kind": CONFIG_MAP.name,
                "metadata": {
                    "name": _records_name(key.name),
                    "namespace": key.namespace,
                    "labels": {"app.kubernetes.io/name": "ottla", "app.kubernetes.io/managed-by": names.FIELD_MANAGER},
                    "ownerReferences": [owner],
                },
                "data": {RECORDS_KEY: json.dumps(records, sort_keys=True)},
            }
        )

    # Mirrors.

    def source_bootstrap(self, source: Cluster, mirror: Mirror) -> str:
        tls = mirror.spec.source.tls is not None
        if bootstrap := in_cluster_bootstrap(source, tls=tls):
            return bootstrap
        how = "with TLS, which source.tls asks for" if tls else "without TLS; set source.tls to connect with TLS"
        raise Blocked(Reconciling("SourceNotFound", f"Cluster {source.name}, the source, has no listener {how}"))

    # Pipelines.

    async def plan_launch(self, resource: Json, pipeline: Pipeline, cluster: Cluster) -> PodLaunch:
        return await self.pipelines.plan(resource, pipeline, cluster)

    async def forget_pipeline(self, key: Key) -> None:
        """Kubernetes deletes what the Pipeline owns."""


def _parse_records(text: str) -> dict[str, DeletionRecord]:
    """What others have written into the ConfigMap is ignored."""
    try:
        records = json.loads(text).items()
        return {uid: DeletionRecord(*it) for uid, it in records if len(it) == len(DeletionRecord._fields)}
    except (ValueError, AttributeError, TypeError):
        return {}


def _records_name(cluster: str) -> str:
    return f"{cluster}-topics-to-delete"
