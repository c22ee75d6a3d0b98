"""Pipelines on a real kubelet: the installed operator starts the driver, and the driver its
executors.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients import librdkafka as rd
from tests.clients.sample_messages import START_MS, Message
from tests.kube import helm, spark_application_crd
from tests.kube.cluster import Kubernetes
from tests.kube.fake_spark_operator import FakeSparkOperator
from tests.kube.installed_operator import OPERATOR_NAMESPACE, InstalledOperator, describe_pods
from tests.kube.namespace_client import NamespaceClient
from tests.kube.resource_history import ResourceHistory
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(1500)  # the images may have to be built
NAMESPACE = "pipes"
STARTS_WITHIN_S = 300.0
CLUSTER = {
    "replicas": 3,
    "resources": {"requests": {"cpu": "50m"}},
    "storage": {"size": "1Gi"},
    "listeners": [{"name": "plain", "port": 9092}, {"name": "out", "port": 9094, "type": "NodePort"}],
}
SPEC: dict[str, Any] = {
    "clusterRef": {"name": "demo"},
    "launcher": "Driver",
    "sources": {"events": {"topic": "events", "format": {"type": "json", "schema": "id INT NOT NULL, city STRING"}}},
    "transforms": [{"name": "counts", "sql": "SELECT city, count(*) AS n FROM events GROUP BY city"}],
    "sinks": [{"from": "counts", "topic": "counts", "key": ["city"], "outputMode": "update"}],
    "trigger": {"interval": "1s"},
    "checkpoint": {"pvc": {"size": "1Gi"}},
    "stop": {"graceful": "60s"},
    "spark": {
        "driver": {"cores": "100m", "memory": "600Mi"},
        "executor": {"instances": 1, "cores": "100m", "memory": "512Mi"},
        "conf": {"spark.sql.shuffle.partitions": "2"},
    },
}


@pytest.fixture(scope="module")
def resources(installed_operator: InstalledOperator, kube: Kubernetes, spark_image: None) -> Iterator[NamespaceClient]:
    """A Cluster of three brokers with Topics, in a namespace with the restricted Pod Security
    level. The module fails if any version of the resources had inconsistent conditions.
    """
    made = NamespaceClient(kube.plane.admin, NAMESPACE)
    restricted = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    made.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": restricted}})
    with ResourceHistory(made.api, NAMESPACE) as history:
        made.create("Cluster", "demo", CLUSTER)
        for topic in ("events", "counts"):
            made.create("Topic", topic, {"clusterRef": {"name": "demo"}, "partitions": 2})
        yield made
        assert history.versions_of("Pipeline", "sums", 1) and history.find_violations() == []


def bootstrap(kube: Kubernetes, resources: NamespaceClient) -> str:
    """Bootstrap server for clients outside Kubernetes."""
    port = resources.list_objects("v1", "services")["demo-out-bootstrap"]["spec"]["ports"][0]["nodePort"]
    return f"{kube.nodes[0].address}:{port}"


def test_a_pipeline_runs_is_suspended_and_ends(
    installed_operator: InstalledOperator, kube: Kubernetes, resources: NamespaceClient
) -> None:
    """The active operator pod is deleted during each change."""

    def what() -> str:
        status = resources.get("Pipeline", "sums").get("status")
        return "\n".join([str(status), describe_pods(kube, OPERATOR_NAMESPACE, ""), describe_pods(kube, NAMESPACE, "")])

    def status() -> dict[str, Any]:
        return dict(resources.get("Pipeline", "sums")["status"])

    def is_(state: str, ready: str = "True") -> bool:
        generation = resources.get("Pipeline", "sums")["metadata"]["generation"]
        found = resources.condition("Pipeline", "sums")
        return (status().get("state"), found["status"], found.get("observedGeneration")) == (state, ready, generation)

    with installed_operator.active_pod_deleted("pipeline-started"):
        resources.create("Pipeline", "sums", SPEC)
        eventually(lambda: is_("Running"), within_s=STARTS_WITHIN_S, message=what)
    at = bootstrap(kube, resources)
    produce_rows(at, "Prague", "Zurau", "Prague", "Berlin", "Prague", "Zurau")
    eventually(lambda: counts(at) == {"Berlin": 1, "Prague": 3, "Zurau": 2}, within_s=120, message=what)
    assert executors(resources), "no executor was made: the driver did it all"
    eventually(lambda: status().get("lagRecords") == 0 and status().get("lastProgress"), within_s=30, message=what)

    with installed_operator.active_pod_deleted("pipeline-suspended"):
        resources.patch_spec("Pipeline", "sums", {"state": "suspended"})
        eventually(lambda: is_("Suspended"), within_s=120, message=what)
    assert not [name for name in resources.list_objects("v1", "pods") if "driver" in name]
    produce_rows(at, "Prague", "Vienna")
    eventually(lambda: status().get("lagRecords") == 2, within_s=30, message=what)

    with installed_operator.active_pod_deleted("pipeline-resumed"):
        resources.patch_spec("Pipeline", "sums", {"state": None, "trigger": {"interval": None, "availableNow": True}})
        eventually(lambda: is_("Finished"), within_s=STARTS_WITHIN_S, message=what)
    assert counts(at) == {"Berlin": 1, "Prague": 4, "Zurau": 2, "Vienna": 1}, what()
    assert resources.condition("Pipeline", "sums")["reason"] == "Completed"
    assert status()["lagRecords"] == 0 and status()["restarts"] == 0, what()
    eventually(
        lambda: not [name for name in resources.list_objects("v1", "pods") if "driver" in name],
        within_s=60,
        message=what,
    )


def test_a_pipeline_that_cannot_run_says_why(kube: Kubernetes, resources: NamespaceClient) -> None:
    resources.create(
        "Pipeline", "wrong", {**SPEC, "transforms": [{"name": "counts", "sql": "SELECT town FROM events"}]}
    )

    def said_why() -> bool:
        return "town" in str(resources.get("Pipeline", "wrong").get("status", {}).get("lastError"))

    eventually(said_why, within_s=STARTS_WITHIN_S, message=lambda: describe_pods(kube, NAMESPACE, ""))
    assert resources.condition("Pipeline", "wrong")["status"] == "False"
    resources.delete("Pipeline", "wrong")


def test_what_a_spark_operator_is_given_runs_as_spark_submits_it(
    kube: Kubernetes, resources: NamespaceClient, tmp_path: Path
) -> None:
    """kubeflow's operator does nothing to these pods besides passing the fields to spark-submit."""
    spark_application_crd.install_crd(kube.plane.admin)
    spark = FakeSparkOperator(tmp_path, kube.plane, resources)
    for topic in ("votes", "sums"):
        resources.create("Topic", topic, {"clusterRef": {"name": "demo"}, "partitions": 1})
    source = {"votes": {**SPEC["sources"]["events"], "topic": "votes"}}
    step = {"name": "sums", "sql": "SELECT city, count(*) AS n FROM votes GROUP BY city"}
    sink = {**SPEC["sinks"][0], "from": "sums", "topic": "sums"}
    wish = {**SPEC, "launcher": "SparkOperator", "sources": source, "transforms": [step], "sinks": [sink]}
    resources.wait_for_status("Topic", "votes")
    at = bootstrap(kube, resources)
    produce_rows(at, "Prague", "Prague", "Zurau", topic="votes")

    def what() -> str:
        return "\n".join([str(resources.get("Pipeline", "votes").get("status")), describe_pods(kube, NAMESPACE, "")])

    resources.create("Pipeline", "votes", {**wish, "trigger": {"availableNow": True}})
    eventually(lambda: spark.get_application("votes"), within_s=60, message=what)
    spark.submit("votes")
    state = eventually(
        lambda: found if (found := spark.update_status("votes")) in ("COMPLETED", "FAILED") else "",
        within_s=300,
        message=what,
    )
    assert state == "COMPLETED", what()
    resources.wait_for_status("Pipeline", "votes")
    assert resources.get("Pipeline", "votes")["status"]["state"] == "Finished"
    assert counts(at, "sums", 1) == {"Prague": 2, "Zurau": 1}, what()
    assert [name for name in executors(resources) if "votes" in name], "no executor was made: the driver did it all"


