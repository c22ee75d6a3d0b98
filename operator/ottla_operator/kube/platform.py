"""Kubernetes as a `reconcile.platform.Platform`, composed of its parts."""

from collections.abc import Iterable, Mapping, Sequence

from ottla_operator.kube.api import ApiClient
from ottla_operator.kube.brokers import PodBrokerSet, PodPlatform
from ottla_operator.kube.kinds import ACCESS_POLICY, CLUSTER, CONFIG_MAP, TOPIC, USER, kind_of
from ottla_operator.kube.owned_resources import OwnedResources, is_owned_by
from ottla_operator.kube.pipelines import PipelineLauncher, PodLaunch
from ottla_operator.kube.resource_records import TOPICS, USERS, read_resource_records, write_resource_records
from ottla_operator.kube.secrets import read_secrets
from ottla_operator.kube.status_writer import EventRecorder, StatusWriter
from ottla_operator.kube.user_secrets import read_user_secret, write_user_secret
from ottla_operator.plan import mirror as mirror_plan
from ottla_operator.plan.conditions import Conditions, Reconciling
from ottla_operator.plan.objects import desired as cluster_objects
from ottla_operator.plan.objects.broker_pod import BrokerImages
from ottla_operator.plan.objects.services import in_cluster_bootstrap
from ottla_operator.plan.pipeline import desired as pipeline_objects
from ottla_operator.plan.pipeline.pods import PipelineImage
from ottla_operator.plan.registry_access import RegistryAccess
from ottla_operator.plan.settings import Settings
from ottla_operator.plan.source_credentials import ObservedSecret, uses_sasl
from ottla_operator.plan.topic_deletion import DeletionRecord
from ottla_operator.plan.user_records import UserRecord, parse_records
from ottla_operator.plan.user_secret import Contents
from ottla_operator.reconcile.component_users import pipeline_login
from ottla_operator.reconcile.platform import Blocked, BrokerAccess
from ottla_operator.reconcile.watch_cache import Key, WatchCache
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.mirror import Mirror
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline
from ottla_operator.resources.user import User


