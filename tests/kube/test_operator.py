"""The operator as people install it, on a real kubelet: the chart by a real helm, brokers and operator in their own images."""

import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube import helm
from tests.kube.api import Json
from tests.kube.cluster import Kube
from tests.kube.flow import Flow
from tests.kube.images import build
from tests.kube.operators import Resources
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(900)  # images may have to be built
HOME = "ottla"
CLUSTER = {
    "replicas": 3,
    "storage": {"size": "1Gi"},
    "resources": {"requests": {"cpu": "200m"}},
    "listeners": [{"name": "plain", "port": 9092}, {"name": "out", "port": 9094, "type": "NodePort"}],
    "config": {"offsets.topic.num.partitions": 5, "group.initial.rebalance.delay.ms": 0},
}
TOPIC = {"clusterRef": {"name": "demo"}, "partitions": 6, "replicas": 3, "config": {"min.insync.replicas": 2}}


@pytest.fixture(scope="module")
def installed(images: dict[str, Path], kube: Kube) -> Iterator[Kube]:
    kube.has(images["operator"])
    values = {
        "image.repository": f"{build.REGISTRY}/ottla-operator",
        "image.tag": "test",
        "broker.repository": f"{build.REGISTRY}/ottla-broker",
        "broker.version": "test",
        "resources.requests.cpu": "500m",  # else it starves on a machine that does other things
    }
    options = [part for key, value in values.items() for part in ("--set", f"{key}={value}")]
    where = ("--kubeconfig", kube.plane.kubeconfig(), "--namespace", HOME)
    done = helm.run(
        "install", "ottla", helm.CHART, *where, "--create-namespace", "--wait", "--timeout", "240s", *options
    )
    assert done.returncode == 0, done.stderr + told(kube)
    yield kube
    done = helm.run("uninstall", "ottla", *where, "--wait")
    assert done.returncode == 0, done.stderr
    assert kube.plane.admin.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/topics.ottla.dev"), "CRDs stay"


@pytest.fixture(scope="module")
def demo(installed: Kube) -> Resources:
    """A Cluster of three with one Topic, in a namespace that takes only pods of the restricted profile."""
    made = Resources(installed.plane.admin, "events")
    restricted = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    made.api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "events", "labels": restricted}})
    began = time.monotonic()
    made.make("Cluster", "demo", CLUSTER)
    made.make("Topic", "flights", TOPIC)
    try:
        made.wait("Cluster", "demo", within_s=180)
        print(f"apply to Ready: {time.monotonic() - began:.1f} s")
        made.wait("Topic", "flights")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{told(installed)}\n{broker_logs(made)}") from error
    return made


def told(kube: Kube) -> str:
    """What operators have logged."""
    pods = kube.plane.admin.ask("GET", f"/api/v1/namespaces/{HOME}/pods")["items"]
    path = f"/api/v1/namespaces/{HOME}/pods/{{}}/log?tailLines=40"
    logs = [text(kube, path.format(it["metadata"]["name"])) for it in pods]
    return "\n".join([*(str(it.get("status")) for it in pods), *logs])


def text(kube: Kube, path: str) -> str:
    try:
        return kube.plane.admin.ask_text("GET", path)
    except Exception as error:  # noqa: BLE001 - it is for a message about something worse
        return f"(no log: {error})"


def broker_logs(resources: Resources) -> str:
    found = []
    for name, pod in resources.of("v1", "pods").items():
        try:
            log = resources.api.ask_text(
                "GET", f"/api/v1/namespaces/{resources.namespace}/pods/{name}/log?tailLines=15"
            )
        except Exception as error:  # noqa: BLE001 - as above
            log = str(error)
        found.append(f"{name}: {pod['status'].get('containerStatuses')}\n{log}")
    return "\n".join(found)


def outside(kube: Kube, resources: Resources) -> str:
    """Bootstrap address of clients beside the nodes."""
    service = resources.of("v1", "services")["demo-out-bootstrap"]
    return f"{kube.nodes[0].address}:{service['spec']['ports'][0]['nodePort']}"


def pods(resources: Resources) -> dict[str, Json]:
    return {name: it for name, it in resources.of("v1", "pods").items() if name.startswith("demo-")}


def uids(resources: Resources) -> dict[str, str]:
    return {name: it["metadata"]["uid"] for name, it in pods(resources).items()}


def writes(kube: Kube) -> float:
    """Of the active operator, without its Lease."""
    (pod,) = kube.plane.admin.ask("GET", f"/api/v1/namespaces/{HOME}/pods")["items"]
    with urllib.request.urlopen(f"http://{pod['status']['podIP']}:8080/metrics", timeout=5) as answer:
        lines = [it for it in answer.read().decode().splitlines() if it.startswith("ottla_operator_writes_total")]
    return sum(float(it.rpartition(" ")[2]) for it in lines if '"Lease"' not in it)


