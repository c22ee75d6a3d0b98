"""Reconciles of a Cluster on Kubernetes while no broker answers: what is created, left alone and
reported.
"""

import asyncio
import datetime
from typing import cast

from ottla_operator.kube.api import ApiClient
from ottla_operator.kube.kinds import CONFIG_MAP, EVENT, SERVICE
from ottla_operator.kube.status_writer import EventRecorder, now_text
from ottla_operator.plan.conditions import kstatus
from ottla_operator.plan.objects.config import read_settings
from tests.unit.operator.api_server import FakeApi
from tests.unit.operator.cluster_operator import SPEC, Operator


def test_converged_objects_are_not_written_again(api: FakeApi, operator: Operator) -> None:
    assert "apply StatefulSet demo" in operator.reconcile()
    api.run_pods()
    operator.reconcile()
    assert operator.reconcile() == []
    assert Operator(api).reconcile() == [], "nor by another operator"
    (cluster,) = api.of("Cluster").values()
    assert kstatus(cluster) == "InProgress"
    assert operator.conditions["Ready"]["reason"] == "InsufficientReplicas"


def test_changed_and_deleted_objects_are_applied_again_and_no_others(api: FakeApi, operator: Operator) -> None:
    operator.reconcile()
    operator.reconcile()
    api.objects["NetworkPolicy", "events", "demo"]["spec"]["ingress"] = []
    del api.objects["PodDisruptionBudget", "events", "demo"]
    api.objects["Service", "events", "demo-brokers"]["spec"]["added-by-the-server"] = True
    assert sorted(operator.reconcile()) == ["apply NetworkPolicy demo", "apply PodDisruptionBudget demo"]


def test_an_object_of_another_owner_stalls_the_cluster(api: FakeApi, operator: Operator) -> None:
    api.put(SERVICE, {"metadata": {"name": "demo-brokers", "namespace": "events"}, "spec": {"ports": []}})
    operator.reconcile()
    assert operator.conditions["Stalled"]["status"] == "True"
    assert "Service demo-brokers" in operator.conditions["Stalled"]["message"]
    assert not api.of("StatefulSet")


def test_objects_of_a_deleted_cluster_of_the_same_name_are_waited_for(api: FakeApi, operator: Operator) -> None:
    operator.reconcile()
    api.put_cluster(dict(SPEC))  # before Kubernetes has deleted what the previous one owned
    operator.reconcile()
    assert (
        operator.conditions["Reconciling"]["status"] == "True" and operator.conditions["Stalled"]["status"] == "False"
    )
    assert "that was deleted before" in operator.conditions["Ready"]["message"]
    for kind, namespace, name in list(api.objects):
        if kind != "Cluster":
            del api.objects[kind, namespace, name]
    operator.reconcile()
    assert api.of("StatefulSet") and operator.conditions["Ready"]["reason"] == "InsufficientReplicas"


def test_an_invalid_spec_stalls_the_cluster(api: FakeApi, operator: Operator) -> None:
    operator.edit(storage=None)
    assert operator.reconcile() == ["status Cluster demo"]
    assert (
        operator.conditions["Stalled"]["reason"] == "InvalidSpec"
        and "spec.storage" in operator.conditions["Stalled"]["message"]
    )
    operator.edit(**SPEC)
    operator.reconcile()
    assert operator.conditions["Stalled"]["status"] == "False"


def test_a_new_cluster_with_a_refused_setting_gets_no_broker(api: FakeApi, operator: Operator) -> None:
    operator.edit(config={"num.partitons": 7})
    assert operator.reconcile() == ["status Cluster demo"]
    stalled = operator.conditions["Stalled"]
    assert stalled["reason"] == "SettingRefused" and "did you mean num.partitions?" in stalled["message"]
    operator.edit(config={"num.partitions": 7})
    operator.reconcile()
    assert api.of("StatefulSet") and operator.conditions["Stalled"]["status"] == "False"


def test_no_broker_is_started_or_restarted_with_a_refused_setting(api: FakeApi, operator: Operator) -> None:
    operator.edit(config={"num.partitions": 7})
    operator.reconcile()
    api.run_pods(ready=True)
    operator.reconcile()
    operator.edit(config={"num.partitions": 8, "log.retention.ms": "soon"}, replicas=4)
    writes = operator.reconcile()
    assert operator.conditions["Stalled"]["reason"] == "SettingRefused"
    assert "'soon'" in operator.conditions["Ready"]["message"]
    assert writes[0] == "status Cluster demo", "the status is written before anything else"
    assert api.stateful_set["spec"]["replicas"] == 4, "the rest of the spec is applied"
    for config in api.of("ConfigMap").values():
        settings = read_settings(config, 1)
        assert settings["num.partitions"] == "7" and "log.retention.ms" not in settings, (
            "neither changed setting is applied"
        )
    assert [it for it in writes if "Pod " in it] == []
    assert operator.reconcile() == []


