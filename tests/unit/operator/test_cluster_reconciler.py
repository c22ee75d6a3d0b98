"""Reconciles of a Cluster on Kubernetes while no broker answers: what is created, left alone and
reported.
"""

import asyncio
import datetime
from typing import Any, cast

import pytest

from ottla_operator.kube.api import ApiClient, ApiError
from ottla_operator.kube.kinds import CLAIM, CONFIG_MAP, EVENT, SERVICE
from ottla_operator.kube.platform import KubePlatform
from ottla_operator.kube.status_writer import EventRecorder, now_text
from ottla_operator.plan.conditions import kstatus
from ottla_operator.plan.objects.config import started_with
from ottla_operator.plan.objects.pods import BrokerImages
from ottla_operator.plan.pipeline.pods import PipelineImage
from ottla_operator.reconcile.controller import Controller
from ottla_operator.reconcile.watch_cache import Key, WatchCache
from tests.unit.operator.api_server import FakeApi

KEY = Key("events", "demo")
SPEC = {"replicas": 3, "storage": {"size": "10Gi"}}


class Operator:
    """One operator, which another may replace at any time."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        as_api, cache = cast(ApiClient, api), WatchCache()
        platform = KubePlatform(as_api, cache, "test", BrokerImages("broker", "1"), PipelineImage("spark:1"))
        self.controller = Controller(platform, cache)

    def reconcile(self) -> list[str]:
        """Returns the writes."""
        for it in self.api.of("Cluster").values():
            self.controller.update(it)
        before = len(self.api.writes)
        asyncio.run(self.controller.clusters.reconcile(KEY))
        return self.api.writes[before:]

    @property
    def conditions(self) -> dict[str, dict[str, Any]]:
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
    api.cluster(dict(SPEC))  # before Kubernetes has deleted what the previous one owned
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


def claim(api: FakeApi, broker: int, **metadata: Any) -> None:
    it = {"name": f"data-demo-{broker}", "namespace": "events", **metadata}
    api.put(CLAIM, {"metadata": it, "spec": {"resources": {"requests": {"storage": "10Gi"}}}})


def is_founding(api: FakeApi) -> bool:
    """Whether the first broker is started with `cluster.found`."""
    (config,) = (it["data"] for it in api.of("ConfigMap").values())
    (annotations,) = (it["metadata"].get("annotations") or {} for it in api.of("StatefulSet").values())
    found: bool = "cluster.found=true" in config["broker-1.properties"]
    assert found == ("ottla.dev/founding" in annotations)
    return found


def test_the_brokers_of_a_new_cluster_found_it(api: FakeApi, operator: Operator) -> None:
    api.put(CLAIM, {"metadata": {"name": "data-demo-x-1", "namespace": "events"}, "spec": {}})  # of Cluster demo-x
    operator.reconcile()
    assert is_founding(api)
    claim(api, 1)  # as the StatefulSet's controller creates it
    Operator(api).reconcile()
    assert is_founding(api), "until a cluster id is known"


def test_brokers_continue_the_cluster_that_kept_claims_hold(api: FakeApi, operator: Operator) -> None:
    claim(api, 2)
    operator.reconcile()
    assert not is_founding(api)


def test_brokers_whose_disks_are_gone_do_not_found_another_cluster(api: FakeApi, operator: Operator) -> None:
    (cluster,) = api.of("Cluster").values()
    cluster["status"] = {"clusterId": "c1"}
    operator.reconcile()
    assert not is_founding(api)
    assert cluster["status"]["clusterId"] == "c1", "it is known while no broker answers"


@pytest.mark.parametrize(
    "metadata", [{"deletionTimestamp": "2026-01-01T00:00:00Z"}, {"ownerReferences": [{"kind": "StatefulSet"}]}]
)
def test_claims_that_are_being_deleted_are_waited_for(api: FakeApi, operator: Operator, metadata: Any) -> None:
    claim(api, 1, **metadata)
    operator.reconcile()
    assert operator.conditions["Ready"]["reason"] == "Terminating" and not api.of("StatefulSet")
    assert "data-demo-1" in operator.conditions["Ready"]["message"]
    del api.objects["PersistentVolumeClaim", "events", "data-demo-1"]
    operator.reconcile()
    assert is_founding(api)


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
    assert writes[0] == "status Cluster demo", "before anything else is done"
    assert api.stateful_set["spec"]["replicas"] == 4, "the rest of the spec is applied"
    for config in api.of("ConfigMap").values():
        settings = started_with(config, 1)
        assert settings["num.partitions"] == "7" and "log.retention.ms" not in settings, (
            "neither of the two settings is"
        )
    assert [it for it in writes if "Pod " in it] == []
    assert operator.reconcile() == []


def test_a_broker_that_was_started_with_a_bad_setting_is_healed_from_one_that_serves(
    api: FakeApi, operator: Operator
) -> None:
    """An earlier operator restarted broker 1 with what this one refuses."""
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
    api.node("one", {"zone": "west"})
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


def test_a_pod_that_does_not_start_in_time_stalls_the_cluster(api: FakeApi, operator: Operator) -> None:
    operator.edit(image="broken:1")
    operator.reconcile()
    api.run_pods(waiting={"reason": "ImagePullBackOff", "message": "no such image broken:1"})
    operator.reconcile()
    assert operator.conditions["Stalled"]["reason"] == "BrokerStartFailed"  # the pods have been unready since January
    assert "ImagePullBackOff: no such image broken:1" in operator.conditions["Ready"]["message"]
    operator.edit(image="good:1")
    assert "delete Pod demo-1" in operator.reconcile()
    api.run_pods()
    assert "delete Pod demo-2" in operator.reconcile(), "pods that are not ready go first"


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


def test_what_keeps_a_pod_from_starting_is_read_from_its_events(api: FakeApi, operator: Operator) -> None:
    operator.reconcile()
    api.run_pods()
    api.of("Pod")["demo-1"]["status"]["conditions"][0]["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    of = {"kind": "Pod", "name": "demo-1", "namespace": "events"}
    event = {"metadata": {"name": "demo-1.1", "namespace": "events"}, "type": "Warning", "reason": "FailedMount"}
    api.put(EVENT, {**event, "involvedObject": of, "lastTimestamp": now_text(), "message": "secret not found"})
    operator.reconcile()
    assert "Broker 1: FailedMount: secret not found" in operator.conditions["Ready"]["message"]


def test_an_event_that_lasts_is_recorded_now_and_then_and_any_other_each_time(api: FakeApi) -> None:
    recorder = EventRecorder(cast(ApiClient, api), "test")
    cluster = api.of("Cluster")["demo"]

    async def record(at_s: int, *, lasts: bool) -> None:
        recorder.now = lambda: datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=at_s)
        await recorder.record(cluster, "InvalidSpec", "no", lasts=lasts)

    async def recorded(times_s: list[int], *, lasts: bool) -> int:
        before = len(api.events)
        for it in times_s:
            await record(it, lasts=lasts)
        return len(api.events) - before

    assert asyncio.run(recorded([0, 1, 60, 120], lasts=False)) == 3, "within two seconds it is the same one"
    assert asyncio.run(recorded([200, 201, 260, 801], lasts=True)) == 1


def deleted_pods(writes: list[str]) -> list[str]:
    return [it for it in writes if it.startswith("delete Pod")]


def test_every_broker_is_restarted_once_for_a_restart_by_hand(api: FakeApi, operator: Operator) -> None:
    operator.reconcile()
    api.run_pods()
    operator.edit(restartAt="2999-01-01T00:00:00Z")
    assert deleted_pods(operator.reconcile()) == [], "that time has not come"
    operator.edit(restartAt="2026-01-02T03:04:05Z")
    restarted: list[str] = []
    for _ in range(6):
        restarted += deleted_pods(operator.reconcile())
        api.run_pods()
    assert restarted == ["delete Pod demo-1", "delete Pod demo-2", "delete Pod demo-3"]
    reasons = [reason for reason, _ in api.events]
    assert reasons.index("RollStarted") < reasons.index("RestartingBroker") and reasons.count("RollStarted") == 1
    assert ("RestartingBroker", "restarting broker 1 (spec.restartAt 2026-01-02T03:04:05Z)") in api.events
    operator.edit(restartAt=None)
    assert deleted_pods(operator.reconcile()) == []


def test_a_new_cluster_is_not_restarted_for_a_time_that_has_passed(api: FakeApi, operator: Operator) -> None:
    operator.edit(restartAt="2026-01-02T03:04:05Z")
    operator.reconcile()
    api.run_pods()
    assert deleted_pods(operator.reconcile()) == []


@pytest.mark.parametrize("time", ["soon", "2026-01-02", "2026-13-02T00:00:00Z"])
def test_a_restart_at_no_time_is_an_invalid_spec(operator: Operator, time: str) -> None:
    operator.edit(restartAt=time)
    operator.reconcile()
    assert operator.conditions["Stalled"]["reason"] == "InvalidSpec"


def test_kubectl_rollout_restart_is_answered_once(api: FakeApi, operator: Operator) -> None:
    operator.reconcile()
    annotations = api.stateful_set["spec"]["template"]["metadata"]["annotations"]
    annotations["kubectl.kubernetes.io/restartedAt"] = "2026-01-02T03:04:05Z"
    operator.reconcile()
    operator.reconcile()
    told = [message for reason, message in api.events if reason == "RolloutRestartIgnored"]
    assert len(told) == 1 and "Set spec.restartAt: 2026-01-02T03:04:05Z in Cluster demo" in told[0]


def test_nothing_is_changed_while_reconciliation_is_paused(api: FakeApi, operator: Operator) -> None:
    operator.reconcile()
    operator.edit(paused=True, replicas=5)
    assert operator.reconcile() == ["status Cluster demo"]
    assert operator.conditions["Stalled"]["reason"] == "ReconciliationPaused"
    assert operator.reconcile() == [] and api.stateful_set["spec"]["replicas"] == 3
    operator.edit(paused=False)
    operator.reconcile()
    assert api.stateful_set["spec"]["replicas"] == 5 and operator.conditions["Stalled"]["status"] == "False"


def test_an_evicted_pod_has_the_whole_timeout_to_come_back(api: FakeApi, operator: Operator) -> None:
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


def test_disks_are_expanded_in_place(api: FakeApi, operator: Operator) -> None:
    operator.reconcile()
    api.run_pods()
    labels = api.stateful_set["spec"]["selector"]["matchLabels"]
    for number in (1, 2, 3):
        claim = {"metadata": {"name": f"data-demo-{number}", "namespace": "events", "labels": labels}}
        api.put(CLAIM, {**claim, "spec": {"resources": {"requests": {"storage": "10Gi"}}}})
    operator.edit(storage={"size": "20Gi"})
    writes = operator.reconcile()
    assert [it for it in writes if "Pod " in it] == []
    assert "orphan StatefulSet demo" in writes and writes.count("apply StatefulSet demo") == 1
    assert {it["spec"]["resources"]["requests"]["storage"] for it in api.of("PersistentVolumeClaim").values()} == {
        "20Gi"
    }
    assert "orphan StatefulSet demo" not in operator.reconcile()


def test_state_survives_an_operator_that_is_killed_during_a_storage_expansion(api: FakeApi, operator: Operator) -> None:
    operator.reconcile()
    noted = {"ottla.dev/spread": "1,2,3", "ottla.dev/cluster-settings": '{"log.retention.ms": "5"}'}
    api.stateful_set["metadata"]["annotations"].update(noted)
    api.run_pods()
    operator.edit(storage={"size": "20Gi"})
    api.reject = lambda write: ApiError(0, "killed") if write == "apply StatefulSet demo" else None
    with pytest.raises(ApiError, match="killed"):
        operator.reconcile()
    assert not api.of("StatefulSet")
    api.reject = lambda write: None
    Operator(api).reconcile()
    assert noted.items() <= api.stateful_set["metadata"]["annotations"].items()


def test_a_storage_class_without_expansion_stalls_the_cluster(api: FakeApi, operator: Operator) -> None:
    operator.reconcile()
    labels = api.stateful_set["spec"]["selector"]["matchLabels"]
    claim = {"metadata": {"name": "data-demo-1", "namespace": "events", "labels": labels}}
    api.put(CLAIM, {**claim, "spec": {"resources": {"requests": {"storage": "10Gi"}}}})
    operator.edit(storage={"size": "20Gi"})
    api.reject = lambda write: (
        ApiError(422, "only dynamically provisioned") if "PersistentVolumeClaim" in write else None
    )
    operator.reconcile()
    assert (
        operator.conditions["Stalled"]["status"] == "True"
        and "dynamically" in operator.conditions["Stalled"]["message"]
    )
    assert api.stateful_set["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"] == "10Gi"


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
    now = api.stateful_set["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"]
    assert set(api.of("ConfigMap")) == used | {now}
    api.put(CONFIG_MAP, {"metadata": {"name": "demo-settings-mine", "namespace": "events"}})
    operator.reconcile()
    assert "demo-settings-mine" in api.of("ConfigMap"), "it is not the operator's"


def test_a_cluster_that_is_being_deleted_is_left_to_kubernetes(api: FakeApi, operator: Operator) -> None:
    operator.reconcile()
    (it,) = api.of("Cluster").values()
    it["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert operator.reconcile() == []
