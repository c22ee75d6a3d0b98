"""Scaling brokers and expanding disks by the installed operator on a real kubelet, under load."""

import pytest

from tests.kube.kept import DEMO, NAMESPACE, Kept
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(900)  # images may have to be built


def test_from_three_brokers_to_five_and_back(demo: Kept) -> None:
    scale = demo.resources.path("clusters", f"{DEMO}/scale")
    with demo.under_load("scaled"):
        with demo.installed.killed_meanwhile("grown"):
            demo.resources.api.ask("PATCH", scale, {"spec": {"replicas": 5}})
            grown = demo.wait()
        assert set(demo.pods()) == {f"{DEMO}-{it}" for it in range(1, 6)}
        assert demo.holding("scaled") == demo.leading("scaled") == {1, 2, 3, 4, 5}
        with demo.installed.killed_meanwhile("shrunk"):
            demo.resources.api.ask("PATCH", scale, {"spec": {"replicas": 3}})
            shrunk = demo.wait()
        assert demo.holding("scaled") == {1, 2, 3}
        eventually(lambda: set(demo.pods()) == {f"{DEMO}-{it}" for it in (1, 2, 3)}, within_s=90, message=demo.said)
    assert [it["id"] for it in grown["status"]["brokers"]] == [1, 2, 3, 4, 5]
    assert shrunk["metadata"]["generation"] == grown["metadata"]["generation"] + 1


def test_fewer_brokers_than_copies_are_refused_and_nothing_is_touched(demo: Kept) -> None:
    with demo.under_load("copied"):
        before, set_ = demo.uids(), demo.resources.of("apps/v1", "statefulsets")[DEMO]["spec"]
        demo.edit({"replicas": 2})
        demo.wait("Failed")
        said = demo.resources.condition("Cluster", DEMO, "Stalled")
        assert said["reason"] == "ScaleDownBlocked" and "has 3 replicas, which need as many brokers" in said["message"]
        assert demo.holding("copied") == demo.holding("__consumer_offsets") == {1, 2, 3}
        demo.edit({"replicas": 3})
        demo.wait()
    assert demo.uids() == before, "nobody was restarted"
    assert demo.resources.of("apps/v1", "statefulsets")[DEMO]["spec"] == set_


def test_disks_grow_and_no_broker_is_restarted(demo: Kept) -> None:
    demo.wait()
    before, old = demo.uids(), demo.resources.of("apps/v1", "statefulsets")[DEMO]["metadata"]["uid"]
    with demo.installed.killed_meanwhile("disks"):
        demo.edit({"storage": {"size": "2Gi"}})
        demo.wait()
    claims = demo.resources.of("v1", "persistentvolumeclaims")
    of_brokers = [claims[f"data-{DEMO}-{it}"] for it in (1, 2, 3)]
    eventually(
        lambda: all(
            demo.resources.of("v1", "persistentvolumeclaims")[it["metadata"]["name"]]["status"]["capacity"]["storage"]
            == "2Gi"
            for it in of_brokers
        ),
        message=f"claims in {NAMESPACE} have grown",
    )
    made = demo.resources.of("apps/v1", "statefulsets")[DEMO]
    assert made["metadata"]["uid"] != old
    assert made["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"] == "2Gi"
    assert demo.uids() == before
