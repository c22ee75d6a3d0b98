"""The brokers of a Cluster as the pods of a StatefulSet."""

import datetime
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ottla_operator.kube.api import ApiClient
from ottla_operator.kube.broker_connections import BrokerConnections, check_secret_in_use
from ottla_operator.kube.founding import may_found_cluster
from ottla_operator.kube.internal_certificates import InternalCertificates
from ottla_operator.kube.kinds import CONFIG_MAP, POD, SERVICE, STATEFUL_SET
from ottla_operator.kube.login_secrets import update_login
from ottla_operator.kube.owned_objects import ClusterObjects, OwnedObjects
from ottla_operator.kube.pod_failures import add_start_failures, find_creation_failure
from ottla_operator.kube.rack_labels import RackLabels
from ottla_operator.kube.secrets import read_secrets
from ottla_operator.kube.status_writer import EventRecorder
from ottla_operator.kube.storage_expansion import expand_storage
from ottla_operator.plan import listener_certificates as tls
from ottla_operator.plan.cluster_status import CERTIFICATE_UNUSABLE, ObservedBroker, evaluate_refused_settings
from ottla_operator.plan.conditions import Reconciling, Stalled
from ottla_operator.plan.console import console_files, secret_names
from ottla_operator.plan.inter_broker_login import plan_login
from ottla_operator.plan.inter_broker_tls import keep_certificates, plan_tls, requires_inter_broker_tls
from ottla_operator.plan.objects import names
from ottla_operator.plan.objects.broker_pod import BrokerImages, StartInputs, pod_hash
from ottla_operator.plan.objects.config import common_settings, read_settings
from ottla_operator.plan.objects.desired import DesiredObjects, ObjectInputs, broker_ids, desired_objects
from ottla_operator.plan.objects.disruption_budget import disruption_budget
from ottla_operator.plan.objects.services import (
    ServiceAddress,
    ServiceAddresses,
    bootstrap_addresses,
    certificate_names,
)
from ottla_operator.plan.observed_pods import BrokerPod, broker_pods, image_version
from ottla_operator.plan.password_rotation import LoginSecret, due_rotation
from ottla_operator.plan.registry_access import RegistryAccess
from ottla_operator.plan.restart import describe_restart, due_restart
from ottla_operator.plan.settings import Settings, broker_count_for_defaults, without_rejected
from ottla_operator.plan.source_credentials import SecretUnusable
from ottla_operator.reconcile.platform import Blocked, BrokerAccess, ReconcileState
from ottla_operator.reconcile.scaling import ALL_TOPICS
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.cluster_tls import CertificateStatus
from ottla_operator.resources.common import parse_time
from ottla_operator.resources.model import Json

TERMINATING_RETRY_S: Final = 0.5
WAIT_S: Final = 2.0
MAX_ANNOTATION_LENGTH: Final = 64 * 1024  # all annotations of an object together have 256 KiB
UNUSED_CONFIG_TTL: Final = datetime.timedelta(minutes=1)
"""Age below which no ConfigMap is deleted: a pod may just be starting with it."""


class _SecretCertificates(NamedTuple):
    """The certificates in the Secret of `tls.secretRef`. `digest`: empty without a Secret. `error`:
    why they cannot be used; then `digest` is that of the certificates in use, None if there are
    none.
    """

    digest: str | None
    status: CertificateStatus | None = None
    error: str = ""