class KubePlatform:
    """`identity`: name of this operator process in events."""

    roll_timeout_s = 600.0

    def __init__(
        self, api: ApiClient, cache: WatchCache, identity: str, images: BrokerImages, pipeline_image: PipelineImage
    ) -> None:
        self.api = api
        self.cache = cache
        self.status = StatusWriter(api)
        self.events = EventRecorder(api, identity)
        self.pods = PodPlatform(api, self.events, images)
        self._owned_resources = OwnedResources(api)
        self.pipelines = PipelineLauncher(api, self.events, pipeline_image)

    # Resources.

    async def find_cluster(self, key: Key) -> Json | None:
        """The cached Cluster, or else that of the API server: right after a start, the cache may
        not be complete.
        """
        return self.cache.clusters.get(key) or await self.api.get(CLUSTER, key.namespace, key.name)

    async def find_access_policy(self, key: Key) -> Json | None:
        return self.cache.policies.get(key) or await self.api.get(ACCESS_POLICY, key.namespace, key.name)

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

    async def read_config_map(self, namespace: str, name: str) -> Mapping[str, str] | None:
        found = await self.api.get(CONFIG_MAP, namespace, name)
        return None if found is None else found.get("data") or {}

    async def write_finalizers(self, resource: Json, finalizers: Sequence[str]) -> None:
        metadata = resource["metadata"]
        change = {"metadata": {"finalizers": [*finalizers], "resourceVersion": metadata["resourceVersion"]}}
        written = await self.api.merge(kind_of(resource), metadata["namespace"], metadata["name"], change)
        metadata["finalizers"] = [*finalizers]
        metadata["resourceVersion"] = written["metadata"]["resourceVersion"]

    # Reports.

    async def write_status(self, resource: Json, conditions: Conditions, fields: Mapping[str, Json]) -> None:
        await self.status.write(resource, conditions, fields)

    async def record_event(
        self, resource: Json, reason: str, message: str, *, is_warning: bool = False, lasts: bool = False
    ) -> None:
        await self.events.record(resource, reason, message, is_warning=is_warning, lasts=lasts)

    # Clusters.

    async def broker_access(self, cluster: Cluster) -> BrokerAccess:
        return await self.pods.access(cluster)

    async def prepare_brokers(self, resource: Json, cluster: Cluster, rejected: Settings, refused: str) -> PodBrokerSet:
        return await self.pods.prepare(resource, cluster, rejected, refused)

    async def forget_cluster(self, key: Key) -> None:
        """Kubernetes deletes what the Cluster owns."""

    # Topics.

    async def find_topic_uid(self, namespace: str, name: str) -> str | None:
        found = await self.api.get(TOPIC, namespace, name)
        return None if found is None else str(found["metadata"]["uid"])

    async def read_deletion_records(self, cluster: Key) -> dict[str, DeletionRecord]:
        return parse_records(DeletionRecord, await read_resource_records(self.api, cluster, TOPICS))

    async def write_deletion_records(self, cluster: Json, records: Mapping[str, DeletionRecord]) -> None:
        await write_resource_records(self.api, cluster, TOPICS, records)

    async def ensure_topic_pipeline(self, topic: Json, pipeline: Json) -> Json | None:
        cached = self._find_topic_pipeline(topic, pipeline["metadata"]["name"])
        return await self._owned_resources.ensure(topic, pipeline, cached)

    async def delete_topic_pipeline(self, topic: Json, name: str) -> None:
        await self._owned_resources.delete(topic, self._find_topic_pipeline(topic, name))

    def _find_topic_pipeline(self, topic: Json, name: str) -> Json | None:
        """The cached Pipeline of this name, if the Topic owns it."""
        cached = self.cache.pipelines.get(Key(topic["metadata"]["namespace"], name))
        return cached if cached is not None and is_owned_by(cached, topic) else None

    # Schemas.

    async def registry_access(self, cluster: Cluster, brokers: BrokerAccess) -> RegistryAccess:
        return await self.pods.registry_access(cluster, brokers)

    # Users.

    async def find_user_uid(self, namespace: str, name: str) -> str | None:
        found = await self.api.get(USER, namespace, name)
        return None if found is None else str(found["metadata"]["uid"])

    async def find_user(self, cluster: Key, name: str) -> Json | None:
        return self.cache.users.get(cluster, {}).get(name)

    async def ensure_component_user(self, owner: Json, user: Json) -> Json | None:
        metadata = user["metadata"]
        cached = await self.find_user(Key(metadata["namespace"], user["spec"]["clusterRef"]["name"]), metadata["name"])
        return await self._owned_resources.ensure(owner, user, cached)

    async def delete_component_user(self, owner: Json, cluster: Key, name: str) -> None:
        await self._owned_resources.delete(owner, await self.find_user(cluster, name))

    async def read_user_records(self, cluster: Key) -> dict[str, UserRecord]:
        return parse_records(UserRecord, await read_resource_records(self.api, cluster, USERS))

    async def write_user_records(self, cluster: Json, records: Mapping[str, UserRecord]) -> None:
        await write_resource_records(self.api, cluster, USERS, records)

    async def read_user_secret(self, cluster: Cluster, user: User) -> Contents:
        metadata = user.metadata
        return await read_user_secret(self.api, metadata.namespace, user.secret_name, metadata.uid)

    async def write_user_secret(self, user: Json, name: str, data: Contents) -> None:
        await write_user_secret(self.api, user, name, data)

    async def forget_user(self, cluster: Json, record: UserRecord) -> None:
        """Kubernetes deletes the Secret, which the User owns."""

    # Mirrors.

    def source_bootstrap(self, source: Cluster, mirror: Mirror) -> str:
        tls, login = mirror.spec.source.tls is not None, uses_sasl(mirror)
        if bootstrap := in_cluster_bootstrap(source, has_tls=tls, has_login=login):
            return bootstrap
        how = "with TLS, which source.tls asks for" if tls else "without TLS"
        how += ", and with SCRAM, which source.credentials asks for" if login else ""
        how += "" if tls else "; set source.tls to connect with TLS"
        raise Blocked(Reconciling("SourceNotFound", f"Cluster {source.name}, the source, has no listener {how}"))

    # Pipelines.

    async def plan_launch(self, resource: Json, pipeline: Pipeline, cluster: Cluster) -> PodLaunch:
        login = await pipeline_login(self, resource, pipeline, cluster)
        return await self.pipelines.plan(resource, pipeline, cluster, login)

    async def forget_pipeline(self, key: Key) -> None:
        """Kubernetes deletes what the Pipeline owns."""
