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
from tests.kube import helm
from tests.kube.cluster import Kubernetes
from tests.kube.installed_operator import OPERATOR_NAMESPACE, InstalledOperator, describe_pods
from tests.kube.managed_cluster import external_bootstrap
from tests.kube.namespace_client import NamespaceClient
from tests.kube.resource_history import ResourceHistory
from tests.kube.spark_operator import run_spark_operator
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
    client = NamespaceClient(kube.plane.admin, NAMESPACE)
    restricted = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    client.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": restricted}})
    with ResourceHistory(client.api, NAMESPACE) as history:
        client.create("Cluster", "demo", CLUSTER)
        for topic in ("events", "counts"):
            client.create("Topic", topic, {"clusterRef": {"name": "demo"}, "partitions": 2})
        yield client
        assert history.versions_of("Cluster", "demo", 1) and history.find_violations() == []


def test_a_pipeline_runs_is_suspended_and_finishes(
    installed_operator: InstalledOperator, kube: Kubernetes, resources: NamespaceClient
) -> None:
    """The active operator pod is deleted during each change."""

    def describe() -> str:
        status = resources.get("Pipeline", "sums").get("status")
        return "\n".join([str(status), describe_pods(kube, OPERATOR_NAMESPACE, ""), describe_pods(kube, NAMESPACE, "")])

    def status() -> dict[str, Any]:
        return dict(resources.get("Pipeline", "sums")["status"])

    def has_state(state: str) -> bool:
        """True if the Pipeline is Ready in this state at its current generation."""
        generation = resources.get("Pipeline", "sums")["metadata"]["generation"]
        ready = resources.condition("Pipeline", "sums")
        return (status().get("state"), ready["status"], ready.get("observedGeneration")) == (state, "True", generation)

    with installed_operator.active_pod_deleted("pipeline-started"):
        resources.create("Pipeline", "sums", SPEC)
        eventually(lambda: has_state("Running"), within_s=STARTS_WITHIN_S, message=describe)
    bootstrap = external_bootstrap(kube, resources, "demo")
    produce_rows(bootstrap, "Prague", "Zurau", "Prague", "Berlin", "Prague", "Zurau")
    eventually(lambda: counts(bootstrap) == {"Berlin": 1, "Prague": 3, "Zurau": 2}, within_s=120, message=describe)
    assert executors(resources), "the driver created no executor"
    eventually(lambda: status().get("lagRecords") == 0 and status().get("lastProgress"), within_s=30, message=describe)

    with installed_operator.active_pod_deleted("pipeline-suspended"):
        resources.patch_spec("Pipeline", "sums", {"state": "suspended"})
        eventually(lambda: has_state("Suspended"), within_s=120, message=describe)
    assert not [name for name in resources.list_objects("v1", "pods") if "driver" in name]
    produce_rows(bootstrap, "Prague", "Vienna")
    eventually(lambda: status().get("lagRecords") == 2, within_s=30, message=describe)

    with installed_operator.active_pod_deleted("pipeline-resumed"):
        resources.patch_spec("Pipeline", "sums", {"state": None, "trigger": {"interval": None, "availableNow": True}})
        eventually(lambda: has_state("Finished"), within_s=STARTS_WITHIN_S, message=describe)
    assert counts(bootstrap) == {"Berlin": 1, "Prague": 4, "Zurau": 2, "Vienna": 1}, describe()
    assert resources.condition("Pipeline", "sums")["reason"] == "Completed"
    assert status()["lagRecords"] == 0 and status()["restarts"] == 0, describe()
    eventually(
        lambda: not [name for name in resources.list_objects("v1", "pods") if "driver" in name],
        within_s=60,
        message=describe,
    )


def test_a_new_version_takes_over_from_a_running_one(kube: Kubernetes, resources: NamespaceClient) -> None:
    for topic in ("visits", "by-city-1", "by-city-2"):
        resources.create("Topic", topic, {"clusterRef": {"name": "demo"}, "partitions": 1})
    source = {"visits": {**SPEC["sources"]["events"], "topic": "visits"}}

    def version_spec(number: int, sql: str, sink: dict[str, Any]) -> dict[str, Any]:
        target = {**SPEC["sinks"][0], "topic": f"by-city-{number}", **sink}
        transforms = [{"name": "counts", "sql": sql}]
        return {**SPEC, "sources": source, "transforms": transforms, "sinks": [target]}

    def state_and_phase(name: str) -> tuple[str, str]:
        status = resources.get("Pipeline", name).get("status") or {}
        return str(status.get("state")), str((status.get("replacement") or {}).get("phase"))

    def describe() -> str:
        statuses = [str(resources.get("Pipeline", name).get("status")) for name in ("city-1", "city-2")]
        return "\n".join([*statuses, describe_pods(kube, NAMESPACE, "")])

    bootstrap = external_bootstrap(kube, resources, "demo")
    resources.wait_for_status("Topic", "visits")
    produce_rows(bootstrap, "Prague", "Zurau", "Prague", topic="visits")
    resources.create("Pipeline", "city-1", version_spec(1, "SELECT city, count(*) AS n FROM visits GROUP BY city", {}))
    eventually(
        lambda: counts(bootstrap, "by-city-1", 1) == {"Prague": 2, "Zurau": 1},
        within_s=STARTS_WITHIN_S,
        message=lambda: describe_pods(kube, NAMESPACE, ""),
    )
    sql = "SELECT city, count(city) AS n, max(id) AS last FROM visits GROUP BY city"
    replaces = {"name": "city-1", "takeOver": "WhenEqual"}
    second = {**version_spec(2, sql, {"compareWith": "by-city-1"}), "replaces": replaces}
    resources.create("Pipeline", "city-2", second)
    eventually(lambda: state_and_phase("city-2")[1] == "TakenOver", within_s=STARTS_WITHIN_S, message=describe)
    eventually(lambda: state_and_phase("city-1")[0] == "Suspended", within_s=120, message=describe)
    produce_rows(bootstrap, "Zurau", topic="visits")
    eventually(lambda: counts(bootstrap, "by-city-2", 1) == {"Prague": 2, "Zurau": 2}, within_s=120, message=describe)
    assert counts(bootstrap, "by-city-1", 1) == {"Prague": 2, "Zurau": 1}, "the old version still writes"
    for name in ("city-2", "city-1"):
        resources.delete("Pipeline", name)


