"""`ottla up` with a TLS listener, whose Secret is in the files."""

import ssl
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.background_producer import produce_numbers
from tests.e2e.up_process import UpProcess
from tests.e2e.up_resources import Json, consume_values, resource, topic, wait_until_in_sync
from tests.kube.certificates import CertificateAuthority, create_certificate_authority, create_server_certificate
from tests.ports import first_of_free_ports
from tests.waiting import eventually

BROKERS = 3


@pytest.fixture
def up(up: UpProcess) -> UpProcess:
    up.broker_count = BROKERS
    return up


def tls_secret(authority: CertificateAuthority, name: str) -> Json:
    files = {"tls.crt": f"{name}.crt", "tls.key": f"{name}.key"}
    data = {key: (authority.folder / file).read_text() for key, file in files.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "demo-tls"}, "stringData": data}


def cluster(up: UpProcess, tls_port: int, **spec: Any) -> Json:
    listeners = [{"name": "plain", "port": up.port}, {"name": "safe", "port": tls_port, "tls": True}]
    more = {"tls": {"secretRef": {"name": "demo-tls"}}, **spec}
    return resource("Cluster", "demo", replicas=BROKERS, listeners=listeners, **more)


def served_certificate(port: int) -> str:
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=10).strip()


def test_renewed_secret_is_read_by_brokers_that_keep_running(up: UpProcess, tmp_path: Path) -> None:
    authority = create_certificate_authority(tmp_path / "authority", ["127.0.0.1"], ["localhost"])
    renewed, _ = create_server_certificate(authority, "renewed", ["IP:127.0.0.1"])
    tls_port = first_of_free_ports(BROKERS)
    ports = range(tls_port, tls_port + BROKERS)
    up.write_resources(cluster(up, tls_port), topic(partitions=6), tls_secret(authority, "tls"))
    up.start()
    up.wait_for_line("topic greetings created")
    wait_until_in_sync(up, "greetings", BROKERS)
    assert {served_certificate(port) for port in ports} == {authority.server_certificate.read_text().strip()}
    client_settings = {
        "bootstrap.servers": f"127.0.0.1:{tls_port}",
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.certificate),
    }
    pids = [up.broker_pid(id_) for id_ in range(1, BROKERS + 1)]
    with produce_numbers(up.bootstrap, "greetings", 6, client_settings) as acknowledged:
        up.write_resources(cluster(up, tls_port), topic(partitions=6))
        up.wait_for_line("Secret demo-tls does not exist")
        up.wait_for_line("nothing is changed")
        up.write_resources(cluster(up, tls_port), topic(partitions=6), tls_secret(authority, "renewed"))
        up.wait_for_line("Secret demo-tls is renewed: brokers read it")
        expected = {renewed.read_text().strip()}
        eventually(lambda: {served_certificate(port) for port in ports} == expected, within_s=30)
    assert [up.broker_pid(id_) for id_ in range(1, BROKERS + 1)] == pids
    assert not any("restarting broker" in it for it in up.lines)
    assert consume_values(up, "greetings", len(acknowledged)) == sorted(acknowledged)
    assert up.stop() == 0
    output = "\n".join(up.lines)
    assert "Traceback" not in output
    assert "PRIVATE" not in output
