"""Certificates of a listener that `kafka-configs` changes while the broker runs (KIP-226), and
those that the broker refuses. The same holds for Apache Kafka (`--against kafka`).
"""

import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.brokers import BrokerProcess, add_listeners
from tests.clients.conftest import NewBroker
from tests.kube.certificates import CertificateAuthority, create_certificate_authority, create_server_certificate
from tests.tools_jvm import run_tool
from tests.waiting import eventually

WITHIN_S = 30.0
NAMES = ["IP:127.0.0.1", "DNS:localhost"]
PRESENT_SUBJECT = "kube-apiserver"  # of the authority's first server certificate
LOCATION = "listener.name.tls.ssl.keystore.location"

RunTool = Callable[..., "subprocess.CompletedProcess[str]"]


@dataclass(frozen=True)
class TlsListener:
    broker: BrokerProcess
    authority: CertificateAuthority
    port: int

    def connect(self) -> ssl.SSLSocket:
        context = ssl.create_default_context(cafile=self.authority.certificate)
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=WITHIN_S)
        return context.wrap_socket(plain, server_hostname="localhost")

    def presented_serial(self) -> str:
        """Serial number of the certificate that a new connection gets."""
        with self.connect() as connection:
            return str((connection.getpeercert() or {})["serialNumber"])

    def make_keystore(self, subject: str, names: list[str]) -> Path:
        certificate, key = create_server_certificate(self.authority, subject, names)
        file = self.authority.folder / f"{subject}-{len(list(self.authority.folder.iterdir()))}.pem"
        file.write_text(key.read_text() + certificate.read_text())
        return file


@pytest.fixture
def listener(new_broker: NewBroker, tmp_path: Path) -> Iterator[TlsListener]:
    authority = create_certificate_authority(tmp_path / "authority", ["127.0.0.1"], ["localhost"])
    with new_broker(start=False) as broker:
        ports = add_listeners(broker, {"TLS": "SSL"})
        broker.settings |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.write_keystore()),
        }
        broker.start()
        yield TlsListener(broker, authority, ports["TLS"])


@pytest.fixture
def configs(listener: TlsListener, classpath: str) -> RunTool:
    """Runs kafka-configs for broker 1, or for another `entity`."""

    def run(*arguments: str, entity: tuple[str, ...] = ("--entity-name", "1")) -> "subprocess.CompletedProcess[str]":
        at = ("--bootstrap-server", listener.broker.bootstrap)
        return run_tool(classpath, "kafka.admin.ConfigCommand", *at, "--entity-type", "brokers", *entity, *arguments)

    return run


def test_kafka_configs_replaces_a_certificate_of_a_listener_that_serves(
    listener: TlsListener, configs: RunTool
) -> None:
    first = listener.presented_serial()
    with listener.connect() as open_connection:
        renewed = listener.make_keystore(PRESENT_SUBJECT, NAMES)
        done = configs("--alter", "--add-config", f"{LOCATION}={renewed}")
        assert done.returncode == 0, done.stderr
        eventually(lambda: listener.presented_serial() != first, within_s=WITHIN_S)
        open_connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            open_connection.recv(1)  # the broker has not closed it
    described = configs("--describe").stdout
    assert f"{LOCATION}={renewed} sensitive=false" in described, described
    assert f"DYNAMIC_BROKER_CONFIG:{LOCATION}={renewed}" in described
    assert "STATIC_BROKER_CONFIG:ssl.keystore.location=" in described
    second = listener.presented_serial()
    listener.broker.stop()
    listener.broker.start()
    eventually(lambda: listener.presented_serial() == second, within_s=WITHIN_S)
    assert configs("--alter", "--delete-config", LOCATION).returncode == 0
    eventually(lambda: listener.presented_serial() == first, within_s=WITHIN_S)


def test_kafka_configs_cannot_set_certificates_that_clients_would_not_accept(
    listener: TlsListener, configs: RunTool
) -> None:
    first = listener.presented_serial()
    other_subject = listener.make_keystore("another", NAMES)
    fewer_names = listener.make_keystore(PRESENT_SUBJECT, NAMES[:1])
    good = listener.make_keystore(PRESENT_SUBJECT, NAMES)
    one, all_brokers = ("--entity-name", "1"), ("--entity-default",)
    refused = [
        (f"{LOCATION}={other_subject}", one),
        (f"{LOCATION}={fewer_names}", one),
        (f"{LOCATION}={listener.authority.folder / 'missing.pem'}", one),
        (f"ssl.keystore.location={good}", one),
        (f"{LOCATION}={good}", all_brokers),
    ]
    for change, entity in refused:
        done = configs("--alter", "--add-config", change, entity=entity)
        assert done.returncode != 0 and "InvalidRequestException" in done.stderr + done.stdout, (change, done.stderr)
    assert listener.presented_serial() == first
    assert LOCATION not in configs("--describe").stdout
    more_names = listener.make_keystore(PRESENT_SUBJECT, [*NAMES, "DNS:more.example"])
    assert configs("--alter", "--add-config", f"{LOCATION}={more_names}").returncode == 0
    back = configs("--alter", "--delete-config", LOCATION)
    assert back.returncode != 0, "the first certificate lacks a name by which clients may connect now"
