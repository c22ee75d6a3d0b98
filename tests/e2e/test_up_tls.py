"""`ottla up` with a listener of TLS: the Secret is in the files, and a renewed one restarts one broker after the other."""

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_up import Json, consume_values, resource, topic
from tests.e2e.test_up_brokers import produce_continuously, wait_until_in_sync
from tests.e2e.up_process import UpProcess, up_process
from tests.kube.certificates import CertificateAuthority, create_certificate_authority, create_server_certificate
from tests.ports import free_ports

BROKERS = 3


@pytest.fixture
def home(tmp_path: Path) -> Iterator[UpProcess]:
    with up_process(tmp_path) as made:
        made.brokers = BROKERS
        yield made


def tls_secret(made: CertificateAuthority, name: str) -> Json:
    files = {"tls.crt": f"{name}.crt", "tls.key": f"{name}.key"}
    data = {key: (made.folder / file).read_text() for key, file in files.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "demo-tls"}, "stringData": data}


def cluster(home: UpProcess, tls: int, **spec: Any) -> Json:
    listeners = [{"name": "plain", "port": home.port}, {"name": "safe", "port": tls, "tls": True}]
    more = {"tls": {"secretRef": {"name": "demo-tls"}}, **spec}
    return resource("Cluster", "demo", replicas=BROKERS, listeners=listeners, **more)


def served_certificate(port: int) -> str:
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=10).strip()


def test_a_renewed_secret_restarts_one_broker_after_the_other(home: UpProcess, tmp_path: Path) -> None:
    made = create_certificate_authority(tmp_path / "authority", ["127.0.0.1"], ["localhost"])
    renewed, _ = create_server_certificate(made, "renewed", ["IP:127.0.0.1"])
    safe = free_ports(BROKERS)
    ports = range(safe, safe + BROKERS)
    home.write_resources(cluster(home, safe), topic(partitions=6), tls_secret(made, "tls"))
    home.start()
    home.wait_for_line("topic greetings created")
    wait_until_in_sync(home, "greetings", BROKERS)
    assert {served_certificate(port) for port in ports} == {made.server_certificate.read_text().strip()}
    clients = {
        "bootstrap.servers": f"127.0.0.1:{safe}",
        "security.protocol": "SSL",
        "ssl.ca.location": str(made.certificate),
    }
    with produce_continuously(home, "greetings", clients) as acknowledged:
        home.write_resources(cluster(home, safe), topic(partitions=6))
        home.wait_for_line("Secret demo-tls does not exist")
        home.wait_for_line("everything goes on unchanged")
        home.write_resources(cluster(home, safe), topic(partitions=6), tls_secret(made, "renewed"))
        for id_ in range(1, BROKERS + 1):
            home.wait_for_line(f"restarting broker {id_} (")
        wait_until_in_sync(home, "greetings", BROKERS)
    assert {served_certificate(port) for port in ports} == {renewed.read_text().strip()}
    assert consume_values(home, "greetings", len(acknowledged)) == sorted(acknowledged)
    assert home.stop() == 0
    said = "\n".join(home.lines)
    assert "Traceback" not in said
    assert "PRIVATE" not in said