def test_clients_outside_produce_and_what_is_as_wished_is_not_written(installed: Kube, demo: Resources) -> None:
    with Flow(outside(installed, demo), "flights") as flow:
        eventually(lambda: flow.acknowledged > 200, within_s=60, what=f"{flow}")
    flow.check()
    demo.wait("Cluster", "demo")
    before = writes(installed)
    time.sleep(20)  # longer than a resync: nothing is to happen
    assert writes(installed) == before


def test_a_changed_setting_restarts_one_broker_at_a_time_under_load_and_the_operator_may_be_killed(
    installed: Kube, demo: Resources
) -> None:
    bootstrap = outside(installed, demo)
    demo.make("Topic", "rolled", TOPIC)
    demo.wait("Topic", "rolled")
    before, controller = uids(demo), demo.get("Cluster", "demo")["status"]["controller"]
    with Flow(bootstrap, "rolled") as flow:
        eventually(lambda: flow.acknowledged > 50, within_s=60)
        began = time.monotonic()
        demo.edit("Cluster", "demo", {"config": {"num.partitions": 5}})
        eventually(lambda: uids(demo) != before, within_s=60, what=told(installed))
        (operator,) = installed.plane.admin.ask("GET", f"/api/v1/namespaces/{HOME}/pods")["items"]
        path = f"/api/v1/namespaces/{HOME}/pods/{operator['metadata']['name']}?gracePeriodSeconds=0"
        installed.plane.admin.ask("DELETE", path)
        order: list[str] = []

        def rolled() -> bool:
            seen = pods(demo)
            changed = [name for name, it in seen.items() if it["metadata"]["uid"] != before.get(name)]
            order.extend(name for name in changed if name not in order)
            away = [name for name in before if name not in seen or not ready(seen[name])]
            assert len(away) <= 1, f"{away} are away at once"
            return len(order) == 3 and not away

        eventually(rolled, within_s=180, what=told(installed))
        print(f"a roll of three: {time.monotonic() - began:.1f} s; longest wait of a record {flow.longest_s:.2f} s")
        demo.wait("Cluster", "demo")
    assert order[-1] == f"demo-{controller}"
    flow.check()


def test_an_image_that_does_not_start_stops_at_one_broker_and_setting_it_back_heals(
    installed: Kube, demo: Resources
) -> None:
    before = uids(demo)
    demo.edit("Cluster", "demo", {"image": f"{build.REGISTRY}/none:1"})
    eventually(
        lambda: (
            "none:1" in demo.condition("Cluster", "demo").get("message", "")
            and "Pull" in demo.condition("Cluster", "demo")["message"]
        ),
        within_s=90,
        what=told(installed),
    )
    assert demo.condition("Cluster", "demo", "Serving")["status"] == "True"
    assert sum(uids(demo).get(name) != uid for name, uid in before.items()) == 1
    demo.edit("Cluster", "demo", {"image": None})
    demo.wait("Cluster", "demo", within_s=120)
    assert sum(uids(demo)[name] != uid for name, uid in before.items()) == 1, "nobody else was restarted"


def test_more_brokers_and_fewer_again(installed: Kube, demo: Resources) -> None:
    scale = demo.path("clusters", "demo/scale")
    demo.api.ask("PATCH", scale, {"spec": {"replicas": 4}})
    demo.wait("Cluster", "demo", within_s=180)
    assert set(pods(demo)) == {f"demo-{it}" for it in (1, 2, 3, 4)}
    demo.api.ask("PATCH", scale, {"spec": {"replicas": 3}})
    demo.wait("Cluster", "demo", within_s=180)
    eventually(lambda: set(pods(demo)) == {f"demo-{it}" for it in (1, 2, 3)}, within_s=90, what=told(installed))


def test_a_namespace_goes_although_no_operator_is_there(installed: Kube, demo: Resources) -> None:
    deployment = f"/apis/apps/v1/namespaces/{HOME}/deployments/ottla"
    demo.make("Topic", "gone", {"clusterRef": {"name": "demo"}, "deletionPolicy": "Delete"})
    demo.wait("Topic", "gone")
    installed.plane.admin.ask("PATCH", deployment, {"spec": {"replicas": 0}})
    eventually(lambda: not installed.plane.admin.ask("GET", f"/api/v1/namespaces/{HOME}/pods")["items"], within_s=60)
    demo.api.ask("DELETE", "/api/v1/namespaces/events")
    eventually(lambda: demo.api.get("/api/v1/namespaces/events") is None, within_s=120)
    installed.plane.admin.ask("PATCH", deployment, {"spec": {"replicas": 1}})


def ready(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return "deletionTimestamp" not in pod["metadata"] and any(
        it["type"] == "Ready" and it["status"] == "True" for it in conditions
    )
