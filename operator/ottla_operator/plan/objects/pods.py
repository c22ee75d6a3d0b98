"""The pod of a broker, as the StatefulSet's template says it.

Kubernetes' restricted security profile holds; nothing but the data volume is written. The template's hash leaves the settings out: which of them need
a restart is decided from what is in them.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Final

from ottla_operator.plan import listener_certificates as tls
from ottla_operator.plan.objects import names
from ottla_operator.plan.objects.merging import strategic_merge
from ottla_operator.plan.objects.security_context import container_security, pod_security
from ottla_operator.plan.objects.services import external_listeners
from ottla_operator.plan.objects.settings import CERTIFICATES_PATH, COMMON_FILE, DATA_PATH, broker_file
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.model import Json

SETTINGS_AT: Final = "/etc/ottla"
PLACE_AT: Final = "/etc/ottla-place"
STOP_WITHIN_S: Final = 60
RACK_WITHIN_S: Final = 30  # then a broker goes without: it is better there and badly placed than away


@dataclass(frozen=True, slots=True)
class BrokerImages:
    """`repository` of the brokers' image, and the `version` of Ottla that a Cluster gets which names none."""

    repository: str
    version: str

    def of(self, cluster: Cluster) -> str:
        return cluster.spec.image or f"{self.repository}:{cluster.spec.version or self.version}"


def pod_template(cluster: Cluster, images: BrokerImages, settings: str, certificates: str = "") -> Json:
    """`settings`: name of the ConfigMap. `certificates`: names those of the listeners."""
    hash_ = hashlib.sha256(json.dumps(_template(cluster, images, ""), sort_keys=True).encode()).hexdigest()[:10]
    template = _template(cluster, images, settings)
    ours = {names.POD_HASH: hash_, **({names.CERTIFICATES: certificates} if certificates else {})}
    template["metadata"]["annotations"] = {**template["metadata"].get("annotations", {}), **ours}
    return template


def pod_hash(template: Json) -> str:
    return str(template["metadata"]["annotations"][names.POD_HASH])


def _template(cluster: Cluster, images: BrokerImages, settings: str) -> Json:
    spec = {
        "serviceAccountName": cluster.name,
        "terminationGracePeriodSeconds": STOP_WITHIN_S,
        "enableServiceLinks": False,
        "securityContext": pod_security(),
        "topologySpreadConstraints": _spread(cluster),
        **({"initContainers": [_wait_for_rack(cluster, images)]} if cluster.spec.rack else {}),
        "containers": [_broker(cluster, images)],
        "volumes": [{"name": "settings", "configMap": {"name": settings}}, *_certificates(cluster), *_place(cluster)],
    }
    metadata: Json = {"labels": names.labels(cluster)}
    if theirs := cluster.spec.pod_template:
        spec = strategic_merge(spec, theirs.spec or {})
        if theirs.metadata and theirs.metadata.labels:  # what finds the pods stays ours
            metadata["labels"] = {**theirs.metadata.labels, **metadata["labels"]}
        if theirs.metadata and theirs.metadata.annotations:
            metadata["annotations"] = dict(theirs.metadata.annotations)
    return {"metadata": metadata, "spec": spec}


def _broker(cluster: Cluster, images: BrokerImages) -> Json:
    files = [f"{SETTINGS_AT}/{COMMON_FILE}"] + (
        [f"{SETTINGS_AT}/{broker_file('$(BROKER_ID)')}"] if external_listeners(cluster) else []
    )
    resources = cluster.spec.resources
    http = {"port": names.HTTP_PORT}
    return {
        "name": "broker",
        "image": images.of(cluster),
        "args": [part for file in files for part in ("--config", file)],
        "env": _environment(cluster),
        "ports": [
            _port(names.BROKERS_PORT, names.brokers_port(cluster)),
            _port(names.HTTP_PORT, names.http_port(cluster)),
            *(_port(it.name, it.port) for it in cluster.listeners),
        ],
        # However slow a machine is: only what has begun can hang.
        "startupProbe": {"httpGet": {"path": "/livez", **http}, "periodSeconds": 1, "failureThreshold": 120},
        "livenessProbe": {
            "httpGet": {"path": "/livez", **http},
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        },
        "readinessProbe": {
            "httpGet": {"path": "/readyz", **http},
            "periodSeconds": 1,
            "timeoutSeconds": 3,
            "failureThreshold": 3,
        },
        "resources": resources.to_json() if resources else {},
        "securityContext": container_security(),
        # A broker that cannot start says why in one line: it belongs in the pod's status.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "data", "mountPath": DATA_PATH},
            {"name": "settings", "mountPath": SETTINGS_AT, "readOnly": True},
            *({"name": it["name"], "mountPath": CERTIFICATES_PATH, "readOnly": True} for it in _certificates(cluster)),
        ],
    }


def _environment(cluster: Cluster) -> list[Json]:
    found = {
        "POD_NAME": "metadata.name",
        "BROKER_ID": f"metadata.labels['{names.POD_INDEX_LABEL}']",
        **({"HOST_IP": "status.hostIP"} if any(it.type == "NodePort" for it in cluster.listeners) else {}),
        **({"BROKER_RACK": f"metadata.annotations['{names.RACK}']"} if cluster.spec.rack else {}),
    }
    return [
        {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
        for name, path in found.items()
    ]


def _wait_for_rack(cluster: Cluster, images: BrokerImages) -> Json:
    """A pod cannot read its node's labels: the operator writes the rack on the pod once it has a node, and the broker starts after that."""
    script = f"n=0; until [ -s {PLACE_AT}/rack ] || [ $n -ge {RACK_WITHIN_S * 5} ]; do n=$((n+1)); sleep 0.2; done"
    return {
        "name": "rack",
        "image": images.of(cluster),
        "command": ["sh", "-c", script],
        "securityContext": container_security(),
        "volumeMounts": [{"name": "place", "mountPath": PLACE_AT, "readOnly": True}],
    }


def _certificates(cluster: Cluster) -> list[Json]:
    """The Secret itself: the kubelet hands it to the pod, and nothing of it is copied."""
    if not (secret := tls.secret_name(cluster)):
        return []
    items = [{"key": it, "path": it} for it in tls.required_keys(cluster)]
    return [{"name": "certificates", "secret": {"secretName": secret, "defaultMode": 0o440, "items": items}}]


def _place(cluster: Cluster) -> list[Json]:
    if not cluster.spec.rack:
        return []
    rack = {"path": "rack", "fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{names.RACK}']"}}
    return [{"name": "place", "downwardAPI": {"items": [rack]}}]


def _spread(cluster: Cluster) -> list[Json]:
    """Over racks strictly, over nodes where it can be: a laptop has one."""
    over = {"labelSelector": {"matchLabels": names.selector(cluster)}, "maxSkew": 1}
    found = [{"topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway", **over}]
    if (rack := cluster.spec.rack) and rack.topology_key != "kubernetes.io/hostname":
        found.insert(0, {"topologyKey": rack.topology_key, "whenUnsatisfiable": "DoNotSchedule", **over})
    return found


def _port(name: str, port: int) -> Json:
    return {"name": name, "containerPort": port, "protocol": "TCP"}
