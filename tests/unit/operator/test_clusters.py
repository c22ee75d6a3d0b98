"""Looks at a Cluster whose brokers cannot be asked: what is made, what is left alone, and what is said."""

import asyncio
from typing import Any, cast

import pytest

from ottla_operator.kube.api import Api, ApiError
from ottla_operator.kube.clusters import Clusters
from ottla_operator.kube.kinds import CLAIM, CONFIG_MAP, SERVICE
from ottla_operator.kube.known import Key, slim
from ottla_operator.kube.telling import Telling, now_text
from ottla_operator.plan.conditions import kstatus
from ottla_operator.plan.objects.pods import BrokerImages
from ottla_operator.resources.model import Json
from tests.unit.operator.api_server import FakeApi

KEY = Key("events", "demo")
SPEC = {"replicas": 3, "storage": {"size": "10Gi"}}


class Operator:
    """One operator, which may be replaced by another at any time."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        as_api = cast(Api, api)
        self.clusters = Clusters(as_api, Telling(as_api, "test"), BrokerImages("broker", "1"), self.body)

    def body(self, key: Key) -> Json | None:
        it = self.api.objects.get(("Cluster", key.namespace, key.name))
        return slim(it) if it else None

    def look(self) -> list[str]:
        """What was written."""
        before = len(self.api.writes)
        asyncio.run(self.clusters.look(KEY))
        return self.api.writes[before:]

    @property
    def said(self) -> dict[str, dict[str, Any]]:
        (it,) = self.api.of("Cluster").values()
        return {condition["type"]: condition for condition in it["status"]["conditions"]}

    def edit(self, **spec: Any) -> None:
        (it,) = self.api.of("Cluster").values()
        it["spec"] = {**it["spec"], **spec}
        it["metadata"]["generation"] += 1


@pytest.fixture
def api() -> FakeApi:
    made = FakeApi()
    made.cluster(dict(SPEC))
    return made


@pytest.fixture
def operator(api: FakeApi) -> Operator:
    return Operator(api)


def test_what_was_made_is_not_written_again(api: FakeApi, operator: Operator) -> None:
    assert "apply StatefulSet demo" in operator.look()
    api.run_pods()
    operator.look()
    assert operator.look() == []
    assert Operator(api).look() == [], "nor by another operator"
    (cluster,) = api.of("Cluster").values()
    assert kstatus(cluster) == "InProgress"
    assert operator.said["Ready"]["reason"] == "Starting"


def test_what_somebody_changes_is_put_right_and_nothing_else_written(api: FakeApi, operator: Operator) -> None:
    operator.look()
    operator.look()
    api.objects["Role", "events", "demo"]["rules"] = []
    del api.objects["PodDisruptionBudget", "events", "demo"]
    api.objects["Service", "events", "demo-brokers"]["spec"]["added-by-the-server"] = True
    assert sorted(operator.look()) == ["apply PodDisruptionBudget demo", "apply Role demo"]


def test_somebody_elses_object_is_left_alone(api: FakeApi, operator: Operator) -> None:
    api.put(SERVICE, {"metadata": {"name": "demo-brokers", "namespace": "events"}, "spec": {"ports": []}})
    operator.look()
    assert operator.said["Stalled"]["status"] == "True"
    assert "Service demo-brokers" in operator.said["Stalled"]["message"]
    assert not api.of("StatefulSet")


def test_what_was_made_for_a_cluster_of_the_same_name_goes_by_itself_and_nobody_is_called(
    api: FakeApi, operator: Operator
) -> None:
    operator.look()
    api.cluster(dict(SPEC))  # made anew, before Kubernetes has taken away what the one before owned
    operator.look()
    assert operator.said["Reconciling"]["status"] == "True" and operator.said["Stalled"]["status"] == "False"
    assert "of another life" in operator.said["Ready"]["message"]
    for kind, namespace, name in list(api.objects):
        if kind not in ("Cluster", "Lease"):
            del api.objects[kind, namespace, name]
    operator.look()
    assert api.of("StatefulSet") and operator.said["Ready"]["reason"] == "Starting"


def test_what_cannot_be_is_said(api: FakeApi, operator: Operator) -> None:
    operator.edit(config={"node.id": 7})
    assert operator.look() == ["status Cluster demo"]
    assert operator.said["Stalled"]["reason"] == "InvalidSpec" and "node.id" in operator.said["Stalled"]["message"]
    operator.edit(config={})
    operator.look()
    assert operator.said["Stalled"]["status"] == "False"


def test_a_broker_waits_for_its_address(api: FakeApi, operator: Operator) -> None:
    operator.edit(listeners=[{"name": "out", "port": 9094, "type": "LoadBalancer"}])
    operator.look()
    assert operator.said["Ready"]["reason"] == "WaitingForAddress" and not api.of("StatefulSet")
    for number in (1, 2, 3):
        api.objects["Service", "events", f"demo-out-{number}"]["status"] = {
            "loadBalancer": {"ingress": [{"ip": f"10.0.0.{number}"}]}
        }
    operator.look()
    assert api.stateful_set["spec"]["replicas"] == 3
    settings = api.of("ConfigMap")[api.stateful_set["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"]]
    assert "OUT://10.0.0.2:9094" in settings["data"]["broker-2.properties"]


def test_pods_learn_the_rack_of_their_node(api: FakeApi, operator: Operator) -> None:
    operator.edit(rack={"topologyKey": "zone"})
    api.node("one", {"zone": "west"})
    operator.look()
    api.run_pods()
    operator.look()
    assert {it["metadata"]["annotations"]["ottla.dev/rack"] for it in api.of("Pod").values()} == {"west"}
    operator.look()
    assert operator.look() == []


def test_brokers_that_are_ready_and_cannot_be_asked_are_not_restarted(api: FakeApi, operator: Operator) -> None:
    operator.look()
    api.run_pods(ready=True)
    operator.edit(image="other:1")
    assert [it for it in operator.look() + operator.look() if "Pod" in it] == []
    assert operator.said["Ready"]["reason"] == "Rolling"


def test_a_pod_that_does_not_start_is_named_and_after_a_while_a_person_is_told(
    api: FakeApi, operator: Operator
) -> None:
    operator.edit(image="broken:1")
    operator.look()
    api.run_pods(trouble={"reason": "ImagePullBackOff", "message": "no such image broken:1"})
    operator.look()
    assert operator.said["Stalled"]["reason"] == "BrokerDoesNotStart"  # the pods are as old as the year
    assert "ImagePullBackOff: no such image broken:1" in operator.said["Ready"]["message"]
    operator.edit(image="good:1")
    assert "delete Pod demo-1" in operator.look()
    api.run_pods()
    assert "delete Pod demo-2" in operator.look(), "those that serve nobody go first"


def test_a_broker_that_served_for_long_and_is_evicted_is_not_late(api: FakeApi, operator: Operator) -> None:
    operator.look()
    api.run_pods(ready=True)
    pod = api.of("Pod")["demo-2"]
    pod["status"]["conditions"][0]["lastTransitionTime"] = "2026-01-01T00:00:00Z"  # ready since then
    pod["metadata"]["deletionTimestamp"] = now_text()
    operator.look()
    assert operator.said["Stalled"]["status"] == "False", operator.said["Stalled"]["message"]
    pod["metadata"]["deletionTimestamp"] = (
        "2026-01-01T00:01:00Z"  # its node is gone, and nobody says that it has stopped
    )
    operator.look()
    assert operator.said["Stalled"]["reason"] == "BrokerDoesNotStart"


def test_disks_grow_in_place(api: FakeApi, operator: Operator) -> None:
    operator.look()
    api.run_pods()
    labels = api.stateful_set["spec"]["selector"]["matchLabels"]
    for number in (1, 2, 3):
        claim = {"metadata": {"name": f"data-demo-{number}", "namespace": "events", "labels": labels}}
        api.put(CLAIM, {**claim, "spec": {"resources": {"requests": {"storage": "10Gi"}}}})
    operator.edit(storage={"size": "20Gi"})
    writes = operator.look()
    assert [it for it in writes if "Pod " in it] == []
    assert "orphan StatefulSet demo" in writes and writes.count("apply StatefulSet demo") == 1
    assert {it["spec"]["resources"]["requests"]["storage"] for it in api.of("PersistentVolumeClaim").values()} == {
        "20Gi"
    }
    assert "orphan StatefulSet demo" not in operator.look()


def test_what_was_noted_down_is_known_to_the_operator_after_one_that_was_killed_while_disks_grew(
    api: FakeApi, operator: Operator
) -> None:
    operator.look()
    noted = {"ottla.dev/spread": "1,2,3", "ottla.dev/cluster-settings": '{"log.retention.ms": "5"}'}
    api.stateful_set["metadata"]["annotations"].update(noted)
    api.run_pods()
    operator.edit(storage={"size": "20Gi"})
    api.refuse = lambda write: ApiError(0, "killed") if write == "apply StatefulSet demo" else None
    with pytest.raises(ApiError, match="killed"):
        operator.look()
    assert not api.of("StatefulSet")
    api.refuse = lambda write: None
    Operator(api).look()
    assert noted.items() <= api.stateful_set["metadata"]["annotations"].items()


def test_a_storage_class_that_does_not_grow_is_a_persons_matter(api: FakeApi, operator: Operator) -> None:
    operator.look()
    labels = api.stateful_set["spec"]["selector"]["matchLabels"]
    claim = {"metadata": {"name": "data-demo-1", "namespace": "events", "labels": labels}}
    api.put(CLAIM, {**claim, "spec": {"resources": {"requests": {"storage": "10Gi"}}}})
    operator.edit(storage={"size": "20Gi"})
    api.refuse = lambda write: (
        ApiError(422, "only dynamically provisioned") if "PersistentVolumeClaim" in write else None
    )
    operator.look()
    assert operator.said["Stalled"]["status"] == "True" and "dynamically" in operator.said["Stalled"]["message"]
    assert api.stateful_set["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"] == "10Gi"


def test_a_cluster_that_shall_shrink_keeps_its_brokers_while_nobody_can_move_partitions(
    api: FakeApi, operator: Operator
) -> None:
    operator.look()
    operator.edit(replicas=1)
    operator.look()
    assert api.stateful_set["spec"]["replicas"] == 3
    operator.edit(replicas=5)
    operator.look()
    assert api.stateful_set["spec"]["replicas"] == 5


def test_settings_that_no_pod_has_go(api: FakeApi, operator: Operator) -> None:
    operator.look()
    api.run_pods(ready=True)
    for value in (2, 3):
        operator.edit(config={"num.partitions": value})
        operator.look()
        for it in api.of("ConfigMap").values():
            it["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    operator.look()
    used = {it["spec"]["volumes"][0]["configMap"]["name"] for it in api.of("Pod").values()}
    now = api.stateful_set["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"]
    assert set(api.of("ConfigMap")) == used | {now}
    api.put(CONFIG_MAP, {"metadata": {"name": "demo-settings-mine", "namespace": "events"}})
    operator.look()
    assert "demo-settings-mine" in api.of("ConfigMap"), "it is somebody else's"


def test_a_cluster_that_is_being_deleted_is_left_to_kubernetes(api: FakeApi, operator: Operator) -> None:
    operator.look()
    (it,) = api.of("Cluster").values()
    it["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert operator.look() == []
