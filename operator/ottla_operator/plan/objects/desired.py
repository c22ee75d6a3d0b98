"""All objects of a Cluster together, and the reason why Kubernetes cannot run a Cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla_operator.plan.objects import names
from ottla_operator.plan.objects.broker_pod import BrokerImages, StartInputs, pod_template, service_account
from ottla_operator.plan.objects.config import broker_settings, common_settings, config_map
from ottla_operator.plan.objects.disruption_budget import disruption_budget
from ottla_operator.plan.objects.network_policy import network_policy
from ottla_operator.plan.objects.services import ServiceAddresses, services, services_without_address
from ottla_operator.plan.settings import Settings
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.model import Json


@dataclass(frozen=True, slots=True)
class ObjectInputs:
    """The state that the objects depend on besides the Cluster.

    `brokers`: number of pods that the StatefulSet must have now. `state_annotations`: annotations
    of the StatefulSet in which the operator keeps state. `common`: settings of all brokers, which
    differ from those of the Cluster if running brokers reject some; None: those of the Cluster.
    `ports_in_use`: inter-broker ports of existing pods.
    """

    brokers: int
    addresses: ServiceAddresses = field(default_factory=ServiceAddresses)
    state_annotations: Mapping[str, str] = field(default_factory=dict)
    common: Settings | None = None
    start: StartInputs = field(default_factory=StartInputs)
    ports_in_use: frozenset[int] = frozenset()

    @property
    def founds(self) -> bool:
        """True if the first broker may found the cluster."""
        return names.FOUNDING in self.state_annotations


@dataclass(frozen=True, slots=True)
class DesiredObjects:
    """`prerequisites`: objects that pods need before they are created. `budget`: the
    PodDisruptionBudget for a time in which every partition can spare a broker. `config`,
    `stateful_set`: None while a broker would not know its address; `waiting_for_services` names the
    Services then."""

    prerequisites: tuple[Json, ...]
    budget: Json
    config: Json | None
    stateful_set: Json | None
    waiting_for_services: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[Json, ...]:
        return (*self.prerequisites, self.budget, *(it for it in (self.config, self.stateful_set) if it is not None))


def desired_objects(cluster: Cluster, images: BrokerImages, inputs: ObjectInputs) -> DesiredObjects:
    """`find_unsupported(cluster)` must be empty."""
    ids = broker_ids(inputs.brokers)
    prerequisites = (
        service_account(cluster),
        *services(cluster, ids),
        network_policy(cluster, inputs.ports_in_use),
    )
    budget = disruption_budget(cluster)
    if waiting := [it for broker in ids for it in services_without_address(cluster, broker, inputs.addresses)]:
        return DesiredObjects(prerequisites, budget, None, None, tuple(waiting))
    common = inputs.common or common_settings(cluster, inputs.brokers, inputs.start.login, inputs.start.tls)
    own = {it: broker_settings(cluster, it, inputs.addresses, founds=inputs.founds) for it in ids}
    config = config_map(cluster, common, own)
    template = pod_template(cluster, images, config["metadata"]["name"], inputs.start)
    return DesiredObjects(
        prerequisites, budget, config, _stateful_set(cluster, template, inputs.brokers, inputs.state_annotations)
    )


def broker_ids(count: int) -> range:
    return range(names.FIRST_BROKER, names.FIRST_BROKER + count)


def find_unsupported(cluster: Cluster) -> str:
    """The reason why Kubernetes cannot run this Cluster; empty if it can."""
    if invalid := names.find_invalid_prefix(cluster.name, "Service"):
        return invalid
    if cluster.spec.storage is None:
        return "spec.storage is missing: Kubernetes needs the size of the brokers' disks, such as storage: {size: 10Gi}"
    return ""


def claimed_storage(stateful_set: Json) -> str:
    """The size of the volume claims that a StatefulSet creates."""
    (claim,) = stateful_set["spec"]["volumeClaimTemplates"]
    return str(claim["spec"]["resources"]["requests"]["storage"])


def _stateful_set(cluster: Cluster, template: Json, broker_count: int, annotations: Mapping[str, str]) -> Json:
    """Pods start in parallel, only the operator restarts them, and each has a volume claim.
    `broker_count`: number of pods; above the Cluster's `replicas` while brokers are being removed.
    """
    storage = cluster.spec.storage
    assert storage is not None
    retention = "Delete" if storage.delete_claim else "Retain"
    claim: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage.size}}}
    if storage.class_ is not None:
        claim["storageClassName"] = storage.class_
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": names.metadata(cluster, cluster.name, annotations=dict(annotations)),
        "spec": {
            "replicas": broker_count,
            "serviceName": names.headless_service(cluster),
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "ordinals": {"start": names.FIRST_BROKER},
            "revisionHistoryLimit": 3,
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": retention, "whenScaled": retention},
            "selector": {"matchLabels": names.selector(cluster)},
            "template": template,
            "volumeClaimTemplates": [
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": {"name": "data", "labels": names.selector(cluster)},
                    "spec": claim,
                }
            ],
        },
    }
