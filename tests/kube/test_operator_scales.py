"""Scaling brokers under load, and expanding disks, by the installed operator on a real kubelet."""

import pytest

from tests.kube.managed_cluster import CLUSTER_NAME, NAMESPACE, ManagedCluster
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(900)  # images may have to be built


def test_scaling_from_three_brokers_to_five_and_back_moves_all_replicas(demo: ManagedCluster) -> None:
    scale = demo.resources.path("clusters", f"{CLUSTER_NAME}/scale")
    with demo.run_clients("scaled"):
        with demo.operator.active_pod_deleted("grown"):
            demo.resources.api.request("PATCH", scale, {"spec": {"replicas": 5}})
            grown = demo.wait_for_status()
        assert set(demo.pods()) == {f"{CLUSTER_NAME}-{it}" for it in range(1, 6)}
        assert demo.replica_brokers("scaled") == demo.leader_brokers("scaled") == {1, 2, 3, 4, 5}
        with demo.operator.active_pod_deleted("shrunk"):
            demo.resources.api.request("PATCH", scale, {"spec": {"replicas": 3}})
            shrunk = demo.wait_for_status()
        assert demo.replica_brokers("scaled") == {1, 2, 3}
        eventually(
            lambda: set(demo.pods()) == {f"{CLUSTER_NAME}-{it}" for it in (1, 2, 3)}, within_s=90, message=demo.describe
        )
    assert [it["id"] for it in grown["status"]["brokers"]] == [1, 2, 3, 4, 5]
    assert shrunk["metadata"]["generation"] == grown["metadata"]["generation"] + 1


def test_scaling_below_a_topics_replication_factor_is_blocked_and_changes_nothing(demo: ManagedCluster) -> None:
    with demo.run_clients("copied"):
        before, stateful_set = demo.uids(), demo.resources.list_objects("apps/v1", "statefulsets")[CLUSTER_NAME]["spec"]
        demo.patch_spec({"replicas": 2})
        demo.wait_for_status("Failed")
        stalled = demo.resources.condition("Cluster", CLUSTER_NAME, "Stalled")
        assert stalled["reason"] == "ScaleDownBlocked"
        assert "has 3 replicas, which need as many brokers" in stalled["message"]
        assert demo.replica_brokers("copied") == demo.replica_brokers("__consumer_offsets") == {1, 2, 3}
        demo.patch_spec({"replicas": 3})
        demo.wait_for_status()
    assert demo.uids() == before, "no broker was restarted"
    assert demo.resources.list_objects("apps/v1", "statefulsets")[CLUSTER_NAME]["spec"] == stateful_set


def test_volumes_are_expanded_without_restarting_brokers(demo: ManagedCluster) -> None:
    demo.wait_for_status()
    before, old_uid = (
        demo.uids(),
        demo.resources.list_objects("apps/v1", "statefulsets")[CLUSTER_NAME]["metadata"]["uid"],
    )
    with demo.operator.active_pod_deleted("disks"):
        demo.patch_spec({"storage": {"size": "2Gi"}})
        demo.wait_for_status()
    claims = demo.resources.list_objects("v1", "persistentvolumeclaims")
    broker_claims = [claims[f"data-{CLUSTER_NAME}-{it}"] for it in (1, 2, 3)]
    eventually(
        lambda: all(
            demo.resources.list_objects("v1", "persistentvolumeclaims")[it["metadata"]["name"]]["status"]["capacity"][
                "storage"
            ]
            == "2Gi"
            for it in broker_claims
        ),
        message=f"claims in {NAMESPACE} are expanded",
    )
    recreated = demo.resources.list_objects("apps/v1", "statefulsets")[CLUSTER_NAME]
    assert recreated["metadata"]["uid"] != old_uid
    assert recreated["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"] == "2Gi"
    assert demo.uids() == before
