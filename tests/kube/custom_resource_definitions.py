"""Installs CustomResourceDefinitions in an API server."""

from ottla_operator.crd_files import build_crd
from ottla_operator.resources import crds
from tests.kube.api_client import ApiClient, Json
from tests.waiting import eventually


def crd_path(name: str) -> str:
    return f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"


def install_crd(api: ApiClient, crd: Json) -> None:
    """Applies a CRD and returns when the API server serves its resources."""
    name = crd["metadata"]["name"]
    path = crd_path(name)
    api.request("APPLY", f"{path}?fieldManager=tests&force=true", crd)

    def is_established() -> bool:
        conditions = (api.get(path) or {}).get("status", {}).get("conditions") or []
        return any(it["type"] == "Established" and it["status"] == "True" for it in conditions)

    eventually(is_established, message=f"{name} is established")


def install_crds(api: ApiClient) -> None:
    """Installs all CRDs of the project."""
    for kind in crds.KINDS:
        install_crd(api, build_crd(kind))
