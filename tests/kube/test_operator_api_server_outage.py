"""The API server is unavailable for two minutes, and the controller and the active operator are
killed meanwhile: brokers elect a controller and leaders without Kubernetes, and the operator
continues afterwards.
"""

import time

import pytest

from tests.kube.broker_pods import find_controller
from tests.kube.client_load import wait_for_progress
from tests.kube.managed_cluster import CLUSTER_NAME, ManagedCluster
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(900)  # images may have to be built
OUTAGE_S = 120.0
TOPIC = "api-outage"


def test_clients_continue_when_the_controller_is_killed_during_an_outage_of_the_api_server(
    demo: ManagedCluster,
) -> None:
    plane = demo.operator.kube.plane
    with demo.run_clients(TOPIC) as load:
        # Everything that needs the API server is read before the outage.
        victim = demo.status["controller"]
        assert victim in demo.leader_brokers(TOPIC)
        bootstrap, operator = demo.bootstrap(), demo.operator.active_pod()
        plane.api_server.kill()
        began = time.monotonic()
        try:
            demo.kill_broker(victim)
            eventually(
                lambda: find_controller(bootstrap) not in (-1, victim),
                within_s=30,
                message="another broker is controller",
            )
            demo.operator.kill_process(operator)
            while time.monotonic() < began + OUTAGE_S:
                wait_for_progress(load)
        finally:
            plane.start_api_server()
        demo.wait_for_status()
        wait_for_progress(load)
    assert f"{CLUSTER_NAME}-{victim}" in demo.pods()