class PodPlatform:
    """Brings the objects of Clusters to their specs, except for what needs a restart, a move or the
    removal of a broker.
    """

    def __init__(self, api: ApiClient, events: EventRecorder, images: BrokerImages) -> None:
        self.api = api
        self.events = events
        self.images = images
        self.objects = OwnedObjects(api)
        self._racks = RackLabels(api)
        self._connections = BrokerConnections(api)
        self._internal_certificates = InternalCertificates(api, self.objects)

    async def prepare(self, resource: Json, cluster: Cluster, rejected: Settings, refused: str) -> "PodBrokerSet":
        """See `Platform.prepare_brokers`."""
        observed = await self.objects.observe(cluster)
        stateful_set = observed.stateful_set
        if refused and stateful_set is None and not observed.pods:
            raise Blocked(evaluate_refused_settings(refused))
        if stateful_set and "deletionTimestamp" in stateful_set["metadata"]:
            message = "the StatefulSet is being deleted and will be recreated"
            raise Blocked(Reconciling("Terminating", message), TERMINATING_RETRY_S)
        # An operator that was killed while disks were expanded leaves pods without a StatefulSet.
        existing = stateful_set["spec"]["replicas"] if stateful_set else max(observed.pods, default=0)
        tls_stage = plan_tls(cluster, [it.tls for it in observed.pods.values()])
        cluster = keep_certificates(cluster, tls_stage)
        if tls_stage:
            check_secret_in_use(cluster, observed.pods.values())
        digest, certificate, certificate_error = await self._read_certificates(cluster, stateful_set)
        if digest is None:
            raise Blocked(Stalled(CERTIFICATE_UNUSABLE, certificate_error), WAIT_S)
        if certificate is not None and _certificates_in_use(stateful_set) not in (None, digest):
            message = (
                f"Secret {tls.secret_name(cluster)} is renewed, valid until {certificate.not_after}: brokers read it"
            )
            await self.events.record(resource, "CertificateChanged", message)
        await self._check_console_secrets(cluster)
        login = plan_login(cluster, [it.login for it in observed.pods.values()])
        now = datetime.datetime.now(datetime.UTC)
        login_secret = await self._connections.prepare_login(cluster, login, observed, due_rotation(cluster, now))
        count = max(existing, cluster.spec.replicas)
        annotations = observed.state_annotations
        if stateful_set is None and await may_found_cluster(self.api, resource, cluster):
            annotations = {**annotations, names.FOUNDING: "true"}
        state = parse_state(annotations)
        common = common_settings(cluster, broker_count_for_defaults(count, state.spread_over), login, tls_stage)
        inputs = ObjectInputs(
            count,
            _addresses(observed),
            annotations,
            without_rejected(common, rejected, _settings_in_use(observed)),
            StartInputs(
                digest,
                login,
                tls_stage,
                login_secret.in_use.digest if login_secret else "",
                due_restart(cluster, now),
            ),
            frozenset(it.port for it in observed.pods.values()),
        )
        await self._apply_prerequisites(cluster, observed, inputs)
        if tls.issues_certificates(cluster):
            certificate, certificate_error = await self._maintain_certificates(resource, cluster, observed, count)
        desired = await self._apply(resource, cluster, observed, inputs)
        await self._answer_rollout_restart(resource, cluster, stateful_set)
        inputs = replace(inputs, addresses=_addresses(observed))
        creation_error = await find_creation_failure(self.api, cluster, observed)
        await add_start_failures(self.api, cluster, observed)
        access = await self._connections.access(cluster, observed.pods.values())
        return PodBrokerSet(
            self, cluster, observed, inputs, desired, access, login_secret, certificate, certificate_error,
            creation_error,
        )  # fmt: skip

    async def access(self, cluster: Cluster) -> BrokerAccess:
        """See `Platform.broker_access`."""
        listed = await self.api.list(POD, cluster.metadata.namespace, names.selector_text(cluster))
        return await self._connections.access(cluster, broker_pods(cluster, listed).values())

    async def registry_access(self, cluster: Cluster, brokers: BrokerAccess) -> RegistryAccess:
        """See `Platform.registry_access`."""
        return await self._connections.registry_access(cluster, brokers)

    async def _answer_rollout_restart(self, resource: Json, cluster: Cluster, stateful_set: Json | None) -> None:
        """Records an event that `kubectl rollout restart` is ignored, and removes its annotation,
        so that the event is recorded once.
        """
        template = stateful_set["spec"]["template"]["metadata"] if stateful_set else {}
        if not (requested_at := (template.get("annotations") or {}).get(names.KUBECTL_RESTARTED_AT)):
            return
        message = (
            f"kubectl rollout restart (at {requested_at}) restarts no broker: the operator restarts them "
            "one at a time, each "
            f"when all partitions can spare it. Set spec.restartAt: {requested_at} in Cluster {cluster.name}"
        )
        await self.events.record(resource, "RolloutRestartIgnored", message, is_warning=True)
        change = {"spec": {"template": {"metadata": {"annotations": {names.KUBECTL_RESTARTED_AT: None}}}}}
        await self.api.merge(STATEFUL_SET, cluster.metadata.namespace, cluster.name, change)

    async def _read_certificates(self, cluster: Cluster, stateful_set: Json | None) -> _SecretCertificates:
        in_use = _certificates_in_use(stateful_set)
        try:
            secrets = await read_secrets(self.api, cluster.metadata.namespace, filter(None, [tls.secret_name(cluster)]))
            found = tls.read_certificates(cluster, secrets)
            if found is None:
                return _SecretCertificates("")
            status = tls.check_certificates(found, time.time() if found.digest != in_use else None)
            if requires_inter_broker_tls(cluster):
                tls.check_certificates_between_brokers(found, names.pod_host(cluster, names.FIRST_BROKER))
        except SecretUnusable as error:
            return _SecretCertificates(in_use, error=str(error))
        return _SecretCertificates(found.digest, status)

    async def _check_console_secrets(self, cluster: Cluster) -> None:
        """Raises Blocked if a Secret is missing or unusable: a pod with it would not start."""
        try:
            console_files(cluster, await read_secrets(self.api, cluster.metadata.namespace, secret_names(cluster)))
        except SecretUnusable as error:
            raise Blocked(Stalled("ConsoleSecretUnusable", str(error)), WAIT_S) from error

    async def _maintain_certificates(
        self, resource: Json, cluster: Cluster, observed: ClusterObjects, broker_count: int
    ) -> tuple[CertificateStatus | None, str]:
        """Returns the status of the certificates of the Cluster's own authority; None, and the
        reason, if they cannot be renewed. Raises Blocked if there are no certificates to start
        brokers with.
        """
        node_ips = [it.node_ip for it in observed.pods.values()]
        alternative_names = certificate_names(cluster, broker_ids(broker_count), _addresses(observed), node_ips)
        try:
            issued = await self._internal_certificates.maintain(cluster, alternative_names)
        except SecretUnusable as error:
            if observed.stateful_set is None:
                raise Blocked(Stalled(CERTIFICATE_UNUSABLE, str(error)), WAIT_S) from error
            return None, str(error)
        for change in issued.changes:
            await self.events.record(resource, "CertificateChanged", change)
        return issued.status, ""

    async def _apply_prerequisites(self, cluster: Cluster, observed: ClusterObjects, inputs: ObjectInputs) -> None:
        """Applies what pods need before they are created."""
        await self.objects.apply_all(desired_objects(cluster, self.images, inputs).prerequisites, observed)

    async def _apply(
        self, resource: Json, cluster: Cluster, observed: ClusterObjects, inputs: ObjectInputs
    ) -> DesiredObjects:
        """Applies the brokers' ConfigMap and StatefulSet, and the annotations of pods. Raises
        Blocked while a Service has no address.
        """
        desired = desired_objects(cluster, self.images, replace(inputs, addresses=_addresses(observed)))
        if desired.config is None or desired.stateful_set is None:
            message = f"Service {', '.join(desired.waiting_for_services)} has no address yet"
            raise Blocked(Reconciling("WaitingForAddress", message), WAIT_S)
        await self.objects.apply_all([desired.config], observed)
        if await expand_storage(self.api, cluster, observed):
            assert cluster.spec.storage is not None
            await self.events.record(resource, "StorageExpanding", f"expanding disks to {cluster.spec.storage.size}")
            observed.stateful_set = None
        observed.stateful_set = await self.objects.apply(desired.stateful_set, observed.stateful_set)
        for node in await self._racks.annotate_pods(cluster, observed):
            label = cluster.spec.rack.topology_key if cluster.spec.rack else ""
            message = f"node {node} has no label {label}"
            await self.events.record(resource, "RackLabelMissing", message, is_warning=True, lasts=True)
        return desired


