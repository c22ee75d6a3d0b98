"""A Cluster with a TLS listener on a real kubelet: it waits for a valid Secret, serves clients on
node ports, and its brokers read a renewed certificate under load without a restart.
"""

import base64
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.clients import librdkafka as rd
from tests.clients.sample_messages import START_MS, Message
from tests.kube.certificates import CertificateAuthority, create_certificate_authority, create_server_certificate
from tests.kube.installed_operator import InstalledOperator
from tests.kube.managed_cluster import ManagedCluster
from tests.kube.namespace_client import NamespaceClient
from tests.kube.resource_history import ResourceHistory
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(900)  # images may have to be built
NAME, NAMESPACE, SECRET = "safe", "safe", "safe-tls"
LISTENERS = [
    {"name": "plain", "port": 9092},
    {"name": "out", "port": 9094, "type": "NodePort"},
    {"name": "tls", "port": 9095, "type": "NodePort", "tls": True},
]
SPEC = {"listeners": LISTENERS, "tls": {"secretRef": {"name": SECRET}}}


@dataclass
class TlsCluster:
    """A Cluster with a TLS listener. `authority` signs its certificates; clients reach every broker
    at `host`, the node's address.
    """

    cluster: ManagedCluster
    authority: CertificateAuthority
    host: str

    def create_certificate(self, name: str) -> Path:
        """Path of a new certificate with a new key, valid for the brokers' external address."""
        return create_server_certificate(self.authority, name, [f"IP:{self.host}"])[0]

    def write_secret(self, certificate: Path, *, without: str = "") -> None:
        """Writes a certificate into the Secret, without the key `without`. Creates the Secret if it
        does not exist.
        """
        files = {
            "tls.crt": certificate,
            "tls.key": certificate.with_suffix(".key"),
            "ca.crt": self.authority.certificate,
        }
        data = {it: base64.b64encode(file.read_bytes()).decode() for it, file in files.items() if it != without}
        api, path = self.cluster.resources.api, f"/api/v1/namespaces/{NAMESPACE}/secrets"
        if api.get(f"{path}/{SECRET}") is None:
            api.request("POST", path, {"metadata": {"name": SECRET}, "type": "Opaque", "data": data})
        else:
            api.request("PATCH", f"{path}/{SECRET}", {"data": data})

    def node_port(self, suffix: str) -> int:
        service = self.cluster.resources.list_objects("v1", "services")[f"{NAME}-tls-{suffix}"]
        return int(service["spec"]["ports"][0]["nodePort"])

    def client_settings(self) -> dict[str, str]:
        """librdkafka's settings; by default it verifies brokers' host names."""
        return {
            "bootstrap.servers": f"{self.host}:{self.node_port('bootstrap')}",
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.authority.certificate),
        }

    def served_certificate(self, broker: int) -> str:
        """PEM text of the certificate that a broker presents."""
        return ssl.get_server_certificate((self.host, self.node_port(str(broker))), timeout=10).strip()


@pytest.fixture(scope="module")
def tls_cluster(
    installed_operator: InstalledOperator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TlsCluster]:
    """A Ready Cluster with a TLS listener. Its Secret was created after the Cluster."""
    api = installed_operator.kube.plane.admin
    resources = NamespaceClient(api, NAMESPACE)
    resources.create_namespace()
    host = installed_operator.kube.nodes[0].address
    authority = create_certificate_authority(tmp_path_factory.mktemp("tls") / "authority", [host], ["localhost"])
    with ResourceHistory(api, NAMESPACE) as history:
        created = TlsCluster(ManagedCluster(installed_operator, resources, history, NAME), authority, host)
        first = created.create_certificate("first")
        created.cluster.create(SPEC, while_starting=lambda: check_that_a_valid_secret_is_required(created, first))
        yield created
        assert history.find_violations() == []
    api.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}")


def check_that_a_valid_secret_is_required(tls_cluster: TlsCluster, first: Path) -> None:
    """Asserts that the Cluster is Stalled without pods until its Secret is complete. Writes it."""

    def stalled_message() -> str:
        condition = tls_cluster.cluster.resources.condition("Cluster", NAME, "Stalled")
        is_unusable = condition.get("status") == "True" and condition["reason"] == "CertificateUnusable"
        return condition["message"] if is_unusable else ""

    eventually(
        lambda: stalled_message() == f"spec.tls: Secret {SECRET} does not exist",
        within_s=60,
        message=tls_cluster.cluster.describe,
    )
    tls_cluster.write_secret(first, without="tls.key")
    eventually(
        lambda: f"Secret {SECRET} has no tls.key" in stalled_message(),
        within_s=60,
        message=tls_cluster.cluster.describe,
    )
    assert not tls_cluster.cluster.pods()
    tls_cluster.write_secret(first)


def test_clients_outside_kubernetes_produce_and_consume_over_tls(tls_cluster: TlsCluster) -> None:
    tls_cluster.cluster.create_topic("secret")
    settings: dict[str, Any] = {**tls_cluster.client_settings()}
    bootstrap = settings.pop("bootstrap.servers")
    sent = [Message(None, b"%d" % it, START_MS) for it in range(100)]
    assert len(rd.produce(bootstrap, "secret", sent, **settings)) == 100
    assert rd.values_of(rd.consume(bootstrap, "secret", 100, **settings)) == [it.value for it in sent]
    first = (tls_cluster.authority.folder / "first.crt").read_text().strip()
    assert {tls_cluster.served_certificate(broker) for broker in (1, 2, 3)} == {first}


def test_a_renewed_certificate_is_read_by_brokers_that_keep_running(tls_cluster: TlsCluster) -> None:
    cluster, renewed = tls_cluster.cluster, tls_cluster.create_certificate("renewed")
    with cluster.run_clients("renewed", tls_cluster.client_settings()):
        before = cluster.uids()
        tls_cluster.write_secret(renewed)
        expected = {renewed.read_text().strip()}
        eventually(
            lambda: {tls_cluster.served_certificate(broker) for broker in (1, 2, 3)} == expected,
            within_s=240,  # the kubelet updates mounted Secrets every minute or so
            message=cluster.describe,
        )
        cluster.wait_for_status()
    assert cluster.uids() == before


def test_a_certificate_with_the_key_of_another_is_reported_and_restarts_no_broker(tls_cluster: TlsCluster) -> None:
    cluster, before = tls_cluster.cluster, tls_cluster.cluster.uids()
    mismatched = tls_cluster.create_certificate("other")
    renewed = tls_cluster.authority.folder / "renewed.crt"
    mismatched.with_suffix(".key").write_text(renewed.with_suffix(".key").read_text())
    tls_cluster.write_secret(mismatched)
    cluster.wait_for_status("Failed")
    stalled = cluster.resources.condition("Cluster", NAME, "Stalled")
    assert stalled["reason"] == "CertificateUnusable"
    assert "has a key that does not belong to its certificate" in stalled["message"]
    assert cluster.resources.condition("Cluster", NAME, "Available")["status"] == "True"
    tls_cluster.write_secret(renewed)
    cluster.wait_for_status()
    assert cluster.uids() == before
