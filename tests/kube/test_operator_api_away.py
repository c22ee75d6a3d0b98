"""The API server away for two minutes, the controller and the active operator killed meanwhile: brokers elect a controller and leaders by themselves."""

import time

import pytest

from tests.kube.kept import DEMO, Kept
from tests.kube.under_load import go_on
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(900)  # images may have to be built
AWAY_S = 120.0
TOPIC = "api-away"


def test_producers_go_on_although_the_controller_is_killed_meanwhile(demo: Kept) -> None:
    plane = demo.installed.kube.plane
    with demo.under_load(TOPIC) as load:
        # NodePorts are known before: nothing is to be asked of Kubernetes from here on.
        victim = demo.status["controller"]
        assert victim in demo.leading(TOPIC)
        bootstrap, operator = demo.bootstrap(), demo.installed.active()
        plane.api_server.kill()
        began = time.monotonic()
        try:
            demo.kill(victim)
            eventually(lambda: victim not in demo.leading(TOPIC, bootstrap), within_s=30, message="others lead")
            demo.installed.kill(operator)
            while time.monotonic() < began + AWAY_S:
                go_on(load)
        finally:
            plane.start_api_server()
        demo.wait()
        go_on(load)
    assert f"{DEMO}-{victim}" in demo.pods()
