"""Names, labels and annotations of the objects of a Cluster."""

import re
from typing import Final

from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.cluster_listener import Listener
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline

NAME_PREFIX: Final = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
"""Names that can begin the names of Services and pods, which have at most 63 characters."""

FIELD_MANAGER: Final = "ottla-operator"
"""Field manager, and the value of app.kubernetes.io/managed-by."""

OPERATOR: Final = {"app.kubernetes.io/name": "ottla", "app.kubernetes.io/component": "operator"}
"""Labels of the operator's own pods, as the chart gives them."""

INSTANCE: Final = "app.kubernetes.io/instance"
POD_NAME_LABEL: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"
FIRST_BROKER: Final = 1  # as in `ottla up`

POD_HASH: Final = "ottla.dev/pod-hash"
"""Annotation of pods: hash of their template without the settings."""
CERTIFICATES: Final = "ottla.dev/certificates"
"""Annotation of pods: digest of the listeners' certificates that were found usable last when the
pod was created.
"""
LOGIN: Final = "ottla.dev/inter-broker-login"
"""Annotation of pods: Optional or Required, if the broker's inter-broker listener has a login."""
PASSWORDS: Final = "ottla.dev/inter-broker-passwords"
"""Annotation of pods: digest of the passwords of that login that the broker was started with, or
that it has received since by a rotation.
"""
TLS: Final = "ottla.dev/inter-broker-tls"
"""Annotation of pods: Optional or Required, if the broker's inter-broker listener has TLS."""
RESTART_AT: Final = "ottla.dev/restart-at"
"""Annotation of pods: the spec.restartAt that the broker was started after."""
KUBECTL_RESTARTED_AT: Final = "kubectl.kubernetes.io/restartedAt"
"""Annotation of pod templates by which `kubectl rollout restart` asks for a restart."""
RACK: Final = "ottla.dev/rack"
"""Annotation of pods: the rack of their node."""
SPREAD_OVER: Final = "ottla.dev/spread"
"""Annotation of the StatefulSet: brokers over which partitions were last spread."""
CLUSTER_SETTINGS: Final = "ottla.dev/cluster-settings"
"""Annotation of the StatefulSet: settings that the operator has set on the running brokers, as
JSON.
"""
THROTTLED_TOPICS: Final = "ottla.dev/throttled"
"""Annotation of the StatefulSet: topics whose moves are throttled, as JSON."""
FOUNDING: Final = "ottla.dev/founding"
"""Annotation of the StatefulSet: the first broker may found the cluster. Absent once a cluster id
is known.
"""
STATE_ANNOTATIONS: Final = (SPREAD_OVER, CLUSTER_SETTINGS, THROTTLED_TOPICS, FOUNDING)

# No listener of a Cluster can have these names: theirs have no '-'.
BROKERS_PORT: Final = "inter-broker"
HTTP_PORT: Final = "http-metrics"
REGISTRY_PORT: Final = "schema-registry"
_CLAIM: Final = "data-"
_DEFAULT_PORTS: Final = {BROKERS_PORT: 9091, HTTP_PORT: 8080}


def find_invalid_prefix(name: str, kind: str) -> str:
    """The reason why the name of a resource cannot begin the names of objects of a kind; empty if
    it can.
    """
    if NAME_PREFIX.fullmatch(name):
        return ""
    return (
        f"metadata.name: {name!r} cannot begin the names of {kind}s: use a lower-case letter, then at most 39 "
        "lower-case letters, digits and '-', not '-' at the end"
    )


def selector(cluster: Cluster) -> dict[str, str]:
    """Labels of the brokers' pods."""
    return {
        "app.kubernetes.io/name": "ottla",
        INSTANCE: cluster.name,
        "app.kubernetes.io/component": "broker",
    }


def labels(cluster: Cluster) -> dict[str, str]:
    return {**selector(cluster), "app.kubernetes.io/managed-by": FIELD_MANAGER}


