"""Rolling restarts by the installed operator on a real kubelet, under load. The active operator pod
is deleted during each.
"""

import pytest

from tests.kube.images import build
from tests.kube.kept import DEMO, Kept
from tests.kube.under_load import go_on
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(900)  # images may have to be built
SECOND = f"{build.REGISTRY}/ottla-broker:second"
NONE = "127.0.0.1:1/none:1"  # refused at once: nothing listens there


def test_a_changed_setting_restarts_one_broker_at_a_time_and_the_controller_last(demo: Kept) -> None:
    roll(demo, "config-changed", {"config": {"num.partitions": 5}})


def test_a_changed_image_restarts_one_broker_at_a_time_and_the_controller_last(demo: Kept) -> None:
    demo.installed.kube.call(build.reference("broker"), SECOND)
    roll(demo, "image-changed", {"image": SECOND})
    images = {it["spec"]["containers"][0]["image"] for it in demo.pods().values()}
    assert images == {SECOND}


def roll(demo: Kept, topic: str, change: dict[str, object]) -> None:
    with demo.under_load(topic):
        before, controller = demo.uids(), demo.status["controller"]
        generation = demo.edit(change)
        with demo.installed.killed_meanwhile(topic):
            order = demo.one_after_the_other(before)
        demo.wait()
    assert order[-1] == f"{DEMO}-{controller}"
    eventually(lambda: demo.moments.told("Cluster", DEMO, generation)[-1:] == ["Current"])
    assert demo.moments.told("Cluster", DEMO, generation) == ["InProgress", "Current"]


def test_an_image_that_does_not_start_stops_at_one_broker_and_setting_it_back_heals(demo: Kept) -> None:
    good = demo.resources.get("Cluster", DEMO)["spec"].get("image")
    with demo.under_load("image-broken") as load:
        before = demo.uids()
        generation = demo.edit({"image": NONE, "roll": {"timeout": "10s"}})
        try:
            with demo.installed.killed_meanwhile("image-broken"):
                said = eventually(lambda: stalled_by_the_image(demo), within_s=90, message=demo.said)
            assert said and said["reason"] == "BrokerStartFailed"
            assert demo.resources.condition("Cluster", DEMO, "Available")["status"] == "True"
            after = demo.uids()
            (changed,) = (name for name, uid in before.items() if after.get(name) != uid)
            go_on(load)
        finally:
            demo.edit({"image": good, "roll": None})
        demo.wait()
    assert {name for name, uid in before.items() if demo.uids()[name] != uid} == {changed}, "nobody else was restarted"
    eventually(lambda: demo.moments.told("Cluster", DEMO, generation)[-1:] == ["Current"])
    assert demo.moments.told("Cluster", DEMO, generation) == ["InProgress", "Failed", "InProgress", "Current"]


def stalled_by_the_image(demo: Kept) -> dict[str, str] | None:
    """The Stalled condition, if it is True and names the image and the pull error."""
    said = demo.resources.condition("Cluster", DEMO, "Stalled")
    return said if said.get("status") == "True" and NONE in said["message"] and "Pull" in said["message"] else None
