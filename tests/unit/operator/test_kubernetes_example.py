"""README's commands for Kubernetes and the manifests that they apply agree with each other, with
the Cluster of the example and with the project's version.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from ottla_operator.local.documents import read_files
from ottla_operator.plan.objects.services import in_cluster_bootstrap
from ottla_operator.resources.cluster import Cluster
from tests.kube.readme_commands import ROOT, readme_commands

MANIFESTS = sorted((ROOT / "examples" / "kubernetes").glob("*.yaml"))


def pod(manifest: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = manifest["spec"]["template"]["spec"] if manifest["kind"] == "Job" else manifest["spec"]
    return spec


def test_readme_needs_at_most_ten_commands_to_consume_records() -> None:
    commands = readme_commands()
    assert len(commands) <= 10
    assert any(re.fullmatch(r"kubectl exec client -- ottla consume \S+ --max 3", it) for it in commands)


def test_commands_name_files_and_resources_that_exist() -> None:
    commands = readme_commands()
    files = [it for command in commands for it in re.findall(r"(?:-f|--values) (\S+)", command)]
    assert files and all((ROOT / it).exists() for it in files)
    described = {(it.kind.lower(), it.name) for it in read_files([ROOT / "examples" / "flights"])}
    described |= {(it["kind"].lower(), it["metadata"]["name"]) for it in map(load, MANIFESTS)}
    named = [re.search(r"(\w+)(?:\.ottla\.dev)?/(\S+)", it) for it in commands if it.startswith("kubectl wait")]
    assert named and all(it is not None and (it[1], it[2]) in described for it in named)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda it: it.name)
def test_manifests_meet_the_restricted_level_and_connect_to_the_example(path: Path) -> None:
    spec = pod(load(path))
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    (container,) = spec["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert container["image"] == f"ottla-client:{version}"
    (cluster,) = (it for it in read_files([ROOT / "examples" / "flights"]) if it.kind == "Cluster")
    bootstrap = {it["name"]: it["value"] for it in container["env"]}["OTTLA_BOOTSTRAP"]
    host, port = in_cluster_bootstrap(Cluster.parse(cluster.data)).split(":")
    assert bootstrap == f"{host.partition('.')[0]}:{port}"


def load(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found
