"""The operator as people install it: the chart, by a real helm, with the images that the tests have built."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.kube import helm
from tests.kube.cluster import Kube
from tests.kube.images import build

HOME = "ottla"
VALUES = {
    "image.repository": f"{build.REGISTRY}/ottla-operator",
    "image.tag": "test",
    "broker.repository": f"{build.REGISTRY}/ottla-broker",
    "broker.version": "test",
    "pipelines.repository": f"{build.REGISTRY}/ottla-spark",
    "pipelines.tag": "test",
    "pipelines.pullPolicy": "Never",
}


@contextmanager
def installed(kube: Kube, **values: str) -> Iterator[None]:
    """`values`: over ours, with `_` for `.`. The CRDs stay afterwards."""
    given = VALUES | {key.replace("_", "."): value for key, value in values.items()}
    options = [part for key, value in given.items() for part in ("--set", f"{key}={value}")]
    where = ("--kubeconfig", kube.plane.kubeconfig(), "--namespace", HOME)
    done = helm.run(
        "install", "ottla", helm.CHART, *where, "--create-namespace", "--wait", "--timeout", "110s", *options
    )
    assert done.returncode == 0, done.stderr + said(kube)
    try:
        yield
    finally:
        done = helm.run("uninstall", "ottla", *where, "--wait", "--timeout", "110s")
        assert done.returncode == 0, done.stderr


def said(kube: Kube, namespace: str = HOME, lines: int = 40) -> str:
    """What the pods of a namespace have logged, and how they are."""
    root = f"/api/v1/namespaces/{namespace}/pods"
    found = []
    for pod in kube.plane.admin.ask("GET", root)["items"]:
        name = pod["metadata"]["name"]
        try:
            log = kube.plane.admin.ask_text("GET", f"{root}/{name}/log?tailLines={lines}")
        except Exception as error:  # noqa: BLE001 - it is for a message about something worse
            log = f"(no log: {error})"
        found.append(f"--- {namespace}/{name}: {pod.get('status')}\n{log}")
    return "\n".join(found)
