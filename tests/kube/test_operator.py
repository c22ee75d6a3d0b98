"""The installed operator on a real kubelet: clients inside and outside Kubernetes, a deleted broker
pod, and failover of the operator.
"""

import pytest

from tests.clients import librdkafka as rd
from tests.clients.sample_messages import START_MS, Message
from tests.kube.api import Json
from tests.kube.broker_pods import LIMITED, RESTRICTED
from tests.kube.images import build
from tests.kube.installed import Installed
from tests.kube.kept import DEMO, Kept
from tests.kube.under_load import go_on
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(900)  # images may have to be built
LINES = 200


def test_clients_in_a_pod_and_outside_read_what_the_others_wrote(demo: Kept) -> None:
    demo.topic("flights")
    rd.produce(demo.bootstrap(), "flights", [Message(None, b"outside %d" % it, START_MS) for it in range(LINES)])
    script = f"seq -f 'inside %g' 0 {LINES - 1} | ottla produce flights 2>/dev/null && ottla consume flights --exit"
    read = in_a_pod(demo, "client", script)
    both = [f"{where} {it}" for where in ("inside", "outside") for it in range(LINES)]
    assert sorted(read.splitlines()) == sorted(both)
    outside = [it.value() for number in range(6) for it in rd.consume(demo.bootstrap(), "flights", partition=number)]
    assert sorted(outside) == sorted(it.encode() for it in both)


def test_a_broker_pod_is_deleted_under_load(demo: Kept) -> None:
    with demo.under_load("deleted") as load:
        before = demo.uids()
        victim = f"{DEMO}-{demo.status['controller']}"
        with demo.installed.killed_meanwhile("deleted"):
            demo.resources.api.ask("DELETE", f"/api/v1/namespaces/{demo.resources.namespace}/pods/{victim}")
            eventually(lambda: demo.uids().get(victim) not in (None, before[victim]), within_s=60, message=demo.said)
            eventually(demo.is_current, within_s=90, message=demo.said)
        go_on(load)


def test_another_operator_takes_over_in_seconds_after_kill_9(installed: Installed, demo: Kept) -> None:
    demo.wait()
    eventually(installed.whole, within_s=60, message=installed.said)
    before = installed.kill()
    eventually(lambda: installed.active() not in ("", before), within_s=12, message=installed.said)
    service = f"/api/v1/namespaces/{demo.resources.namespace}/services/{DEMO}-brokers"
    demo.resources.api.ask("PATCH", service, {"spec": {"publishNotReadyAddresses": False}})
    eventually(
        lambda: (demo.resources.api.get(service) or {})["spec"].get("publishNotReadyAddresses"),
        within_s=20,
        message=installed.said,
    )


def in_a_pod(demo: Kept, name: str, script: str) -> str:
    """Run a script in a pod with the operator's image, which has the command line, and return its
    output. OTTLA_BOOTSTRAP is set.
    """
    api, namespace = demo.resources.api, demo.resources.namespace
    container = {
        "name": "client",
        "image": build.reference("operator"),
        "command": ["sh", "-euc", script],
        "env": [{"name": "OTTLA_BOOTSTRAP", "value": f"{DEMO}-plain-bootstrap:9092"}],
        "securityContext": LIMITED,
    }
    spec = {"restartPolicy": "Never", "securityContext": RESTRICTED, "containers": [container]}
    path = f"/api/v1/namespaces/{namespace}/pods"
    api.ask("POST", path, {"metadata": {"name": name}, "spec": spec})

    def over() -> Json | None:
        status: Json = (api.get(f"{path}/{name}") or {})["status"]
        return status if status.get("phase") in ("Succeeded", "Failed") else None

    ended = eventually(over, within_s=90, message=lambda: api.ask_text("GET", f"{path}/{name}/log"))
    log = api.ask_text("GET", f"{path}/{name}/log")
    assert ended and ended["phase"] == "Succeeded", log
    return log
