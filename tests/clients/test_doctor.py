"""`ottla doctor` on a real broker, seen as its clients see it."""

import json
from typing import Any

from tests.clients.conftest import NewBroker
from tests.ottla_command import run_ottla
from tests.ports import free_port


def examine(*arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and findings by their subjects."""
    done = run_ottla("doctor", "--output", "json", *arguments)
    assert done.stderr == ""
    return done.returncode, {it["subject"]: it for it in json.loads(done.stdout)}


def test_a_healthy_broker_has_no_problem(new_broker: NewBroker) -> None:
    with new_broker() as broker:
        code, found = examine("--bootstrap", broker.bootstrap)
    assert code == 0, found
    assert found[f"bootstrap {broker.bootstrap}"]["severity"] == "ok"
    assert found["controller"]["observed"] == "broker 1" and found["partitions"]["severity"] == "ok"


def test_an_advertised_address_that_clients_do_not_reach_is_named_with_what_to_do(new_broker: NewBroker) -> None:
    unused_port = free_port()
    with new_broker(advertised_listeners=f"PLAINTEXT://127.0.0.1:{unused_port}") as broker:
        code, found = examine("--bootstrap", broker.bootstrap)
    assert code == 1, found
    assert found[f"bootstrap {broker.bootstrap}"]["severity"] == "ok"
    problem = found[f"broker 1 at 127.0.0.1:{unused_port}"]
    assert (problem["severity"], problem["observed"]) == ("problem", "connection refused")
    assert "advertised.listeners" in problem["next_step"]


def test_a_bootstrap_address_without_a_broker_is_a_problem() -> None:
    address = f"127.0.0.1:{free_port()}"
    code, found = examine("--bootstrap", address)
    assert (code, found[f"bootstrap {address}"]["observed"]) == (1, "connection refused")
    assert "controller" not in found


def test_a_kubeconfig_that_does_not_exist_is_named() -> None:
    done = run_ottla("doctor", variables={"KUBECONFIG": "/nonexistent"})
    assert (done.returncode, done.stderr) == (1, "")
    assert "/nonexistent: No such file or directory" in done.stdout