class PodBrokerSet:
    """See `reconcile.platform.BrokerSet`."""

    def __init__(
        self,
        platform: PodPlatform,
        cluster: Cluster,
        observed: ClusterObjects,
        inputs: ObjectInputs,
        desired: DesiredObjects,
        access: BrokerAccess,
        login: LoginSecret | None,
        certificate: CertificateStatus | None,
        certificate_error: str,
        creation_error: str,
    ) -> None:
        assert desired.config is not None and desired.stateful_set is not None
        self._platform, self._cluster, self._observed, self._inputs = platform, cluster, observed, inputs
        self._needed = {(it["kind"], it["metadata"]["name"]) for it in desired.all}
        self.count = inputs.brokers
        self.state = parse_state(inputs.state_annotations)
        self.desired = {id_: read_settings(desired.config, id_) for id_ in broker_ids(cluster.spec.replicas)}
        self.access = access
        self.login = login
        self.replica_addresses = [it.address for it in observed.pods.values() if it.address and not it.is_terminating]
        self.bootstrap = bootstrap_addresses(cluster, inputs.addresses)
        self.selector = names.selector_text(cluster)
        self.certificate = certificate
        self.certificate_error = certificate_error
        self.creation_error = creation_error
        reasons = _RestartReasons(
            cluster, platform.images, pod_hash(desired.stateful_set["spec"]["template"]), inputs, login
        )
        settings = _started_with(observed)
        self.brokers = {
            it.broker: _observe_broker(it, settings[it.broker], reasons.find(it)) for it in observed.pods.values()
        }

    async def restart(self, broker: int) -> None:
        """Deletes the pod; the StatefulSet creates it again."""
        pod = self._observed.pods[broker]
        metadata = {"name": pod.name, "namespace": self._cluster.metadata.namespace, "uid": pod.uid}
        await self._platform.api.delete(POD, {"metadata": metadata})

    async def save(self, count: int, state: ReconcileState) -> None:
        inputs = replace(self._inputs, brokers=count, state_annotations=format_state(state))
        desired = desired_objects(self._cluster, self._platform.images, inputs)
        assert desired.stateful_set is not None and desired.config is not None
        objects, observed = self._platform.objects, self._observed
        await objects.apply_all([desired.config], observed)
        observed.stateful_set = await objects.apply(desired.stateful_set, observed.stateful_set)

    async def save_login(self, login: LoginSecret) -> None:
        assert self.login is not None
        await update_login(self._platform.api, self._cluster, self._observed, self.login, login)

    async def finish(self, *, can_spare_a_broker: bool) -> None:
        """Deletes Services of brokers and listeners that were removed, and ConfigMaps that no pod
        uses and that are older than UNUSED_CONFIG_TTL. Sets how many brokers may be evicted.
        """
        for name, service in self._observed.services.items():
            if ("Service", name) not in self._needed:
                await self._platform.api.delete(SERVICE, service)
        in_use = {it.settings for it in self._observed.pods.values()} | {_mounted_config(self._observed.stateful_set)}
        now = datetime.datetime.now(datetime.UTC)
        for name, config_map in self._observed.config_maps.items():
            is_old = now - parse_time(config_map["metadata"]["creationTimestamp"]) > UNUSED_CONFIG_TTL
            is_ours = name.startswith(f"{self._cluster.name}-settings-")
            if is_old and is_ours and name not in in_use and ("ConfigMap", name) not in self._needed:
                await self._platform.api.delete(CONFIG_MAP, config_map)
        budget = disruption_budget(self._cluster, can_spare_a_broker=can_spare_a_broker)
        await self._platform.objects.apply_all([budget], self._observed)


