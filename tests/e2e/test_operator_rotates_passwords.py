"""The operator replaces the passwords between running brokers: no broker is restarted, and no login
fails.
"""

from pathlib import Path

import pytest

from ottla_broker.wire.client_security import ClientSecurity
from ottla_broker.wire.errors import KafkaError
from ottla_operator.kafka.client import connect
from ottla_operator.kafka.topics import list_topics
from ottla_operator.plan import password_rotation
from tests.e2e.process_kubelet import ProcessKubelet, connect_to_brokers, run_with_cluster

LISTENERS = [{"name": "clients", "port": 9094, "authentication": "SCRAM"}]
AUTHORIZATION = {"type": "ACL"}
SECRET = "demo-inter-broker-login"
REQUESTED_AT = "2026-01-31T12:00:00Z"


def logs(kubelet: ProcessKubelet) -> str:
    return "".join(it.read_text() for it in kubelet.folder.glob("demo-*/log"))


async def can_log_in(kubelet: ProcessKubelet, user: str, password: str) -> bool:
    (pod, *_) = kubelet.api.of("Pod").values()
    security = ClientSecurity("SASL_PLAINTEXT").with_login("SCRAM-SHA-512", user, password)
    try:
        async with connect(f"{pod['status']['podIP']}:9091", security=security, timeout_s=10) as client:
            await list_topics(client)
    except KafkaError:
        return False
    return True


@pytest.mark.slow
def test_passwords_of_brokers_are_rotated_without_a_restart_and_without_a_failed_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(password_rotation, "PREVIOUS_LOGIN_PERIOD", password_rotation.PREVIOUS_LOGIN_PERIOD / 15)

    async def scenario(kubelet: ProcessKubelet) -> None:
        kubelet.put_topic("orders", partitions=6, replicas=3)
        kubelet.put_user("alice", acls=[{"allow": ["Read"], "topic": "orders"}])
        await kubelet.wait_until_ready("Topic", "orders")
        before = kubelet.secret(SECRET)
        pods = {name: it["metadata"].get("uid") for name, it in kubelet.api.of("Pod").items()}
        for round_, broker_user in enumerate(("ottla-broker-2", "ottla-broker")):
            kubelet.edit_spec("Cluster", "demo", rotatePasswordsAt=REQUESTED_AT.replace("00Z", f"0{round_}Z"))
            # The operator goes on with its work meanwhile, by a login that all brokers accept.
            kubelet.edit_spec("User", "alice", quotas={"producerByteRate": 1000 + round_})
            await kubelet.wait_until_ready()
            await kubelet.wait_until_ready("User", "alice")
            assert kubelet.status("Cluster", "demo")["passwordsRotatedAt"].endswith(f"0{round_}Z")
            after = kubelet.secret(SECRET)
            assert f'username="{broker_user}"' in after["sasl.jaas.config"]
            assert not {*after.values()} & {before["broker.password"], before["operator.password"]}
        steps = [it for it in kubelet.events if it.startswith("RotatingPasswords")]
        assert [it.split(":")[1] for it in steps] == [" step 1 of 3", " step 2 of 3", " step 3 of 3"] * 2
        assert {name: it["metadata"].get("uid") for name, it in kubelet.api.of("Pod").items()} == pods
        assert not [it for it in kubelet.events if it.startswith("RestartingBroker")], kubelet.events
        written = logs(kubelet)
        assert '"operation":"LOGIN"' not in written, "no login has failed"
        assert written.count("login modules have changed") == 3 * 3 * 2
        assert not await can_log_in(kubelet, "ottla-operator", before["operator.password"])
        assert await can_log_in(kubelet, "ottla-operator", after["operator.password"])
        # Brokers still replicate, by connections with the new login.
        kubelet.put_topic("later", partitions=3, replicas=3)
        await kubelet.wait_until_ready("Topic", "later")
        async with connect_to_brokers(kubelet) as client:
            assert {"orders", "later"} <= {it.name for it in await list_topics(client)}
        writes = list(kubelet.api.writes)
        for _ in range(3):
            await kubelet.reconcile()
        assert kubelet.api.writes == writes, "converged objects are not written"

    run_with_cluster(tmp_path, 3, scenario, listeners=LISTENERS, authorization=AUTHORIZATION)


@pytest.mark.slow
def test_a_broker_that_does_not_answer_stops_a_rotation_and_is_not_locked_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(password_rotation, "PREVIOUS_LOGIN_PERIOD", password_rotation.PREVIOUS_LOGIN_PERIOD / 15)

    async def scenario(kubelet: ProcessKubelet) -> None:
        kubelet.edit_spec("Cluster", "demo", rotatePasswordsAt=REQUESTED_AT)
        await kubelet.wait_until(lambda: '"Accept"' in kubelet.secret(SECRET)["rotation"])
        await kubelet.stop_container("demo-3")
        await kubelet.wait_until(lambda: "RotatingPasswords" not in str(kubelet.condition("Cluster", "demo")))
        for _ in range(10):
            await kubelet.reconcile()
        assert '"Accept"' in kubelet.secret(SECRET)["rotation"], "the second step needs every broker"
        await kubelet.start_container("demo-3")
        await kubelet.wait_until_ready()
        assert "Accept" not in kubelet.secret(SECRET)["rotation"]
        assert 'username="ottla-broker-2"' in kubelet.secret(SECRET)["sasl.jaas.config"]

    run_with_cluster(tmp_path, 3, scenario, listeners=LISTENERS, authorization=AUTHORIZATION)
