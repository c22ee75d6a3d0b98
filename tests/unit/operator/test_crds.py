"""The CRDs are committed as generated, are structural, and default nothing but the status of a new
resource.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import structs

from ottla_operator.crd_files import CRD_FOLDERS, build_crd, generated_files, render_crds
from ottla_operator.resources import crds
from ottla_operator.resources.pipeline import PipelineSpec
from ottla_operator.resources.schema import structural_schema
from tests.unit.operator.resource_models import models_within

ROOT = Path(__file__).parents[3]
# What a structural schema may not have
# (https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/).
FORBIDDEN = {
    "$ref",
    "$defs",
    "definitions",
    "default",
    "title",
    "const",
    "examples",
    "deprecated",
    "id",
    "patternProperties",
}


@pytest.mark.parametrize("path", generated_files(), ids=str)
def test_committed_file_is_what_the_types_generate(path: Path) -> None:
    committed = (ROOT / path).read_text(encoding="utf-8")
    assert committed == generated_files()[path], "run `python -m ottla_operator.crd_files`"


@pytest.mark.parametrize("folder", CRD_FOLDERS, ids=str)
def test_crd_folder_has_no_other_files(folder: Path) -> None:
    assert {path.name for path in (ROOT / folder).iterdir()} == set(render_crds())


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key], f"{path}[{key}]")


def crd_schema(kind: crds.CustomResourceKind) -> dict[str, Any]:
    (version,) = build_crd(kind)["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


@pytest.mark.parametrize("kind", crds.KINDS, ids=lambda it: it.name)
def test_schemas_are_structural(kind: crds.CustomResourceKind) -> None:
    for path, node in nodes(crd_schema(kind)):
        free = node.get("x-kubernetes-int-or-string") or node.get("x-kubernetes-preserve-unknown-fields")
        assert free or node.get("type") in ("object", "array", "string", "integer", "number", "boolean"), path
        found = FORBIDDEN & set(node)
        assert found == ({"default"} if path == ".status" else set()), f"{path}: {found}"
        assert not ("properties" in node and "additionalProperties" in node), path
        assert node.get("type") != "array" or "items" in node, path
        if node.get("x-kubernetes-list-type") == "map":
            keys = node["x-kubernetes-list-map-keys"]
            assert set(keys) <= set(node["items"]["required"]), f"{path}: keys of a map list are required"


@pytest.mark.parametrize("kind", crds.KINDS, ids=lambda it: it.name)
def test_every_field_of_the_spec_has_a_description(kind: crds.CustomResourceKind) -> None:
    spec = crds.openapi_schema(kind)["properties"]["spec"]
    undescribed = [
        path for path, node in nodes(spec, "spec") if "[" not in path.rsplit(".", 1)[-1] and not node.get("description")
    ]
    assert undescribed == []
    assert all(node["description"].endswith((".", "?", "!")) for _, node in nodes(spec) if "description" in node)


@pytest.mark.parametrize("kind", crds.KINDS, ids=lambda it: it.name)
def test_every_kind_reports_its_state(kind: crds.CustomResourceKind) -> None:
    (version,) = build_crd(kind)["spec"]["versions"]
    assert version["subresources"]["status"] == {}
    assert build_crd(kind)["spec"]["names"]["categories"] == ["ottla"]
    assert "Ready" in [column["name"] for column in version["additionalPrinterColumns"]]
    conditions = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["conditions"]
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    assert "observedGeneration" in conditions["items"]["properties"]


def test_a_cluster_can_be_scaled() -> None:
    (cluster,) = (kind for kind in crds.KINDS if kind.name == "Cluster")
    (version,) = build_crd(cluster)["spec"]["versions"]
    assert version["subresources"]["scale"]["specReplicasPath"] == ".spec.replicas"


def test_short_names_are_unique() -> None:
    names = [kind.short_name for kind in crds.KINDS]
    assert len(names) == len(set(names))


def test_file_is_yaml_of_the_crd() -> None:
    for name, text in render_crds().items():
        assert yaml.safe_load(text)["metadata"]["name"] == name.removesuffix(".yaml")


def test_documented_defaults_of_pipelines_are_those_of_the_model() -> None:
    checked = 0
    for model in models_within(PipelineSpec):
        properties = structural_schema(model)["properties"]
        for field in structs.fields(model):
            if isinstance(field.default, str | int | float) and not isinstance(field.default, bool):
                default = f"{field.default:g}" if isinstance(field.default, float) else str(field.default)
                assert f"Defaults to {default}" in properties[field.encode_name]["description"], field.encode_name
                checked += 1
    assert checked == 15
