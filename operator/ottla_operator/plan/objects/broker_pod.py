"""The pod of a broker, as the StatefulSet's template: containers, probes, volumes, spread over
nodes and racks. Also the ServiceAccount of the pods.

It meets Kubernetes' restricted security profile and writes only its data volume. The template's
hash leaves the settings out: which of them need a restart is decided from their values.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla_operator.plan import listener_certificates as tls
from ottla_operator.plan.console import secret_files
from ottla_operator.plan.inter_broker_login import LOGIN_MODULE, LOGIN_VERSION, InterBrokerLogin
from ottla_operator.plan.inter_broker_tls import InterBrokerTls
from ottla_operator.plan.objects import names
from ottla_operator.plan.objects.config import (
    CERTIFICATES_PATH,
    COMMON_FILE,
    CONSOLE_PATH,
    DATA_PATH,
    LOGIN_PATH,
    broker_file,
)
from ottla_operator.plan.objects.pod_defaults import PodDefaults, pull_secrets
from ottla_operator.plan.objects.pod_template_merge import apply_pod_template
from ottla_operator.plan.objects.security_context import container_security, pod_security
from ottla_operator.resources.cluster import MAX_BROKERS, NODE_LABEL, Cluster
from ottla_operator.resources.model import Json

SETTINGS_PATH: Final = "/etc/ottla"
RACK_PATH: Final = "/etc/ottla-place"
TERMINATION_GRACE_S: Final = 60
DEFAULT_RESOURCES: Final = {"requests": {"cpu": "100m", "memory": "256Mi"}}
"""An idle broker needs less. Without requests its pod would be the first to be evicted from a full
node.
"""
_MOUNTS: Final = {"certificates": CERTIFICATES_PATH, "login": LOGIN_PATH, "console": CONSOLE_PATH}
RACK_TIMEOUT_S: Final = 30
"""Time after which a broker starts without its rack: a badly placed broker is better than none."""


@dataclass(frozen=True, slots=True)
class BrokerImages:
    """The images of brokers. `repository`: without a tag. `version`: the tag for Clusters that name
    no version. `pull_policy`: empty for Kubernetes' default."""

    repository: str
    version: str
    pull_policy: str = ""
    defaults: PodDefaults = field(default_factory=PodDefaults)

    def of(self, cluster: Cluster) -> str:
        return cluster.spec.image or f"{self.repository}:{cluster.spec.version or self.version}"


@dataclass(frozen=True, slots=True)
class StartInputs:
    """Inputs of a pod's start besides settings, each an annotation of the pod. `certificates`:
    digest of the listeners' certificates. `login`, `tls`: of the inter-broker listener.
    `passwords`: digest of the login's passwords. `restart_at`: the `spec.restartAt` that is due.
    Each is empty if there is none.
    """

    certificates: str = ""
    login: InterBrokerLogin = InterBrokerLogin.NONE
    tls: InterBrokerTls = InterBrokerTls.NONE
    passwords: str = ""
    restart_at: str = ""


def pod_template(cluster: Cluster, images: BrokerImages, settings: str, start: StartInputs) -> Json:
    """`settings`: name of the ConfigMap."""
    has_login = bool(start.login)
    unnamed = _template(cluster, images, "", has_login=has_login)
    hash_ = hashlib.sha256(json.dumps(unnamed, sort_keys=True).encode()).hexdigest()[:10]
    template = _template(cluster, images, settings, has_login=has_login)
    started_with = {
        names.CERTIFICATES: start.certificates,
        names.LOGIN: str(start.login),
        names.TLS: str(start.tls),
        names.PASSWORDS: start.passwords,
        names.RESTART_AT: start.restart_at,
    }
    ours = {names.POD_HASH: hash_, **{name: it for name, it in started_with.items() if it}}
    template["metadata"]["annotations"] = {**template["metadata"].get("annotations", {}), **ours}
    return template


def pod_hash(template: Json) -> str:
    return str(template["metadata"]["annotations"][names.POD_HASH])


def _template(cluster: Cluster, images: BrokerImages, settings: str, *, has_login: bool) -> Json:
    secrets = [
        *_certificate_volumes(cluster),
        *(_login_volumes(cluster) if has_login else []),
        *_console_volumes(cluster),
    ]
    spec = {
        "serviceAccountName": cluster.name,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": TERMINATION_GRACE_S,
        "enableServiceLinks": False,
        "securityContext": pod_security(images.defaults),
        **pull_secrets(images.defaults),
        "topologySpreadConstraints": _topology_spread(cluster),
        **({"initContainers": [_rack_init_container(cluster, images)]} if cluster.spec.rack else {}),
        "containers": [_broker_container(cluster, images, secrets)],
        "volumes": [
            {"name": "settings", "configMap": {"name": settings}},
            *secrets,
            *_rack_volumes(cluster),
        ],
    }
    metadata: Json = {"labels": names.labels(cluster)}
    return apply_pod_template({"metadata": metadata, "spec": spec}, cluster.spec.pod_template)


def _log_format(cluster: Cluster) -> tuple[str, ...]:
    """Arguments of the broker. Without any its log is text, so for text the pod does not change."""
    return ("--log-format", cluster.spec.log_format) if cluster.spec.log_format == "json" else ()