def test_a_pipeline_with_invalid_sql_reports_the_error(kube: Kubernetes, resources: NamespaceClient) -> None:
    resources.create(
        "Pipeline", "wrong", {**SPEC, "transforms": [{"name": "counts", "sql": "SELECT town FROM events"}]}
    )

    def is_error_reported() -> bool:
        return "town" in str(resources.get("Pipeline", "wrong").get("status", {}).get("lastError"))

    eventually(is_error_reported, within_s=STARTS_WITHIN_S, message=lambda: describe_pods(kube, NAMESPACE, ""))
    assert resources.condition("Pipeline", "wrong")["status"] == "False"
    resources.delete("Pipeline", "wrong")


def test_a_pipeline_runs_and_finishes_under_the_spark_operator(
    kube: Kubernetes, resources: NamespaceClient, tmp_path: Path
) -> None:
    for topic in ("votes", "sums"):
        resources.create("Topic", topic, {"clusterRef": {"name": "demo"}, "partitions": 1})
    source = {"votes": {**SPEC["sources"]["events"], "topic": "votes"}}
    transform = {"name": "sums", "sql": "SELECT city, count(*) AS n FROM votes GROUP BY city"}
    sink = {**SPEC["sinks"][0], "from": "sums", "topic": "sums"}
    spec = {**SPEC, "launcher": "SparkOperator", "sources": source, "transforms": [transform], "sinks": [sink]}
    resources.wait_for_status("Topic", "votes")
    bootstrap = external_bootstrap(kube, resources, "demo")
    produce_rows(bootstrap, "Prague", "Prague", "Zurau", topic="votes")
    with run_spark_operator(tmp_path, kube.plane, NAMESPACE) as spark_operator:

        def describe() -> str:
            pipeline = str(resources.get("Pipeline", "votes").get("status"))
            return "\n".join([pipeline, describe_pods(kube, NAMESPACE, ""), spark_operator.log_tail()])

        def state() -> str:
            return str((resources.get("Pipeline", "votes").get("status") or {}).get("state"))

        resources.create("Pipeline", "votes", spec)
        eventually(lambda: state() == "Running", within_s=STARTS_WITHIN_S, message=describe)
        eventually(lambda: counts(bootstrap, "sums", 1) == {"Prague": 2, "Zurau": 1}, within_s=120, message=describe)
        assert [name for name in executors(resources) if "votes" in name], "the driver created no executor"

        produce_rows(bootstrap, "Zurau", topic="votes")
        resources.patch_spec("Pipeline", "votes", {"trigger": {"interval": None, "availableNow": True}})
        eventually(lambda: state() == "Finished", within_s=STARTS_WITHIN_S, message=describe)
        resources.wait_for_status("Pipeline", "votes")
        assert counts(bootstrap, "sums", 1) == {"Prague": 2, "Zurau": 2}, describe()
        resources.delete("Pipeline", "votes")
        applications = "/apis/sparkoperator.k8s.io/v1beta2/namespaces/pipes/sparkapplications/votes"
        eventually(lambda: kube.plane.admin.get(applications) is None, within_s=60, message=describe)


def test_helm_test_passes_and_deletes_its_objects(installed_operator: InstalledOperator, kube: Kubernetes) -> None:
    target = ("--kubeconfig", kube.plane.kubeconfig(), "--namespace", OPERATOR_NAMESPACE)
    done = helm.run("test", "ottla", *target, "--timeout", "110s")
    assert done.returncode == 0, done.stdout + done.stderr + installed_operator.describe_pods()
    assert done.stdout.count("Succeeded") == 3, done.stdout
    eventually(lambda: not remaining_test_objects(kube), within_s=60, message=lambda: str(remaining_test_objects(kube)))


def remaining_test_objects(kube: Kubernetes) -> list[str]:
    """Names of remaining pods and PersistentVolumeClaims of the chart's test."""
    resources = NamespaceClient(kube.plane.admin, OPERATOR_NAMESPACE)
    return [
        name
        for plural in ("pods", "persistentvolumeclaims")
        for name in resources.list_objects("v1", plural)
        if "ottla-test" in name
    ]


def produce_rows(bootstrap: str, *cities: str, topic: str = "events") -> None:
    """Produces one row for each city."""
    rows = [json.dumps({"id": number, "city": city}).encode() for number, city in enumerate(cities)]
    rd.produce(bootstrap, topic, [Message(None, row, START_MS) for row in rows])


def counts(bootstrap: str, topic: str = "counts", partitions: int = 2) -> dict[str, int]:
    """City → its latest count in the topic."""
    messages = [it for partition in range(partitions) for it in rd.consume(bootstrap, topic, partition=partition)]
    rows = [json.loads(it.value() or b"") for it in messages]
    return {row["city"]: row["n"] for row in rows}


def executors(resources: NamespaceClient) -> list[str]:
    """Names of started executor pods, from the events."""
    started = {
        it["involvedObject"]["name"]
        for it in resources.list_objects("v1", "events").values()
        if it["reason"] == "Started"
    }
    return sorted(name for name in started if "exec" in name)