def test_the_charts_own_test_passes_and_leaves_nothing(installed_operator: InstalledOperator, kube: Kubernetes) -> None:
    where = ("--kubeconfig", kube.plane.kubeconfig(), "--namespace", OPERATOR_NAMESPACE)
    done = helm.run("test", "ottla", *where, "--timeout", "110s")
    assert done.returncode == 0, done.stdout + done.stderr + installed_operator.describe_pods()
    assert done.stdout.count("Succeeded") == 3, done.stdout
    eventually(lambda: not left(kube), within_s=60, message=lambda: str(left(kube)))


def left(kube: Kubernetes) -> list[str]:
    """Names of remaining pods and claims of the chart's test."""
    resources = NamespaceClient(kube.plane.admin, OPERATOR_NAMESPACE)
    return [
        name
        for plural in ("pods", "persistentvolumeclaims")
        for name in resources.list_objects("v1", plural)
        if "ottla-test" in name
    ]


def produce_rows(at: str, *cities: str, topic: str = "events") -> None:
    rows = [json.dumps({"id": number, "city": city}).encode() for number, city in enumerate(cities)]
    rd.produce(at, topic, [Message(None, row, START_MS) for row in rows])


def counts(at: str, topic: str = "counts", partitions: int = 2) -> dict[str, int]:
    """The latest record of each key."""
    found = [message for partition in range(partitions) for message in rd.consume(at, topic, partition=partition)]
    return {row["city"]: row["n"] for row in (json.loads(message.value() or b"") for message in found)}


def executors(resources: NamespaceClient) -> list[str]:
    """Names of started executor pods, from the events."""
    started = {
        it["involvedObject"]["name"]
        for it in resources.list_objects("v1", "events").values()
        if it["reason"] == "Started"
    }
    return sorted(name for name in started if "exec" in name)
