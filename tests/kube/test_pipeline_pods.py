"""A pipeline in pods: the image's driver, the executor that Spark makes of the same image, and brokers beside them."""

import json

import pytest

from tests.clients import librdkafka as rd
from tests.clients.sample import START_MS, Message
from tests.kube.api import Api, Json
from tests.kube.broker_pods import RESTRICTED, BrokerPods
from tests.kube.cluster import Kube
from tests.kube.images import build
from tests.waiting import eventually

NAMESPACE = "pipes"
FINISHES_WITHIN_S = 300.0
PIPELINE = {
    "apiVersion": "ottla.dev/v1alpha1",
    "kind": "Pipeline",
    "metadata": {"name": "sums"},
    "spec": {
        "clusterRef": {"name": "demo"},
        "sources": {
            "events": {"topic": "events", "format": {"type": "json", "schema": "id INT NOT NULL, city STRING"}}
        },
        "transforms": [{"name": "counts", "sql": "SELECT city, count(*) AS n FROM events GROUP BY city"}],
        "sinks": [{"from": "counts", "topic": "counts", "key": ["city"], "outputMode": "update"}],
        "trigger": {"availableNow": True},
        "spark": {
            "conf": {
                "spark.sql.shuffle.partitions": "2",
                "spark.driver.host": f"driver.pipeline.{NAMESPACE}.svc.cluster.local",
                "spark.driver.port": "7078",
                "spark.driver.bindAddress": "0.0.0.0",
                "spark.driver.blockManager.port": "7079",
                "spark.driver.memory": "600m",
                "spark.executor.instances": "1",
                "spark.executor.memory": "512m",
                "spark.kubernetes.namespace": NAMESPACE,
                "spark.kubernetes.driver.pod.name": "driver",
                "spark.kubernetes.container.image": build.reference("spark"),
                "spark.kubernetes.container.image.pullPolicy": "Never",
                "spark.kubernetes.executor.request.cores": "100m",
                "spark.kubernetes.executor.volumes.persistentVolumeClaim.checkpoint.options.claimName": "checkpoint",
                "spark.kubernetes.executor.volumes.persistentVolumeClaim.checkpoint.mount.path": "/checkpoint",
            }
        },
    },
}
# What Spark's driver does in client mode.
RULES = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "get", "list", "watch", "patch", "delete", "deletecollection"]},
    {"apiGroups": [""], "resources": ["services", "configmaps", "persistentvolumeclaims"], "verbs": ["create", "get", "list", "delete", "deletecollection"]},
]  # fmt: skip


@pytest.mark.timeout(1500)  # the images may have to be built
def test_a_pipeline_runs_in_a_driver_and_an_executor(kube: Kube, spark_image: None) -> None:
    api = kube.plane.admin
    brokers = BrokerPods(api, NAMESPACE)
    brokers.make(1, {"offsets.topic.replication.factor": "1"}, enforce="baseline")
    brokers.wait_ready(0)
    bootstrap = brokers.bootstrap(0)
    for topic in ("events", "counts"):
        rd.create(bootstrap, topic, 2)
    cities = ["Prague", "Zurau", "Prague", "Berlin", "Prague", "Zurau"]
    rows = [json.dumps({"id": number, "city": city}).encode() for number, city in enumerate(cities)]
    rd.produce(bootstrap, "events", [Message(None, row, START_MS) for row in rows])

    start(api)
    phase = eventually(lambda: ended(api), within_s=FINISHES_WITHIN_S, what=lambda: log(api))
    assert phase == "Succeeded", log(api)
    found = [message for partition in (0, 1) for message in rd.consume(bootstrap, "counts", partition=partition)]
    counts = [json.loads(message.value()) for message in found]
    assert sorted((row["city"], row["n"]) for row in counts) == [("Berlin", 1), ("Prague", 3), ("Zurau", 2)]
    assert executors(api), "no executor was made: the driver did it all"


def start(api: Api) -> None:
    core, rights = f"/api/v1/namespaces/{NAMESPACE}", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
    metadata = {"metadata": {"name": "pipeline"}}
    api.ask("POST", f"{core}/serviceaccounts", metadata)
    api.ask("POST", f"{rights}/roles", metadata | {"rules": RULES})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "pipeline"}
    account = {"kind": "ServiceAccount", "name": "pipeline", "namespace": NAMESPACE}
    api.ask("POST", f"{rights}/rolebindings", metadata | {"roleRef": role, "subjects": [account]})
    api.ask("POST", f"{core}/configmaps", metadata | {"data": {"pipeline.yaml": json.dumps(PIPELINE)}})
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    api.ask("POST", f"{core}/persistentvolumeclaims", {"metadata": {"name": "checkpoint"}, "spec": claim})
    named = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"pipeline": "sums"}}
    api.ask("POST", f"{core}/services", metadata | {"spec": named | {"ports": [{"port": 7078}]}})
    api.ask("POST", f"{core}/pods", {"metadata": {"name": "driver", "labels": {"pipeline": "sums"}}, "spec": driver()})


def driver() -> Json:
    arguments = ["run", "--pipeline", "/pipeline/pipeline.yaml", "--checkpoint", "/checkpoint"]
    arguments += ["--bootstrap", f"demo-0.demo.{NAMESPACE}.svc.cluster.local:9091"]
    arguments += ["--master", "k8s://https://kubernetes.default.svc", "--log", "/dev/stderr"]
    mounts = {"pipeline": "/pipeline", "checkpoint": "/checkpoint", "tmp": "/tmp"}
    container = {
        "name": "driver",
        "image": build.reference("spark"),
        "imagePullPolicy": "Never",
        "args": arguments,
        "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()],
    }
    return {
        "serviceAccountName": "pipeline",
        "hostname": "driver",
        "subdomain": "pipeline",
        "restartPolicy": "Never",
        "securityContext": RESTRICTED,
        "containers": [container],
        "volumes": [
            {"name": "pipeline", "configMap": {"name": "pipeline"}},
            {"name": "checkpoint", "persistentVolumeClaim": {"claimName": "checkpoint"}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }


def ended(api: Api) -> str:
    """The driver's phase once it is a last one; empty before."""
    pod = api.get(f"/api/v1/namespaces/{NAMESPACE}/pods/driver") or {}
    phase = str(pod.get("status", {}).get("phase", ""))
    return phase if phase in ("Succeeded", "Failed") else ""


def executors(api: Api) -> list[str]:
    """The names of pods that were made beside the driver, as the events tell."""
    events = api.ask("GET", f"/api/v1/namespaces/{NAMESPACE}/events")["items"]
    started = {event["involvedObject"]["name"] for event in events if event["reason"] == "Started"}
    return sorted(name for name in started if "exec" in name)


def log(api: Api) -> str:
    pods = api.ask("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
    said = [f"{pod['metadata']['name']}: {pod['status']}" for pod in pods]
    return "\n".join([*said, api.ask_text("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/driver/log?tailLines=80")])
