"""A Cluster with a TLS listener on a real kubelet: it waits for a valid Secret, serves clients on
node ports, and restarts brokers for a renewed certificate under load.
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
        """Write a certificate into the Secret, without the key `without`. Creates the Secret if it
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

    def node_port(self, of: str) -> int:
        service = self.cluster.resources.list_objects("v1", "services")[f"{NAME}-tls-{of}"]
        return int(service["spec"]["ports"][0]["nodePort"])

    def client_settings(self) -> dict[str, str]:
        """librdkafka's settings; by default it verifies brokers' host names."""
        return {
            "bootstrap.servers": f"{self.host}:{self.node_port('bootstrap')}",
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.authority.certificate),
        }

    def served_certificate(self, broker: int) -> str:
        return ssl.get_server_certificate((self.host, self.node_port(str(broker))), timeout=10).strip()


@pytest.fixture(scope="module")
def safe(installed_operator: InstalledOperator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsCluster]:
    """A Ready Cluster with a TLS listener. Its Secret was created after the Cluster."""
    api = installed_operator.kube.plane.admin
    resources = NamespaceClient(api, NAMESPACE)
    resources.create_namespace()
    host = installed_operator.kube.nodes[0].address
    authority = create_certificate_authority(tmp_path_factory.mktemp("tls") / "authority", [host], ["localhost"])
    with ResourceHistory(api, NAMESPACE) as history:
        found = TlsCluster(ManagedCluster(installed_operator, resources, history, NAME), authority, host)
        first = found.create_certificate("first")
        found.cluster.create(SPEC, while_starting=lambda: nothing_before_the_secret_is_right(found, first))
        yield found
        assert history.find_violations() == []
    api.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}")


def nothing_before_the_secret_is_right(safe: TlsCluster, first: Path) -> None:
    def stalled() -> str:
        found = safe.cluster.resources.condition("Cluster", NAME, "Stalled")
        return found["message"] if found.get("status") == "True" and found["reason"] == "CertificateUnusable" else ""

    eventually(
        lambda: stalled() == f"spec.tls: Secret {SECRET} does not exist", within_s=60, message=safe.cluster.describe
    )
    safe.write_secret(first, without="tls.key")
    eventually(lambda: f"Secret {SECRET} has no tls.key" in stalled(), within_s=60, message=safe.cluster.describe)
    assert not safe.cluster.pods()
    safe.write_secret(first)


def test_clients_outside_produce_and_consume_over_tls(safe: TlsCluster) -> None:
    safe.cluster.create_topic("secret")
    how: dict[str, Any] = {**safe.client_settings()}
    at = how.pop("bootstrap.servers")
    sent = [Message(None, b"%d" % it, START_MS) for it in range(100)]
    assert len(rd.produce(at, "secret", sent, **how)) == 100
    assert rd.values_of(rd.consume(at, "secret", 100, **how)) == [it.value for it in sent]
    assert {safe.served_certificate(broker) for broker in (1, 2, 3)} == {
        (safe.authority.folder / "first.crt").read_text().strip()
    }


def test_a_renewed_certificate_is_a_roll_of_one_broker_at_a_time_under_load(safe: TlsCluster) -> None:
    cluster, renewed = safe.cluster, safe.create_certificate("renewed")
    with cluster.run_clients("renewed", safe.client_settings()):
        before, controller = cluster.uids(), cluster.status["controller"]
        safe.write_secret(renewed)
        with cluster.operator.active_pod_deleted("renewed"):
            order = cluster.wait_for_rolling_restart(before)
        cluster.wait_for_status()
    assert order[-1] == f"{NAME}-{controller}"
    assert {safe.served_certificate(broker) for broker in (1, 2, 3)} == {renewed.read_text().strip()}
    versions = cluster.history.versions_of("Cluster", NAME, 0)
    said = {it["message"] for version in versions for it in (version.get("status") or {}).get("conditions") or []}
    assert any("to be restarted: certificates of Secret safe-tls" in it for it in said), said


def test_a_wrong_certificate_restarts_nobody_and_is_told(safe: TlsCluster) -> None:
    cluster, before = safe.cluster, safe.cluster.uids()
    other = safe.create_certificate("other")
    good = safe.authority.folder / "renewed.crt"
    other.with_suffix(".key").write_text(good.with_suffix(".key").read_text())
    safe.write_secret(other)
    cluster.wait_for_status("Failed")
    said = cluster.resources.condition("Cluster", NAME, "Stalled")
    assert said["reason"] == "CertificateUnusable"
    assert "has a key that does not belong to its certificate" in said["message"]
    assert cluster.resources.condition("Cluster", NAME, "Available")["status"] == "True"
    safe.write_secret(good)
    cluster.wait_for_status()
    assert cluster.uids() == before