def test_a_broker_that_was_started_with_a_refused_setting_is_restarted_with_settings_of_a_serving_one(
    api: FakeApi, operator: Operator
) -> None:
    """An earlier operator restarted broker 1 with a setting that this operator refuses."""
    operator.reconcile()
    api.run_pods(ready=True)
    (good,) = api.of("ConfigMap").values()
    bad = {**good["metadata"], "name": "demo-settings-bad"}
    data = {"cluster.properties": good["data"]["cluster.properties"] + "num.partitons=7\n"}
    api.put(CONFIG_MAP, {"metadata": bad, "data": data})
    first = api.of("Pod")["demo-1"]
    first["spec"]["volumes"][0]["configMap"]["name"] = "demo-settings-bad"
    first["status"]["conditions"][0]["status"] = "False"
    operator.edit(config={"num.partitons": 7})
    assert "delete Pod demo-1" in operator.reconcile()
    mounted = api.stateful_set["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"]
    assert "num.partitons" not in api.of("ConfigMap")[mounted]["data"]["cluster.properties"]


def test_brokers_wait_for_the_addresses_of_load_balancers(api: FakeApi, operator: Operator) -> None:
    operator.edit(listeners=[{"name": "out", "port": 9094, "type": "LoadBalancer"}])
    operator.reconcile()
    assert operator.conditions["Ready"]["reason"] == "WaitingForAddress" and not api.of("StatefulSet")
    for number in (1, 2, 3):
        api.objects["Service", "events", f"demo-out-{number}"]["status"] = {
            "loadBalancer": {"ingress": [{"ip": f"10.0.0.{number}"}]}
        }
    operator.reconcile()
    assert api.stateful_set["spec"]["replicas"] == 3
    settings = api.of("ConfigMap")[api.stateful_set["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"]]
    assert "OUT://10.0.0.2:9094" in settings["data"]["broker-2.properties"]


def test_pods_are_annotated_with_the_rack_of_their_node(api: FakeApi, operator: Operator) -> None:
    operator.edit(rack={"topologyKey": "zone"})
    api.put_node("one", {"zone": "west"})
    operator.reconcile()
    api.run_pods()
    operator.reconcile()
    assert {it["metadata"]["annotations"]["ottla.dev/rack"] for it in api.of("Pod").values()} == {"west"}
    operator.reconcile()
    assert operator.reconcile() == []


def test_ready_brokers_that_do_not_answer_are_not_restarted(api: FakeApi, operator: Operator) -> None:
    operator.reconcile()
    api.run_pods(ready=True)
    operator.edit(image="other:1")
    assert [it for it in operator.reconcile() + operator.reconcile() if "Pod" in it] == []
    assert operator.conditions["Ready"]["reason"] == "RollingRestart"


def test_a_pod_without_its_image_stalls_the_cluster(api: FakeApi, operator: Operator) -> None:
    operator.edit(image="broken:1")
    operator.reconcile()
    api.run_pods(waiting={"reason": "ImagePullBackOff", "message": "no such image broken:1"})
    operator.reconcile()
    assert operator.conditions["Stalled"]["reason"] == "ImagePullBackOff"
    assert "ImagePullBackOff: no such image broken:1" in operator.conditions["Ready"]["message"]
    operator.edit(image="good:1")
    assert "delete Pod demo-1" in operator.reconcile()
    api.run_pods()
    assert "delete Pod demo-2" in operator.reconcile(), "an unready outdated pod waits for no other"


def test_a_pod_that_cannot_be_created_stalls_the_cluster_at_once(api: FakeApi, operator: Operator) -> None:
    operator.reconcile()
    of = {"kind": "StatefulSet", "name": "demo", "namespace": "events"}
    event = {"metadata": {"name": "demo.1", "namespace": "events"}, "type": "Warning", "reason": "FailedCreate"}
    event |= {"involvedObject": of, "lastTimestamp": now_text(), "message": "create Pod demo-1 failed: exceeded quota"}
    api.put(EVENT, event)
    operator.reconcile()
    assert operator.conditions["Stalled"]["reason"] == "FailedCreate"
    assert "exceeded quota" in operator.conditions["Ready"]["message"]
    api.run_pods()
    operator.reconcile()
    assert operator.conditions["Ready"]["reason"] == "InsufficientReplicas"


