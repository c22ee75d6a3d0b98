"""Scaling brokers and expanding disks by the installed operator on a real kubelet, under load."""

import pytest

from tests.kube.managed_cluster import CLUSTER_NAME, NAMESPACE, ManagedCluster
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(900)  # images may have to be built


def test_from_three_brokers_to_five_and_back(demo: ManagedCluster) -> None:
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


def test_fewer_brokers_than_copies_are_refused_and_nothing_is_touched(demo: ManagedCluster) -> None:
    with demo.run_clients("copied"):
        before, set_ = demo.uids(), demo.resources.list_objects("apps/v1", "statefulsets")[CLUSTER_NAME]["spec"]
        demo.patch_spec({"replicas": 2})
        demo.wait_for_status("Failed")
        said = demo.resources.condition("Cluster", CLUSTER_NAME, "Stalled")
        assert said["reason"] == "ScaleDownBlocked" and "has 3 replicas, which need as many brokers" in said["message"]
        assert demo.replica_brokers("copied") == demo.replica_brokers("__consumer_offsets") == {1, 2, 3}
        demo.patch_spec({"replicas": 3})
        demo.wait_for_status()
    assert demo.uids() == before, "nobody was restarted"
    assert demo.resources.list_objects("apps/v1", "statefulsets")[CLUSTER_NAME]["spec"] == set_


def test_disks_grow_and_no_broker_is_restarted(demo: ManagedCluster) -> None:
    demo.wait_for_status()
    before, old = demo.uids(), demo.resources.list_objects("apps/v1", "statefulsets")[CLUSTER_NAME]["metadata"]["uid"]
    with demo.operator.active_pod_deleted("disks"):
        demo.patch_spec({"storage": {"size": "2Gi"}})
        demo.wait_for_status()
    claims = demo.resources.list_objects("v1", "persistentvolumeclaims")
    of_brokers = [claims[f"data-{CLUSTER_NAME}-{it}"] for it in (1, 2, 3)]
    eventually(
        lambda: all(
            demo.resources.list_objects("v1", "persistentvolumeclaims")[it["metadata"]["name"]]["status"]["capacity"][
                "storage"
            ]
            == "2Gi"
            for it in of_brokers
        ),
        message=f"claims in {NAMESPACE} have grown",
    )
    made = demo.resources.list_objects("apps/v1", "statefulsets")[CLUSTER_NAME]
    assert made["metadata"]["uid"] != old
    assert made["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"] == "2Gi"
    assert demo.uids() == before