def _broker_container(cluster: Cluster, images: BrokerImages, secrets: Sequence[Json]) -> Json:
    """`secrets`: volumes."""
    files = [f"{SETTINGS_PATH}/{it}" for it in (COMMON_FILE, broker_file("$(BROKER_ID)"))]
    resources = cluster.spec.resources
    http = {"port": names.HTTP_PORT}
    return {
        "name": "broker",
        "image": images.of(cluster),
        **({"imagePullPolicy": images.pull_policy} if images.pull_policy else {}),
        "args": [*(part for file in files for part in ("--config", file)), *_log_format(cluster)],
        "env": _environment(cluster),
        "ports": [
            _port(names.BROKERS_PORT, names.brokers_port(cluster)),
            _port(names.HTTP_PORT, names.http_port(cluster)),
            *(_port(it.name, it.port) for it in cluster.listeners),
            *([_port(names.REGISTRY_PORT, port)] if (port := cluster.schema_registry_port) is not None else []),
        ],
        # A slow machine may take long to start; only a broker that has started can hang.
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
        "resources": resources.to_json() if resources else DEFAULT_RESOURCES,
        "securityContext": container_security(),
        # A broker that cannot start prints why in its last line, which then appears in the pod's
        # status.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "data", "mountPath": DATA_PATH},
            {"name": "settings", "mountPath": SETTINGS_PATH, "readOnly": True},
            *({"name": it["name"], "mountPath": _MOUNTS[it["name"]], "readOnly": True} for it in secrets),
        ],
    }


def _environment(cluster: Cluster) -> list[Json]:
    field_paths = {
        "POD_NAME": "metadata.name",
        "BROKER_ID": f"metadata.labels['{names.POD_INDEX_LABEL}']",
        "BROKER_NODE": "spec.nodeName",
        **({"HOST_IP": "status.hostIP"} if any(it.type == "NodePort" for it in cluster.listeners) else {}),
        **({"BROKER_RACK": f"metadata.annotations['{names.RACK}']"} if cluster.spec.rack else {}),
    }
    return [
        {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
        for name, path in field_paths.items()
    ]


def _rack_init_container(cluster: Cluster, images: BrokerImages) -> Json:
    """A pod cannot read its node's labels: the operator annotates the pod with the rack once it has
    a node, and this container waits for that."""
    script = f"n=0; until [ -s {RACK_PATH}/rack ] || [ $n -ge {RACK_TIMEOUT_S * 5} ]; do n=$((n+1)); sleep 0.2; done"
    return {
        "name": "rack",
        "image": images.of(cluster),
        **({"imagePullPolicy": images.pull_policy} if images.pull_policy else {}),
        "command": ["sh", "-c", script],
        "securityContext": container_security(),
        "volumeMounts": [{"name": "place", "mountPath": RACK_PATH, "readOnly": True}],
    }


def _certificate_volumes(cluster: Cluster) -> list[Json]:
    """The volume with the Secret of the certificates, which is mounted and not copied."""
    if not (secret := tls.secret_name(cluster)):
        return []
    items = [{"key": it, "path": it} for it in tls.required_keys(cluster)]
    return [{"name": "certificates", "secret": {"secretName": secret, "defaultMode": 0o440, "items": items}}]


def _login_volumes(cluster: Cluster) -> list[Json]:
    secret = {
        "secretName": names.login_secret(cluster),
        "defaultMode": 0o440,
        "items": [{"key": it, "path": it} for it in (LOGIN_MODULE, LOGIN_VERSION)],
    }
    return [{"name": "login", "secret": secret}]


def _console_volumes(cluster: Cluster) -> list[Json]:
    sources = [
        {"secret": {"name": it.secret, "items": [{"key": it.key, "path": it.name}]}} for it in secret_files(cluster)
    ]
    return [{"name": "console", "projected": {"defaultMode": 0o440, "sources": sources}}] if sources else []


def _rack_volumes(cluster: Cluster) -> list[Json]:
    if not cluster.spec.rack:
        return []
    rack = {"path": "rack", "fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{names.RACK}']"}}
    return [{"name": "place", "downwardAPI": {"items": [rack]}}]


def _topology_spread(cluster: Cluster) -> list[Json]:
    """Spreads pods strictly over racks, unless each node is a rack, and over nodes where possible:
    a laptop has one node. With `brokersPerNode` no node has more pods.
    """
    over = {"labelSelector": {"matchLabels": names.selector(cluster)}, "maxSkew": 1}
    constraints: list[Json] = [{"topologyKey": NODE_LABEL, "whenUnsatisfiable": "ScheduleAnyway", **over}]
    if (rack := cluster.spec.rack) and rack.topology_key != NODE_LABEL:
        constraints.insert(0, {"topologyKey": rack.topology_key, "whenUnsatisfiable": "DoNotSchedule", **over})
    if (limit := cluster.spec.brokers_per_node) is not None:
        # The skew of a node is its number of pods beyond the lowest number of any node. That is 0
        # with fewer nodes than minDomains; with as many, there are more nodes than brokers.
        strict = {"whenUnsatisfiable": "DoNotSchedule", "minDomains": MAX_BROKERS + 1}
        constraints.append({"topologyKey": NODE_LABEL, **over, **strict, "maxSkew": limit})
    return constraints


def _port(name: str, port: int) -> Json:
    return {"name": name, "containerPort": port, "protocol": "TCP"}


def service_account(cluster: Cluster) -> Json:
    """An account of the brokers' own, for pull secrets and security policies. No token of it is
    mounted.
    """
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": names.metadata(cluster, cluster.name),
        "automountServiceAccountToken": False,
    }