def test_reason_why_a_pod_does_not_start_is_read_from_its_events(api: FakeApi, operator: Operator) -> None:
    operator.reconcile()
    api.run_pods()
    api.of("Pod")["demo-1"]["status"]["conditions"][0]["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    of = {"kind": "Pod", "name": "demo-1", "namespace": "events"}
    event = {"metadata": {"name": "demo-1.1", "namespace": "events"}, "type": "Warning", "reason": "FailedMount"}
    api.put(EVENT, {**event, "involvedObject": of, "lastTimestamp": now_text(), "message": "secret not found"})
    operator.reconcile()
    assert "Broker 1: FailedMount: secret not found" in operator.conditions["Ready"]["message"]


def test_an_event_of_a_lasting_state_is_recorded_at_intervals_and_any_other_each_time(api: FakeApi) -> None:
    recorder = EventRecorder(cast(ApiClient, api), "test")
    cluster = api.of("Cluster")["demo"]

    async def record(at_s: int, *, lasts: bool) -> None:
        recorder.now = lambda: datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=at_s)
        await recorder.record(cluster, "InvalidSpec", "no", lasts=lasts)

    async def count_recorded(times_s: list[int], *, lasts: bool) -> int:
        before = len(api.events)
        for it in times_s:
            await record(it, lasts=lasts)
        return len(api.events) - before

    assert asyncio.run(count_recorded([0, 1, 60, 120], lasts=False)) == 3, "within two seconds it is the same one"
    assert asyncio.run(count_recorded([200, 201, 260, 801], lasts=True)) == 1


def test_nothing_is_changed_while_reconciliation_is_paused(api: FakeApi, operator: Operator) -> None:
    operator.reconcile()
    operator.edit(paused=True, replicas=5)
    assert operator.reconcile() == ["status Cluster demo"]
    assert operator.conditions["Stalled"]["reason"] == "ReconciliationPaused"
    assert operator.reconcile() == [] and api.stateful_set["spec"]["replicas"] == 3
    operator.edit(paused=False)
    operator.reconcile()
    assert api.stateful_set["spec"]["replicas"] == 5 and operator.conditions["Stalled"]["status"] == "False"


def test_an_evicted_pod_has_the_whole_timeout_to_return(api: FakeApi, operator: Operator) -> None:
    operator.reconcile()
    api.run_pods(ready=True)
    pod = api.of("Pod")["demo-2"]
    pod["status"]["conditions"][0]["lastTransitionTime"] = "2026-01-01T00:00:00Z"  # ready since then
    pod["metadata"]["deletionTimestamp"] = now_text()
    operator.reconcile()
    assert operator.conditions["Stalled"]["status"] == "False", operator.conditions["Stalled"]["message"]
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"  # its node is gone
    operator.reconcile()
    assert operator.conditions["Stalled"]["reason"] == "BrokerStartFailed"


def test_no_broker_is_removed_while_partitions_cannot_be_moved(api: FakeApi, operator: Operator) -> None:
    operator.reconcile()
    operator.edit(replicas=1)
    operator.reconcile()
    assert api.stateful_set["spec"]["replicas"] == 3
    operator.edit(replicas=5)
    operator.reconcile()
    assert api.stateful_set["spec"]["replicas"] == 5


def test_config_maps_that_no_pod_uses_are_deleted(api: FakeApi, operator: Operator) -> None:
    operator.reconcile()
    api.run_pods(ready=True)
    for value in (2, 3):
        operator.edit(config={"num.partitions": value})
        operator.reconcile()
        for it in api.of("ConfigMap").values():
            it["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    operator.reconcile()
    used = {it["spec"]["volumes"][0]["configMap"]["name"] for it in api.of("Pod").values()}
    current = api.stateful_set["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"]
    assert set(api.of("ConfigMap")) == used | {current}
    api.put(CONFIG_MAP, {"metadata": {"name": "demo-settings-mine", "namespace": "events"}})
    operator.reconcile()
    assert "demo-settings-mine" in api.of("ConfigMap"), "it is not the operator's"


def test_a_cluster_that_is_being_deleted_is_left_to_kubernetes(api: FakeApi, operator: Operator) -> None:
    operator.reconcile()
    (it,) = api.of("Cluster").values()
    it["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert operator.reconcile() == []
