"""Nothing changes when the same is applied again: the chart by a real helm, and resources that an
operator reconciles by the requests of GitOps tools.
"""

import shutil
from pathlib import Path

import yaml

from tests.kube import helm
from tests.kube.api_client import Json
from tests.kube.control_plane import ControlPlane
from tests.kube.custom_resource_definitions import crd_path
from tests.kube.namespace_client import NamespaceClient
from tests.kube.operator_process import OperatorProcess
from tests.unit.operator import samples
from tests.waiting import eventually

MANIFESTS = (
    samples.cluster(storage={"size": "1Gi"}, config={"log.retention.ms": 3_600_000}, replicas=3),
    samples.topic(partitions=3, config={"retention.ms": 1000, "min.insync.replicas": "2"}),
    samples.pipeline(checkpoint={"pvc": {"size": "1Gi"}}, trigger={"interval": "1s"}),
)


def test_upgrading_the_chart_without_changes_writes_nothing(plane: ControlPlane) -> None:
    target = ("--kubeconfig", plane.kubeconfig(), "--namespace", "ottla", "--create-namespace")
    versions = []
    for command in ("install", "upgrade"):
        done = helm.run(command, "ottla", helm.CHART, *target)
        assert done.returncode == 0, done.stderr
        versions.append([version_of(plane, it) for it in helm.render(release="ottla")])
    assert versions[0] == versions[1] and all(versions[0])
    done = helm.run("uninstall", "ottla", *target[:-1])
    assert done.returncode == 0, done.stderr
    remaining = [it for it in helm.render(release="ottla") if version_of(plane, it)]
    assert {it["kind"] for it in remaining} == {"CustomResourceDefinition"}, "without CRDs, all resources would be lost"


def test_two_releases_cannot_reconcile_the_same_namespace(plane: ControlPlane) -> None:
    def install(release: str, namespace: str, *values: str) -> str:
        """Returns helm's error, or "" after an installation."""
        options = [part for it in ("crds.install=false", *values) for part in ("--set", it)]
        target = ("--kubeconfig", plane.kubeconfig(), "--namespace", namespace, "--create-namespace")
        done = helm.run("upgrade", "--install", release, helm.CHART, *target, *options)
        return "" if done.returncode == 0 else done.stderr

    for namespace in ("red", "blue"):
        plane.admin.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    assert install("west", "here", "namespaces={red}") == ""
    assert install("west", "here", "namespaces={red}") == "", "a release can be upgraded"
    assert install("east", "here", "namespaces={blue}") == ""
    assert "release west in namespace here already reconciles red" in install("north", "here", "namespaces={red}")
    assert ", and two releases must not reconcile the same namespaces" in install("south", "elsewhere")
    for release in ("west", "east"):
        done = helm.run("uninstall", release, "--kubeconfig", plane.kubeconfig(), "--namespace", "here")
        assert done.returncode == 0, done.stderr


def test_crds_are_upgraded_with_the_chart(plane: ControlPlane, tmp_path: Path) -> None:
    older = tmp_path / "ottla"
    shutil.copytree(helm.CHART, older)
    file = older / "files" / "crds" / "pipelines.ottla.dev.yaml"
    crd = yaml.safe_load(file.read_text())
    assert fields_of(crd).pop("deadLetter")
    file.write_text(yaml.safe_dump(crd))
    target = ("--kubeconfig", plane.kubeconfig(), "--namespace", "ottla")
    path = crd_path("pipelines.ottla.dev")
    if plane.admin.get(path):  # remains from an earlier test's installation
        plane.admin.request("DELETE", path)
        eventually(lambda: plane.admin.get(path) is None)

    def has_new_field() -> bool:
        return "deadLetter" in fields_of(plane.admin.request("GET", path))

    for command, chart, expected in (("install", older, False), ("upgrade", helm.CHART, True)):
        done = helm.run(command, "ottla", chart, *target, *(("--create-namespace",) if command == "install" else ()))
        assert done.returncode == 0, done.stderr
        assert has_new_field() == expected
    done = helm.run("uninstall", "ottla", *target)
    assert done.returncode == 0 and has_new_field(), done.stderr


def fields_of(crd: Json) -> dict[str, Json]:
    """Schemas of the fields of `spec`."""
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    fields: dict[str, Json] = schema["properties"]["spec"]["properties"]
    return fields


def version_of(plane: ControlPlane, manifest: Json) -> str:
    """The object's resourceVersion; empty if it does not exist."""
    group, plural = manifest["apiVersion"], f"{manifest['kind'].lower()}s"
    root = f"/api/{group}" if "/" not in group else f"/apis/{group}"
    namespace = manifest["metadata"].get("namespace")
    scope = f"/namespaces/{namespace}" if namespace else ""
    stored = plane.admin.get(f"{root}{scope}/{plural}/{manifest['metadata']['name']}")
    return stored["metadata"]["resourceVersion"] if stored else ""


def test_applying_resources_again_writes_nothing(plane: ControlPlane, operator: OperatorProcess) -> None:
    resources = NamespaceClient(plane.admin, "events")
    resources.create_namespace()

    def apply_manifests() -> dict[str, str]:
        """Applies all manifests; returns metadata and spec of each as stored, by kind."""
        stored = {}
        for it in MANIFESTS:
            path = resources.path(f"{it['kind'].lower()}s", it["metadata"]["name"])
            result = plane.admin.request("APPLY", f"{path}?fieldManager=gitops&force=true", it)
            keys = ("generation", "annotations", "labels", "finalizers")
            metadata = {key: result["metadata"].get(key) for key in keys}
            assert result["spec"] == it["spec"], "the API server and the operator add no fields to the spec"
            stored[it["kind"]] = f"{metadata} {result['spec']}"
        return stored

    first = apply_manifests()
    eventually(lambda: all(is_reconciled(resources, it) for it in MANIFESTS), message=operator.daemon.log_tail)
    writes = wait_until_settled(operator)
    assert apply_manifests() == first
    wait_for_reconciles(operator)
    assert operator.count_writes() == writes
    assert apply_manifests() == first


def wait_until_settled(operator: OperatorProcess) -> dict[str, float]:
    """Waits until nothing is written during two more reconciles of each resource.

    Earlier ones write what each resource waits for, which changes as the others are reconciled.
    Returns the numbers of writes.
    """
    while True:  # the test's own time limit bounds it
        writes = operator.count_writes()
        wait_for_reconciles(operator)
        if operator.count_writes() == writes:
            return writes


def wait_for_reconciles(operator: OperatorProcess) -> None:
    """Waits for two more reconciles of each resource."""
    counts = {it["kind"]: operator.count_reconciles(it["kind"]) for it in MANIFESTS}
    eventually(lambda: all(operator.count_reconciles(it) >= count + 2 for it, count in counts.items()), within_s=60)


def is_reconciled(resources: NamespaceClient, manifest: Json) -> bool:
    """True if the operator has reconciled the resource."""
    return bool(resources.condition(manifest["kind"], manifest["metadata"]["name"]).get("observedGeneration"))
