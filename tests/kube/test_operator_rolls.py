"""Rolling restarts by the installed operator on a real kubelet, under load. The active operator pod
is deleted during each.
"""

import pytest

from tests.kube.client_load import wait_for_progress
from tests.kube.images import build
from tests.kube.managed_cluster import CLUSTER_NAME, ManagedCluster
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(900)  # images may have to be built
SECOND = f"{build.REGISTRY}/ottla-broker:second"
UNAVAILABLE = "127.0.0.1:1/none:1"  # nothing listens on port 1, so the pull fails at once


def test_a_changed_setting_restarts_one_broker_at_a_time_and_the_controller_last(demo: ManagedCluster) -> None:
    change_and_check_rolling_restart(demo, "config-changed", {"config": {"num.partitions": 5}})


def test_a_changed_image_restarts_one_broker_at_a_time_and_the_controller_last(demo: ManagedCluster) -> None:
    demo.operator.kube.tag_image(build.image_reference("broker"), SECOND)
    change_and_check_rolling_restart(demo, "image-changed", {"image": SECOND})
    images = {it["spec"]["containers"][0]["image"] for it in demo.pods().values()}
    assert images == {SECOND}


def change_and_check_rolling_restart(demo: ManagedCluster, topic: str, change: dict[str, object]) -> None:
    """Changes the spec under load; asserts that brokers restart one at a time, the controller last,
    and that the Cluster then becomes Current.
    """
    with demo.run_clients(topic):
        before, controller = demo.uids(), demo.status["controller"]
        generation = demo.patch_spec(change)
        with demo.operator.active_pod_deleted(topic):
            order = demo.wait_for_rolling_restart(before)
        demo.wait_for_status()
    assert order[-1] == f"{CLUSTER_NAME}-{controller}"
    eventually(lambda: demo.history.kstatuses_of("Cluster", CLUSTER_NAME, generation)[-1:] == ["Current"])
    assert demo.history.kstatuses_of("Cluster", CLUSTER_NAME, generation) == ["InProgress", "Current"]


def test_an_unavailable_image_stops_the_roll_at_one_broker_and_reverting_it_recovers(demo: ManagedCluster) -> None:
    old_image = demo.resources.get("Cluster", CLUSTER_NAME)["spec"].get("image")
    with demo.run_clients("image-broken") as load:
        before = demo.uids()
        generation = demo.patch_spec({"image": UNAVAILABLE, "roll": {"timeout": "10s"}})
        try:
            with demo.operator.active_pod_deleted("image-broken"):
                stalled = eventually(lambda: stalled_by_image(demo), within_s=90, message=demo.describe)
            assert stalled and stalled["reason"] == "ImagePullBackOff"
            assert demo.resources.condition("Cluster", CLUSTER_NAME, "Available")["status"] == "True"
            after = demo.uids()
            (changed,) = (name for name, uid in before.items() if after.get(name) != uid)
            wait_for_progress(load)
        finally:
            demo.patch_spec({"image": old_image, "roll": None})
        demo.wait_for_status()
    assert {name for name, uid in before.items() if demo.uids()[name] != uid} == {changed}, (
        "no other broker was restarted"
    )
    eventually(lambda: demo.history.kstatuses_of("Cluster", CLUSTER_NAME, generation)[-1:] == ["Current"])
    assert demo.history.kstatuses_of("Cluster", CLUSTER_NAME, generation) == [
        "InProgress",
        "Failed",
        "InProgress",
        "Current",
    ]


def stalled_by_image(demo: ManagedCluster) -> dict[str, str] | None:
    """The Stalled condition if it is True and names the image and the pull error, else None."""
    stalled = demo.resources.condition("Cluster", CLUSTER_NAME, "Stalled")
    is_pull_error = (
        stalled.get("status") == "True" and UNAVAILABLE in stalled["message"] and "Pull" in stalled["message"]
    )
    return stalled if is_pull_error else None
