"""What the objects of a Cluster are called, and by which labels they are found again."""

from typing import Final

from ottla_operator.resources.cluster import Cluster, Listener
from ottla_operator.resources.common import API_VERSION
from ottla_operator.resources.model import Json

FIELD_MANAGER: Final = "ottla-operator"
"""Field manager, and the value of app.kubernetes.io/managed-by."""

OPERATOR: Final = {"app.kubernetes.io/name": "ottla", "app.kubernetes.io/component": "operator"}
"""Labels of the operator's own pods, as the chart gives them."""

INSTANCE: Final = "app.kubernetes.io/instance"
POD_NAME_LABEL: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"
FIRST_BROKER: Final = 1  # as `ottla up` counts

POD_HASH: Final = "ottla.dev/pod-hash"
"""Annotation of pods: names everything of their template but the settings."""
CERTIFICATES: Final = "ottla.dev/certificates"
"""Annotation of pods: names the certificates of listeners that the broker was started with."""
RACK: Final = "ottla.dev/rack"
"""Annotation of pods: the rack that their node stands in."""
SPREAD_OVER: Final = "ottla.dev/spread"
"""Annotation of the StatefulSet: brokers over which partitions were spread."""
CLUSTER_SETTINGS: Final = "ottla.dev/cluster-settings"
"""Annotation of the StatefulSet: settings that the operator has set on the running brokers, as JSON."""
THROTTLED_TOPICS: Final = "ottla.dev/throttled"
"""Annotation of the StatefulSet: topics whose moves are throttled, as JSON."""
STATE_ANNOTATIONS: Final = (SPREAD_OVER, CLUSTER_SETTINGS, THROTTLED_TOPICS)

# A listener of a Cluster cannot be called so: theirs have no '-'.
BROKERS_PORT: Final = "inter-broker"
HTTP_PORT: Final = "http-metrics"
_USUAL_PORTS: Final = {BROKERS_PORT: 9091, HTTP_PORT: 8080}


def selector(cluster: Cluster) -> dict[str, str]:
    """The labels that tell the brokers' pods of this cluster."""
    return {
        "app.kubernetes.io/name": "ottla",
        INSTANCE: cluster.name,
        "app.kubernetes.io/component": "broker",
    }


def labels(cluster: Cluster) -> dict[str, str]:
    return {**selector(cluster), "app.kubernetes.io/managed-by": FIELD_MANAGER}


def selector_text(cluster: Cluster) -> str:
    """As the scale subresource and list requests take it."""
    return ",".join(f"{key}={value}" for key, value in selector(cluster).items())


def metadata(cluster: Cluster, name: str, *, owned: bool = True, annotations: dict[str, str] | None = None) -> Json:
    """`owned`: whether the object goes when the Cluster goes."""
    made: Json = {"name": name, "namespace": cluster.metadata.namespace, "labels": labels(cluster)}
    if annotations:
        made["annotations"] = annotations
    if owned:
        made["ownerReferences"] = [owner(cluster)]
    return made


def owner(cluster: Cluster) -> Json:
    """blockOwnerDeletion is left out: it would need the right to update finalizers, and nothing has to wait for anything."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Cluster",
        "name": cluster.name,
        "uid": uid(cluster),
        "controller": True,
    }


def uid(cluster: Cluster) -> str:
    return cluster.metadata.uid


def headless_service(cluster: Cluster) -> str:
    return f"{cluster.name}-brokers"


def bootstrap_service(cluster: Cluster, listener: Listener) -> str:
    return f"{cluster.name}-{listener.name}-bootstrap"


def broker_service(cluster: Cluster, listener: Listener, broker: int) -> str:
    """The Service by which clients outside reach one broker."""
    return f"{cluster.name}-{listener.name}-{broker}"


def register_lease(cluster: Cluster) -> str:
    return f"{cluster.name}-register"


def pod(cluster: Cluster, broker: int) -> str:
    return f"{cluster.name}-{broker}"


def claim(cluster: Cluster, broker: int) -> str:
    """The volume claim of one broker, as the StatefulSet's controller names it."""
    return f"data-{pod(cluster, broker)}"


def broker_id(cluster: Cluster, pod_name: str) -> int | None:
    """The broker that a pod is; None for pods of other names."""
    prefix, _, number = pod_name.rpartition("-")
    return int(number) if prefix == cluster.name and number.isdigit() else None


def service_host(cluster: Cluster, service: str) -> str:
    """Without the Kubernetes cluster's own domain, which nobody tells us: every pod's resolver completes it."""
    return f"{service}.{cluster.metadata.namespace}.svc"


def brokers_port(cluster: Cluster) -> int:
    """Where brokers speak to each other."""
    return _free(cluster, BROKERS_PORT)


def http_port(cluster: Cluster) -> int:
    """Health and metrics."""
    return _free(cluster, HTTP_PORT)


def _free(cluster: Cluster, purpose: str) -> int:
    taken = {it.port for it in cluster.listeners}
    port = _USUAL_PORTS[purpose]
    while port in taken:
        port -= 1
    return port
