"""Pipelines on a real API server without nodes. The broker is a process; the tests act as kubelet,
controllers and kubeflow's operator.
"""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from ottla_operator.plan.conditions import kstatus
from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clients.sample_messages import START_MS, Message
from tests.kube import spark_application_crd
from tests.kube.api_client import ApiError, Json
from tests.kube.control_plane import ControlPlane
from tests.kube.custom_resource_definitions import crd_path, install_crd
from tests.kube.fake_kubelet import create_cluster_with_broker, create_ready_pod, run_broker_process
from tests.kube.namespace_client import NamespaceClient
from tests.kube.operator_process import OperatorProcess
from tests.unit.operator.samples import pipeline
from tests.unit.operator.spark_application_fields import find_undocumented_fields
from tests.waiting import eventually

SPEC = {**pipeline()["spec"], "checkpoint": {"pvc": {"size": "1Gi"}}, "trigger": {"interval": "1s"}}
APPLICATIONS = ("sparkoperator.k8s.io/v1beta2", "sparkapplications")
# Kinds of the objects that the operator could write, as arguments of `list_objects`.
KINDS = (
    ("v1", "configmaps"),
    ("v1", "serviceaccounts"),
    ("v1", "persistentvolumeclaims"),
    ("apps/v1", "deployments"),
    ("rbac.authorization.k8s.io/v1", "roles"),
    ("rbac.authorization.k8s.io/v1", "rolebindings"),
    ("ottla.dev/v1alpha1", "pipelines"),
)


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    with run_broker_process() as broker:
        yield broker


@pytest.fixture
def resources(resources: NamespaceClient, broker: BrokerProcess, operator: OperatorProcess) -> NamespaceClient:
    """A namespace with a Cluster whose only broker is `broker`."""
    create_cluster_with_broker(resources, broker)
    return resources


