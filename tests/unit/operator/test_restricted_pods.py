"""Templates of pods that the operator creates meet Kubernetes' restricted pod security standard.
tests/kube runs them in namespaces that enforce it.

https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.operator.golden_files import GOLDEN

GOLDEN_FILES = sorted(GOLDEN.rglob("*.out.yaml"))
ALLOWED_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected"}
HOST_FIELDS = ("hostNetwork", "hostPID", "hostIPC")


def pod_specs(value: Any) -> Iterator[dict[str, Any]]:
    """Every pod's spec in a value, also in JSON text, in which drivers get the template of
    executors.
    """
    if isinstance(value, dict):
        if isinstance(value.get("containers"), list):
            yield value
        for it in value.values():
            yield from pod_specs(it)
    elif isinstance(value, list):
        for it in value:
            yield from pod_specs(it)
    elif isinstance(value, str) and value.lstrip().startswith("{"):
        yield from pod_specs(json.loads(value))


def violations(spec: dict[str, Any]) -> list[str]:
    """What the restricted pod security standard does not allow in the spec of a pod."""
    pod = spec.get("securityContext") or {}
    found = [it for it in HOST_FIELDS if spec.get(it)]
    if not pod.get("runAsNonRoot") or pod.get("runAsUser") == 0:
        found.append("runAsNonRoot")
    if pod.get("seccompProfile") != {"type": "RuntimeDefault"}:
        found.append("seccompProfile")
    for volume in spec.get("volumes") or []:
        if not volume.keys() - {"name"} <= ALLOWED_VOLUMES | {"secret"}:
            found.append(f"volume {volume['name']}")
    for container in [*spec["containers"], *(spec.get("initContainers") or [])]:
        own = container.get("securityContext") or {}
        if own.get("allowPrivilegeEscalation") is not False:
            found.append(f"{container['name']}: allowPrivilegeEscalation")
        if own.get("capabilities") != {"drop": ["ALL"]}:
            found.append(f"{container['name']}: capabilities")
        if own.get("privileged") or own.get("runAsNonRoot") is False or own.get("runAsUser") == 0:
            found.append(f"{container['name']}: privileged or root")
        found += [f"{container['name']}: hostPort" for it in container.get("ports") or [] if it.get("hostPort")]
    return found


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda it: it.name)
def test_every_pod_of_the_operator_meets_the_restricted_standard(path: Path) -> None:
    specs = [spec for document in yaml.safe_load_all(path.read_text()) for spec in pod_specs(document)]
    assert specs
    assert [violations(it) for it in specs] == [[] for _ in specs]


def test_golden_files_have_pods_of_brokers_drivers_and_executors() -> None:
    named = {
        container["name"]
        for path in GOLDEN_FILES
        for document in yaml.safe_load_all(path.read_text())
        for spec in pod_specs(document)
        for container in [*spec["containers"], *(spec.get("initContainers") or [])]
    }
    assert {"broker", "rack", "spark-kubernetes-driver", "spark-kubernetes-executor"} <= named, named


def test_a_pod_that_violates_the_standard_is_found() -> None:
    bare = {"containers": [{"name": "x", "ports": [{"hostPort": 1}]}], "volumes": [{"name": "v", "hostPath": {}}]}
    assert violations(bare | {"hostNetwork": True}) == [
        "hostNetwork",
        "runAsNonRoot",
        "seccompProfile",
        "volume v",
        "x: allowPrivilegeEscalation",
        "x: capabilities",
        "x: hostPort",
    ]