@dataclass(frozen=True, slots=True)
class _RestartReasons:
    """Finds the reason why a pod has to be restarted, apart from its settings. `pod_hash`: hash of
    the desired template. `login`: None without passwords.
    """

    cluster: Cluster
    images: BrokerImages
    pod_hash: str
    inputs: ObjectInputs
    login: LoginSecret | None

    def find(self, pod: BrokerPod) -> str:
        """Empty if the pod need not be restarted."""
        image = self.images.of(self.cluster)
        if pod.pod_hash != self.pod_hash:
            return f"image {image}" if pod.image != image else "pod template"
        if pod.passwords not in (self.login.digests if self.login else ("",)):
            return f"passwords of Secret {names.login_secret(self.cluster)}"
        return describe_restart(self.inputs.start.restart_at, pod.restart_at)


def parse_state(annotations: Mapping[str, str]) -> ReconcileState:
    return ReconcileState(
        frozenset(int(it) for it in annotations.get(names.SPREAD_OVER, "").split(",") if it),
        json.loads(annotations.get(names.CLUSTER_SETTINGS, "{}")),
        frozenset(json.loads(annotations.get(names.THROTTLED_TOPICS, "[]"))),
        names.FOUNDING in annotations,
    )


def format_state(state: ReconcileState) -> dict[str, str]:
    """The state as annotations; empty values have none. Throttled topics beyond
    MAX_ANNOTATION_LENGTH are stored as ALL_TOPICS.
    """
    topics = json.dumps(sorted(state.throttled_topics))
    annotations = {
        names.SPREAD_OVER: ",".join(map(str, sorted(state.spread_over))),
        names.CLUSTER_SETTINGS: json.dumps(state.cluster_settings, sort_keys=True) if state.cluster_settings else "",
        names.THROTTLED_TOPICS: topics if len(topics) <= MAX_ANNOTATION_LENGTH else json.dumps([ALL_TOPICS]),
        names.FOUNDING: "true" if state.is_founding else "",
    }
    if not state.throttled_topics:
        del annotations[names.THROTTLED_TOPICS]
    return {key: value for key, value in annotations.items() if value}


