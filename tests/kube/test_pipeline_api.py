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
from tests.kube.api_client import Json
from tests.kube.control_plane import ControlPlane
from tests.kube.fake_kubelet import create_cluster_with_broker, create_ready_pod, run_broker_process
from tests.kube.namespace_client import NamespaceClient
from tests.kube.operator_process import OperatorProcess
from tests.unit.operator.samples import pipeline
from tests.unit.operator.spark_application_fields import unknown
from tests.waiting import eventually

SPEC = {**pipeline()["spec"], "checkpoint": {"pvc": {"size": "1Gi"}}, "trigger": {"interval": "1s"}}
APPLICATIONS = ("sparkoperator.k8s.io/v1beta2", "sparkapplications")
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
    with run_broker_process() as made:
        yield made


@pytest.fixture
def resources(resources: NamespaceClient, broker: BrokerProcess, operator: OperatorProcess) -> NamespaceClient:
    """A namespace with a Cluster whose only broker is the process."""
    create_cluster_with_broker(resources, broker)
    return resources


class Driver:
    """A fake driver: an HTTP server that responds with a driver's progress."""

    def __init__(self, address: str) -> None:
        self.told: Json = {}
        told = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(told.told).encode())

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer((address, 8080), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def runs(self, **more: Any) -> None:
        self.told = {"state": "running", "lastProgress": "2026-01-01T00:00:00Z", "inputRowsPerSecond": 2.5, **more}


@pytest.fixture
def driver() -> Iterator[Driver]:
    made = Driver("127.9.1.2")
    yield made
    made.server.shutdown()
    made.server.server_close()


def tell(resources: NamespaceClient, name: str, state: str, error: str = "", **more: Any) -> None:
    """Write the status of the SparkApplication as kubeflow's operator does."""
    root = f"/apis/{APPLICATIONS[0]}/namespaces/{resources.namespace}/{APPLICATIONS[1]}/{name}/status"
    told = {"state": state, **({"errorMessage": error} if error else {})}
    resources.api.request("PATCH", root, {"status": {"applicationState": told, "driverInfo": {}, **more}})


def state(resources: NamespaceClient) -> str:
    return str((resources.get("Pipeline", "hourly").get("status") or {}).get("state"))


def told(resources: NamespaceClient, operator: OperatorProcess) -> str:
    return f"{resources.get('Pipeline', 'hourly').get('status')}\n{operator.daemon.log_tail()}"


def versions(resources: NamespaceClient) -> dict[str, str]:
    return {
        f"{plural}/{name}": it["metadata"]["resourceVersion"]
        for group, plural in KINDS
        for name, it in resources.list_objects(group, plural).items()
    }


def test_it_waits_for_its_topics_by_name_and_is_launched_when_they_are_there(
    resources: NamespaceClient, operator: OperatorProcess, driver: Driver, broker: BrokerProcess
) -> None:
    resources.create("Pipeline", "hourly", SPEC)
    eventually(
        lambda: resources.condition("Pipeline", "hourly").get("reason") == "WaitingForTopics",
        message=lambda: told(resources, operator),
    )
    assert "topic flights: it does not exist" in resources.condition("Pipeline", "hourly")["message"]
    assert "hourly-driver" not in resources.list_objects("apps/v1", "deployments")
    resources.create("Topic", "flights", {"clusterRef": {"name": "demo"}, "partitions": 2})
    eventually(
        lambda: "hourly-driver" in resources.list_objects("apps/v1", "deployments"),
        message=lambda: told(resources, operator),
    )
    eventually(lambda: resources.condition("Pipeline", "hourly", "TopicsReady")["status"] == "True")
    assert kstatus(resources.get("Pipeline", "hourly")) == "InProgress"

    made = resources.list_objects("apps/v1", "deployments")["hourly-driver"]
    template = made["spec"]["template"]
    driver.runs()
    create_ready_pod(resources, "hourly-driver-x", template, "127.9.1.2")
    rd.produce(broker.bootstrap, "flights", [Message(None, b"{}", START_MS)] * 3)
    with rd.consumer(broker.bootstrap, "ottla-pipeline-hourly") as member:
        member.commit(offsets=[TopicPartition("flights", 0, 1)], asynchronous=False)
    resources.wait_for_status("Pipeline", "hourly")
    eventually(lambda: resources.get("Pipeline", "hourly")["status"].get("lagRecords") == 2, within_s=25)
    status = resources.get("Pipeline", "hourly")["status"]
    assert (status["state"], status["inputRowsPerSecond"]) == ("Running", 2.5)
    assert status["application"] == "Deployment/hourly-driver"

    before, writes, looks = versions(resources), operator.count_writes(), operator.count_reconciles("Pipeline")
    eventually(lambda: operator.count_reconciles("Pipeline") >= looks + 2, within_s=40)
    assert versions(resources) == before, "what is as wished is not written again"
    pipelines_own = {
        kind: count for kind, count in operator.count_writes().items() if kind in ("Pipeline", "Deployment")
    }
    assert pipelines_own == {kind: writes[kind] for kind in pipelines_own}, "not even a write that changes nothing"
    metadata = resources.get("Pipeline", "hourly")["metadata"]
    assert "finalizers" not in metadata and "annotations" not in metadata


def test_suspend_resume_and_the_end(resources: NamespaceClient, operator: OperatorProcess, driver: Driver) -> None:
    resources.create("Topic", "flights", {"clusterRef": {"name": "demo"}})
    resources.create("Pipeline", "hourly", {**SPEC, "trigger": {"availableNow": True}, "state": "suspended"})
    resources.wait_for_status("Pipeline", "hourly")
    assert state(resources) == "Suspended"

    def replicas() -> int:
        return int(resources.list_objects("apps/v1", "deployments")["hourly-driver"]["spec"]["replicas"])

    assert replicas() == 0
    resources.patch_spec("Pipeline", "hourly", {"state": None})
    eventually(lambda: replicas() == 1, message=lambda: told(resources, operator))
    template = resources.list_objects("apps/v1", "deployments")["hourly-driver"]["spec"]["template"]
    driver.runs(state="finished")
    create_ready_pod(resources, "hourly-driver-x", template, "127.9.1.2")
    eventually(lambda: replicas() == 0, message=lambda: told(resources, operator))
    resources.api.request(
        "DELETE", f"/api/v1/namespaces/{resources.namespace}/pods/hourly-driver-x?gracePeriodSeconds=0"
    )
    resources.wait_for_status("Pipeline", "hourly")
    assert (state(resources), resources.condition("Pipeline", "hourly")["reason"]) == ("Finished", "Completed")


def test_a_spark_application_is_as_documented_and_its_status_comes_back(
    plane: ControlPlane, resources: NamespaceClient, operator: OperatorProcess, driver: Driver
) -> None:
    resources.create("Topic", "flights", {"clusterRef": {"name": "demo"}})
    resources.create("Pipeline", "hourly", {**SPEC, "launcher": "SparkOperator"})
    eventually(
        lambda: resources.condition("Pipeline", "hourly").get("reason") == "SparkOperatorNotFound",
        message=lambda: told(resources, operator),
    )
    spark_application_crd.install_crd(plane.admin)
    try:
        made = eventually(
            lambda: resources.list_objects(*APPLICATIONS).get("hourly"),
            within_s=40,
            message=lambda: told(resources, operator),
        )
        assert made is not None and unknown(made) == []
        written = operator.count_writes()["SparkApplication"]
        driver.runs(error=None)
        tell(resources, "hourly", "RUNNING", executionAttempts=1)
        template = made["spec"]["driver"]["template"]
        template["spec"]["containers"][0]["image"] = made["spec"]["image"]
        create_ready_pod(resources, "hourly-driver", template, "127.9.1.2")
        resources.wait_for_status("Pipeline", "hourly")
        assert state(resources) == "Running"
        tell(resources, "hourly", "FAILED", "driver container failed with ExitCode: 1, Reason: Error")
        resources.wait_for_status("Pipeline", "hourly", "Failed")
        status = resources.get("Pipeline", "hourly")["status"]
        assert status["lastError"] == "driver container failed with ExitCode: 1, Reason: Error"
        assert any(
            it["reason"] == "ApplicationFailed" and it["type"] == "Warning"
            for it in resources.list_objects("v1", "events").values()
        )
        assert operator.count_writes()["SparkApplication"] == written, (
            "nothing was pruned that we emit, so nothing is written again"
        )
        resources.patch_spec("Pipeline", "hourly", {"state": "suspended"})

        def made_anew() -> bool:
            """The failed application is deleted first: it would never run again."""
            found = resources.list_objects(*APPLICATIONS).get("hourly")
            return found is not None and bool(found["spec"]["suspend"])

        eventually(made_anew, message=lambda: told(resources, operator))
    finally:
        plane.admin.request("DELETE", spark_application_crd.PATH)


@pytest.mark.parametrize(
    ("spec", "said"),
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
def test_the_api_server_itself_refuses_what_is_wrong(plane: ControlPlane, crds: None, spec: Json, said: str) -> None:
    made = NamespaceClient(plane.admin, "default")
    with pytest.raises(Exception, match=said):
        made.create("Pipeline", "wrong", {**SPEC, **spec})