class FakeDriver:
    """A fake driver: an HTTP server that responds with a driver's progress."""

    def __init__(self, address: str) -> None:
        self.progress: Json = {}
        driver = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(driver.progress).encode())

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer((address, 8080), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def report_progress(self, **fields: Any) -> None:
        """Responds with the progress of a running driver, with these fields replaced."""
        running = {"state": "running", "lastProgress": "2026-01-01T00:00:00Z", "inputRowsPerSecond": 2.5}
        self.progress = {**running, **fields}


@pytest.fixture
def driver() -> Iterator[FakeDriver]:
    fake = FakeDriver("127.9.1.2")
    yield fake
    fake.server.shutdown()
    fake.server.server_close()


def write_application_status(resources: NamespaceClient, name: str, state: str, error: str = "", **fields: Any) -> None:
    """Writes the status of the SparkApplication as kubeflow's operator does."""
    root = f"/apis/{APPLICATIONS[0]}/namespaces/{resources.namespace}/{APPLICATIONS[1]}/{name}/status"
    application_state = {"state": state, **({"errorMessage": error} if error else {})}
    status = {"applicationState": application_state, "driverInfo": {}, **fields}
    resources.api.request("PATCH", root, {"status": status})


def pipeline_state(resources: NamespaceClient) -> str:
    """`status.state` of the Pipeline."""
    return str((resources.get("Pipeline", "hourly").get("status") or {}).get("state"))


def describe(resources: NamespaceClient, operator: OperatorProcess) -> str:
    """Status of the Pipeline and log of the operator, for assertion messages."""
    return f"{resources.get('Pipeline', 'hourly').get('status')}\n{operator.daemon.log_tail()}"


def test_a_pipeline_waits_for_its_topics_and_is_launched_when_they_exist(
    resources: NamespaceClient, operator: OperatorProcess, driver: FakeDriver, broker: BrokerProcess
) -> None:
    resources.create("Pipeline", "hourly", SPEC)
    eventually(
        lambda: resources.condition("Pipeline", "hourly").get("reason") == "WaitingForTopics",
        message=lambda: describe(resources, operator),
    )
    assert "topic flights: it does not exist" in resources.condition("Pipeline", "hourly")["message"]
    assert "hourly-driver" not in resources.list_objects("apps/v1", "deployments")
    resources.create("Topic", "flights", {"clusterRef": {"name": "demo"}, "partitions": 2})
    eventually(
        lambda: "hourly-driver" in resources.list_objects("apps/v1", "deployments"),
        message=lambda: describe(resources, operator),
    )
    eventually(lambda: resources.condition("Pipeline", "hourly", "TopicsReady")["status"] == "True")
    assert kstatus(resources.get("Pipeline", "hourly")) == "InProgress"

    template = resources.list_objects("apps/v1", "deployments")["hourly-driver"]["spec"]["template"]
    driver.report_progress()
    create_ready_pod(resources, "hourly-driver-x", template, "127.9.1.2")
    rd.produce(broker.bootstrap, "flights", [Message(None, b"{}", START_MS)] * 3)
    with rd.open_consumer(broker.bootstrap, "ottla-pipeline-hourly") as member:
        member.commit(offsets=[TopicPartition("flights", 0, 1)], asynchronous=False)
    resources.wait_for_status("Pipeline", "hourly")
    eventually(lambda: resources.get("Pipeline", "hourly")["status"].get("lagRecords") == 2, within_s=25)
    status = resources.get("Pipeline", "hourly")["status"]
    assert (status["state"], status["inputRowsPerSecond"]) == ("Running", 2.5)
    assert status["application"] == "Deployment/hourly-driver"

    before = resources.resource_versions(KINDS)
    writes, reconciles = operator.count_writes(), operator.count_reconciles("Pipeline")
    eventually(lambda: operator.count_reconciles("Pipeline") >= reconciles + 2, within_s=40)
    assert resources.resource_versions(KINDS) == before, "a reconciled Pipeline is not written again"
    after = {kind: count for kind, count in operator.count_writes().items() if kind in ("Pipeline", "Deployment")}
    assert after == {kind: writes[kind] for kind in after}, "no writes without effect either"
    metadata = resources.get("Pipeline", "hourly")["metadata"]
    assert "finalizers" not in metadata and "annotations" not in metadata


def test_a_pipeline_is_suspended_resumed_and_finishes(
    resources: NamespaceClient, operator: OperatorProcess, driver: FakeDriver
) -> None:
    resources.create("Topic", "flights", {"clusterRef": {"name": "demo"}})
    resources.create("Pipeline", "hourly", {**SPEC, "trigger": {"availableNow": True}, "state": "suspended"})
    resources.wait_for_status("Pipeline", "hourly")
    assert pipeline_state(resources) == "Suspended"

    def replicas() -> int:
        return int(resources.list_objects("apps/v1", "deployments")["hourly-driver"]["spec"]["replicas"])

    assert replicas() == 0
    resources.patch_spec("Pipeline", "hourly", {"state": None})
    eventually(lambda: replicas() == 1, message=lambda: describe(resources, operator))
    template = resources.list_objects("apps/v1", "deployments")["hourly-driver"]["spec"]["template"]
    driver.report_progress(state="finished")
    create_ready_pod(resources, "hourly-driver-x", template, "127.9.1.2")
    eventually(lambda: replicas() == 0, message=lambda: describe(resources, operator))
    resources.api.request(
        "DELETE", f"/api/v1/namespaces/{resources.namespace}/pods/hourly-driver-x?gracePeriodSeconds=0"
    )
    resources.wait_for_status("Pipeline", "hourly")
    assert (pipeline_state(resources), resources.condition("Pipeline", "hourly")["reason"]) == ("Finished", "Completed")


def test_a_topic_with_a_lake_has_a_pipeline_and_its_lag(
    resources: NamespaceClient, operator: OperatorProcess, driver: FakeDriver, broker: BrokerProcess
) -> None:
    """The Pipeline is deleted when the field is removed. Kubernetes' garbage collector does not run
    here.
    """
    rest = {"type": "rest", "uri": "http://catalog:8181"}
    lake = {"iceberg": {"table": "lake.air.flights", "catalog": rest}, "interval": "1s"}
    resources.create("Topic", "flights", {"clusterRef": {"name": "demo"}, "partitions": 2, "lake": lake})

    def explain() -> str:
        return f"{resources.get('Topic', 'flights').get('status')}\n{operator.daemon.log_tail()}"

    eventually(lambda: "lake-flights-driver" in resources.list_objects("apps/v1", "deployments"), message=explain)
    metadata = resources.get("Pipeline", "lake-flights")["metadata"]
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Topic", "flights", True)

    template = resources.list_objects("apps/v1", "deployments")["lake-flights-driver"]["spec"]["template"]
    driver.report_progress()
    create_ready_pod(resources, "lake-flights-driver-x", template, "127.9.1.2")
    rd.produce(broker.bootstrap, "flights", [Message(None, b"x", START_MS)] * 3)
    with rd.open_consumer(broker.bootstrap, "ottla-pipeline-lake-flights") as member:
        member.commit(offsets=[TopicPartition("flights", 0, 1)], asynchronous=False)
    expected = {"pipeline": "lake-flights", "state": "Running", "lagRecords": 2}
    eventually(
        lambda: expected.items() <= resources.get("Topic", "flights").get("status", {}).get("lake", {}).items(),
        within_s=40,
        message=explain,
    )
    resources.patch_spec("Topic", "flights", {"lake": None})
    pipelines = ("ottla.dev/v1alpha1", "pipelines")
    eventually(lambda: "lake-flights" not in resources.list_objects(*pipelines), message=explain)
    eventually(lambda: "lake" not in resources.get("Topic", "flights")["status"], message=explain)


def test_a_spark_application_matches_the_documented_fields_and_its_status_is_reported(
    plane: ControlPlane, resources: NamespaceClient, operator: OperatorProcess, driver: FakeDriver
) -> None:
    resources.create("Topic", "flights", {"clusterRef": {"name": "demo"}})
    resources.create("Pipeline", "hourly", {**SPEC, "launcher": "SparkOperator"})
    eventually(
        lambda: resources.condition("Pipeline", "hourly").get("reason") == "SparkOperatorNotFound",
        message=lambda: describe(resources, operator),
    )
    install_crd(plane.admin, spark_application_crd.CRD)
    try:
        application = eventually(
            lambda: resources.list_objects(*APPLICATIONS).get("hourly"),
            within_s=40,
            message=lambda: describe(resources, operator),
        )
        assert application is not None and find_undocumented_fields(application) == []
        writes = operator.count_writes()["SparkApplication"]
        driver.report_progress(error=None)
        write_application_status(resources, "hourly", "RUNNING", executionAttempts=1)
        template = application["spec"]["driver"]["template"]
        template["spec"]["containers"][0]["image"] = application["spec"]["image"]
        create_ready_pod(resources, "hourly-driver", template, "127.9.1.2")
        resources.wait_for_status("Pipeline", "hourly")
        assert pipeline_state(resources) == "Running"
        write_application_status(
            resources, "hourly", "FAILED", "driver container failed with ExitCode: 1, Reason: Error"
        )
        resources.wait_for_status("Pipeline", "hourly", "Failed")
        status = resources.get("Pipeline", "hourly")["status"]
        assert status["lastError"] == "driver container failed with ExitCode: 1, Reason: Error"
        eventually(
            lambda: any(
                it["reason"] == "ApplicationFailed" and it["type"] == "Warning"
                for it in resources.list_objects("v1", "events").values()
            ),
            message=lambda: describe(resources, operator),
        )
        assert operator.count_writes()["SparkApplication"] == writes, (
            "the API server pruned no field, so nothing is written again"
        )
        resources.patch_spec("Pipeline", "hourly", {"state": "suspended"})

        def is_recreated() -> bool:
            """The failed application is deleted first: it would never run again."""
            recreated = resources.list_objects(*APPLICATIONS).get("hourly")
            return recreated is not None and bool(recreated["spec"]["suspend"])

        eventually(is_recreated, message=lambda: describe(resources, operator))
    finally:
        plane.admin.request("DELETE", crd_path(spark_application_crd.NAME))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"trigger": {"interval": "1s", "availableNow": True}},
            "a trigger has exactly one of interval and availableNow: true",
        ),
        ({"sinks": [{"from": "nobody", "topic": "late"}]}, "must name a source or a transform"),
        ({"checkpoint": {"path": "a", "pvc": {"size": "1Gi"}}}, "a checkpoint has exactly one of path, pvc and s3"),
        ({"launcher": "Somebody"}, "spec.launcher"),
    ],
)
def test_the_api_server_rejects_invalid_specs(plane: ControlPlane, crds: None, spec: Json, message: str) -> None:
    resources = NamespaceClient(plane.admin, "default")
    with pytest.raises(ApiError, match=message):
        resources.create("Pipeline", "wrong", {**SPEC, **spec})