def _observe_broker(pod: BrokerPod, settings: Settings | None, outdated: str) -> ObservedBroker:
    unready_for_s = (datetime.datetime.now(datetime.UTC) - pod.since).total_seconds()
    return ObservedBroker(
        id=pod.broker,
        is_ready=pod.is_ready,
        started_with=settings,
        outdated=outdated,
        is_terminating=pod.is_terminating,
        unready_for_s=0.0 if pod.is_ready else unready_for_s,
        problem=pod.problem,
        version=image_version(pod.image),
        config_hash=pod.settings.rpartition("-")[2],
    )


def _started_with(observed: ClusterObjects) -> dict[int, Settings | None]:
    """The settings that each pod was started with; None if its ConfigMap no longer exists."""
    return {
        id_: read_settings(observed.config_maps[it.settings], id_) if it.settings in observed.config_maps else None
        for id_, it in observed.pods.items()
    }


def _settings_in_use(observed: ClusterObjects) -> Settings:
    """The settings of a ready broker; of any other if none is ready; those with which the next
    broker would start if there is none. Empty if no ConfigMap has them.
    """
    started = _started_with(observed)
    pods = sorted(observed.pods.values(), key=lambda it: not it.is_ready)
    template = observed.config_maps.get(_mounted_config(observed.stateful_set))
    candidates = [
        *(started[it.broker] for it in pods),
        read_settings(template, names.FIRST_BROKER) if template else None,
    ]
    return next((it for it in candidates if it is not None), {})


def _addresses(observed: ClusterObjects) -> ServiceAddresses:
    return ServiceAddresses({name: ServiceAddress.of(it) for name, it in observed.services.items()})


def _certificates_in_use(stateful_set: Json | None) -> str | None:
    """The digest of the certificates that were found usable last; None if none were."""
    if stateful_set is None:
        return None
    annotations = stateful_set["spec"]["template"]["metadata"].get("annotations") or {}
    found: str | None = annotations.get(names.CERTIFICATES)
    return found


def _mounted_config(stateful_set: Json | None) -> str:
    if stateful_set is None:
        return ""
    volumes = stateful_set["spec"]["template"]["spec"].get("volumes") or []
    return next((str(it["configMap"]["name"]) for it in volumes if it["name"] == "settings"), "")