def resource_labels(resource: Json, component: str) -> dict[str, str]:
    """Labels of a resource of a Cluster that the operator creates."""
    return {
        "app.kubernetes.io/name": "ottla",
        INSTANCE: resource["spec"]["clusterRef"]["name"],
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/managed-by": FIELD_MANAGER,
    }


def selector_text(cluster: Cluster) -> str:
    """The selector in the form of the scale subresource and of list requests."""
    return ",".join(f"{key}={value}" for key, value in selector(cluster).items())


def metadata(cluster: Cluster, name: str, *, is_owned: bool = True, annotations: dict[str, str] | None = None) -> Json:
    """`is_owned`: True if the object is deleted with the Cluster."""
    return object_metadata(cluster, name, labels(cluster), is_owned=is_owned, annotations=annotations)


def object_metadata(
    owner: Cluster | Pipeline, name: str, labels: dict[str, str], *, is_owned: bool, annotations: dict[str, str] | None
) -> Json:
    """Metadata of an object of `owner`. The owner reference has no blockOwnerDeletion, which would
    need the right to update finalizers.
    """
    made: Json = {"name": name, "namespace": owner.metadata.namespace, "labels": labels}
    if annotations:
        made["annotations"] = annotations
    if is_owned:
        made["ownerReferences"] = [
            {
                "apiVersion": owner.api_version,
                "kind": owner.kind,
                "name": owner.name,
                "uid": owner.metadata.uid,
                "controller": True,
            }
        ]
    return made


def login_secret(cluster: Cluster) -> str:
    """The Secret with the passwords of brokers and operator."""
    return f"{cluster.name}-inter-broker-login"


def headless_service(cluster: Cluster) -> str:
    return f"{cluster.name}-brokers"


def bootstrap_service(cluster: Cluster, listener: Listener) -> str:
    return f"{cluster.name}-{listener.name}-bootstrap"


def registry_service(cluster: Cluster) -> str:
    return f"{cluster.name}-schema-registry"


def broker_service(cluster: Cluster, listener: Listener, broker: int) -> str:
    """The Service by which external clients reach one broker."""
    return f"{cluster.name}-{listener.name}-{broker}"


def pod(cluster: Cluster, broker: int) -> str:
    return f"{cluster.name}-{broker}"


def claim(cluster: Cluster, broker: int) -> str:
    """The volume claim of one broker, as the StatefulSet controller names it."""
    return f"{_CLAIM}{pod(cluster, broker)}"


def claimed_by(cluster: Cluster, claim: str) -> int | None:
    """The broker of a volume claim; None for claims of other names."""
    prefix, pod_name = claim[: len(_CLAIM)], claim[len(_CLAIM) :]
    return broker_id(cluster, pod_name) if prefix == _CLAIM else None


def broker_id(cluster: Cluster, pod_name: str) -> int | None:
    """The broker of a pod; None for pods of other names."""
    prefix, _, number = pod_name.rpartition("-")
    return int(number) if prefix == cluster.name and number.isdigit() else None


def pod_host(cluster: Cluster, broker: int) -> str:
    return f"{pod(cluster, broker)}.{service_host(cluster, headless_service(cluster))}"


def service_host(cluster: Cluster, service: str) -> str:
    """Host name of a Service without the Kubernetes cluster's domain, which is unknown here: every
    pod's resolver completes it.
    """
    return f"{service}.{cluster.metadata.namespace}.svc"


def brokers_port(cluster: Cluster) -> int:
    """Port of the inter-broker listener."""
    return _free_port(cluster, BROKERS_PORT)


def http_port(cluster: Cluster) -> int:
    """Port of health checks and metrics."""
    return _free_port(cluster, HTTP_PORT)


def _free_port(cluster: Cluster, purpose: str) -> int:
    """The default port of BROKERS_PORT or HTTP_PORT, or the next lower one that no listener has."""
    taken = {it.port for it in cluster.listeners} | {cluster.schema_registry_port}
    port = _DEFAULT_PORTS[purpose]
    while port in taken:
        port -= 1
    return port
