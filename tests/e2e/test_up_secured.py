"""`ottla up` with a Cluster that requires logins, from clients and between brokers."""

import asyncio
import stat
from pathlib import Path

import pytest

from ottla_broker.wire.client import Client
from ottla_broker.wire.client_security import UNSECURED, ClientSecurity
from ottla_broker.wire.errors import KafkaError
from tests.e2e.up_process import UpProcess
from tests.e2e.up_resources import Json, inter_broker_address, resource
from tests.waiting import eventually


def secured_cluster(up: UpProcess, replicas: int = 1) -> Json:
    listeners = [{"name": "clients", "port": up.port, "authentication": "SCRAM"}]
    return resource("Cluster", "demo", replicas=replicas, listeners=listeners, authorization={"type": "ACL"})


def login_folder(up: UpProcess) -> Path:
    return up.folder / ".ottla" / "demo" / "inter-broker-login"


def list_topics(address: str, security: ClientSecurity) -> list[str]:
    """Raises OSError or KafkaError if the login is refused."""

    async def run() -> list[str]:
        async with Client.connect(address, timeout_s=5, security=security) as client:
            return [str(it.name) for it in (await client.metadata(None)).topics]

    return asyncio.run(run())


def test_nobody_reaches_the_brokers_own_listener_without_their_passwords(up: UpProcess) -> None:
    topic = resource("Topic", "orders", clusterRef={"name": "demo"}, partitions=3)
    up.write_resources(secured_cluster(up, replicas=3), topic)
    (up.folder / "resources" / "load.py").write_text('print(\'{"topic": "orders", "value": "one"}\')\n')
    up.start()
    up.wait_for_line("topic orders created")
    up.wait_for_line("1 record written")
    address, files = inter_broker_address(up), login_folder(up)
    by_login = ClientSecurity("SASL_PLAINTEXT").with_login(
        "SCRAM-SHA-512", "ottla-operator", (files / "operator.password").read_text()
    )
    assert "orders" in list_topics(address, by_login)
    guessed = by_login.with_login(by_login.mechanism, by_login.username, "guessed")
    for security in (UNSECURED, guessed):
        with pytest.raises((KafkaError, OSError)):
            list_topics(address, security)
    with pytest.raises((KafkaError, OSError)):  # the passwords are only for the brokers' own listener
        list_topics(f"127.0.0.1:{up.port}", by_login)
    assert {stat.S_IMODE(it.stat().st_mode) for it in files.iterdir()} == {0o600}
    passwords = [(files / name).read_text() for name in ("broker.password", "operator.password")]
    shown = [*up.lines, *(it.read_text() for it in (up.folder / ".ottla").rglob("output.log"))]
    commands = [(Path("/proc") / str(up.broker_pid(id_)) / "cmdline").read_text() for id_ in (1, 2, 3)]
    assert not [it for it in (*shown, *commands) for password in passwords if password in it]
    described = up.run_ottla(
        "cluster", "describe", "--bootstrap", address, "--command-config", str(files / "client.properties")
    )
    assert described.returncode == 0, described.stderr
    assert up.stop() == 0
    up.start()
    up.wait_for_line("3 brokers ready")
    assert [(files / name).read_text() for name in ("broker.password", "operator.password")] == passwords
    assert "orders" in list_topics(address, by_login)


def test_a_running_cluster_is_secured_and_opened_by_an_edit(up: UpProcess) -> None:
    plain = resource("Cluster", "demo", replicas=1, listeners=[{"name": "plain", "port": up.port}])
    topic = resource("Topic", "orders", clusterRef={"name": "demo"})
    up.write_resources(plain, topic)
    up.start()
    up.wait_for_line("topic orders created")
    up.write_resources(secured_cluster(up), topic)
    eventually(lambda: is_refused(up), within_s=60, message="clients without a login are refused")
    up.write_resources(plain, topic)
    eventually(lambda: is_open(up), within_s=60, message="clients no longer need a login")


@pytest.mark.slow
def test_passwords_of_brokers_are_rotated_by_an_edit(up: UpProcess) -> None:
    cluster, topic = secured_cluster(up, replicas=3), resource("Topic", "orders", clusterRef={"name": "demo"})
    up.write_resources(cluster, topic)
    up.start()
    up.wait_for_line("topic orders created")
    files, pids = login_folder(up), [up.broker_pid(it) for it in (1, 2, 3)]
    before = {name: (files / name).read_text() for name in ("broker.password", "operator.password")}
    cluster["spec"]["rotatePasswordsAt"] = "2026-01-31T12:00:00Z"
    up.write_resources(cluster, topic)
    up.wait_for_line("rotation complete: brokers accept only the new passwords", within_s=120)
    assert [up.broker_pid(it) for it in (1, 2, 3)] == pids
    held = {it.name: it.read_text() for it in files.iterdir()}
    assert not {*held} & {*before} and not {*held.values()} & {*before.values()}
    assert {stat.S_IMODE(it.stat().st_mode) for it in files.iterdir()} == {0o600}
    outputs = [it.read_text() for it in (up.folder / ".ottla").rglob("output.log")]
    assert outputs and not [it for it in outputs if '"operation":"LOGIN"' in it], "no login has failed"
    by_login = ClientSecurity("SASL_PLAINTEXT").with_login(
        "SCRAM-SHA-512", "ottla-operator-2", held["operator-2.password"]
    )
    address = inter_broker_address(up)
    assert "orders" in list_topics(address, by_login)
    with pytest.raises((KafkaError, OSError)):
        list_topics(address, by_login.with_login("SCRAM-SHA-512", "ottla-operator", before["operator.password"]))
    assert up.stop() == 0
    up.start()
    up.wait_for_line("3 brokers ready")
    assert "orders" in list_topics(inter_broker_address(up), by_login), "brokers start with the new passwords"


def is_refused(up: UpProcess) -> bool:
    """True once a broker accepts the login of `ottla up` and refuses clients without a login."""
    try:
        address, password = inter_broker_address(up), (login_folder(up) / "operator.password").read_text()
        by_login = ClientSecurity("SASL_PLAINTEXT").with_login("SCRAM-SHA-512", "ottla-operator", password)
        list_topics(address, by_login)
    except (StopIteration, FileNotFoundError, KafkaError, OSError):
        return False
    for it in (address, f"127.0.0.1:{up.port}"):
        with pytest.raises((KafkaError, OSError)):
            list_topics(it, UNSECURED)
    return True


def is_open(up: UpProcess) -> bool:
    try:
        return list_topics(f"127.0.0.1:{up.port}", UNSECURED) == ["orders"]
    except (KafkaError, OSError):
        return False
