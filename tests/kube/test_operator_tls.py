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
from tests.kube.installed import Installed
from tests.kube.kept import Kept
from tests.kube.moments import Moments
from tests.kube.operators import Resources
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
class Safe:
    """A Cluster with a TLS listener. `authority` signs its certificates; clients reach every broker
    at `host`, the node's address.
    """

    kept: Kept
    made: CertificateAuthority
    host: str

    def certificate(self, name: str) -> Path:
        """Path of a new certificate with a new key, valid for the brokers' external address."""
        return create_server_certificate(self.made, name, [f"IP:{self.host}"])[0]

    def put(self, certificate: Path, *, without: str = "") -> None:
        """Write a certificate into the Secret, without the key `without`. Creates the Secret if it
        does not exist.
        """
        files = {"tls.crt": certificate, "tls.key": certificate.with_suffix(".key"), "ca.crt": self.made.certificate}
        data = {it: base64.b64encode(file.read_bytes()).decode() for it, file in files.items() if it != without}
        api, path = self.kept.resources.api, f"/api/v1/namespaces/{NAMESPACE}/secrets"
        if api.get(f"{path}/{SECRET}") is None:
            api.ask("POST", path, {"metadata": {"name": SECRET}, "type": "Opaque", "data": data})
        else:
            api.ask("PATCH", f"{path}/{SECRET}", {"data": data})

    def node_port(self, of: str) -> int:
        service = self.kept.resources.of("v1", "services")[f"{NAME}-tls-{of}"]
        return int(service["spec"]["ports"][0]["nodePort"])

    def clients(self) -> dict[str, str]:
        """librdkafka's settings; by default it verifies brokers' host names."""
        return {
            "bootstrap.servers": f"{self.host}:{self.node_port('bootstrap')}",
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.made.certificate),
        }

    def shown(self, broker: int) -> str:
        return ssl.get_server_certificate((self.host, self.node_port(str(broker))), timeout=10).strip()


@pytest.fixture(scope="module")
def safe(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Safe]:
    """A Ready Cluster with a TLS listener. Its Secret was created after the Cluster."""
    api = installed.kube.plane.admin
    resources = Resources(api, NAMESPACE)
    resources.make_namespace()
    host = installed.kube.nodes[0].address
    made = create_certificate_authority(tmp_path_factory.mktemp("tls") / "authority", [host], ["localhost"])
    with Moments(api, NAMESPACE) as moments:
        found = Safe(Kept(installed, resources, moments, NAME), made, host)
        first = found.certificate("first")
        found.kept.make(SPEC, meanwhile=lambda: nothing_before_the_secret_is_right(found, first))
        yield found
        assert moments.troubles() == []
    api.ask("DELETE", f"/api/v1/namespaces/{NAMESPACE}")


def nothing_before_the_secret_is_right(safe: Safe, first: Path) -> None:
    def stalled() -> str:
        found = safe.kept.resources.condition("Cluster", NAME, "Stalled")
        return found["message"] if found.get("status") == "True" and found["reason"] == "CertificateUnusable" else ""

    eventually(lambda: stalled() == f"spec.tls: Secret {SECRET} does not exist", within_s=60, message=safe.kept.said)
    safe.put(first, without="tls.key")
    eventually(lambda: f"Secret {SECRET} has no tls.key" in stalled(), within_s=60, message=safe.kept.said)
    assert not safe.kept.pods()
    safe.put(first)


def test_clients_outside_produce_and_consume_over_tls(safe: Safe) -> None:
    safe.kept.topic("secret")
    how: dict[str, Any] = {**safe.clients()}
    at = how.pop("bootstrap.servers")
    sent = [Message(None, b"%d" % it, START_MS) for it in range(100)]
    assert len(rd.produce(at, "secret", sent, **how)) == 100
    assert rd.values_of(rd.consume(at, "secret", 100, **how)) == [it.value for it in sent]
    assert {safe.shown(broker) for broker in (1, 2, 3)} == {(safe.made.folder / "first.crt").read_text().strip()}


def test_a_renewed_certificate_is_a_roll_of_one_broker_at_a_time_under_load(safe: Safe) -> None:
    kept, renewed = safe.kept, safe.certificate("renewed")
    with kept.under_load("renewed", safe.clients()):
        before, controller = kept.uids(), kept.status["controller"]
        safe.put(renewed)
        with kept.installed.killed_meanwhile("renewed"):
            order = kept.one_after_the_other(before)
        kept.wait()
    assert order[-1] == f"{NAME}-{controller}"
    assert {safe.shown(broker) for broker in (1, 2, 3)} == {renewed.read_text().strip()}
    versions = kept.moments.of("Cluster", NAME, 0)
    said = {it["message"] for version in versions for it in (version.get("status") or {}).get("conditions") or []}
    assert any("to be restarted: certificates of Secret safe-tls" in it for it in said), said


def test_a_wrong_certificate_restarts_nobody_and_is_told(safe: Safe) -> None:
    kept, before = safe.kept, safe.kept.uids()
    other = safe.certificate("other")
    good = safe.made.folder / "renewed.crt"
    other.with_suffix(".key").write_text(good.with_suffix(".key").read_text())
    safe.put(other)
    kept.wait("Failed")
    said = kept.resources.condition("Cluster", NAME, "Stalled")
    assert said["reason"] == "CertificateUnusable"
    assert "has a key that does not belong to its certificate" in said["message"]
    assert kept.resources.condition("Cluster", NAME, "Available")["status"] == "True"
    safe.put(good)
    kept.wait()
    assert kept.uids() == before
