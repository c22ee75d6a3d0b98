"""A Cluster's own certificate authority: real certificates, on one machine and on Kubernetes."""

import base64
import ssl
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.wire.listener_tls import inspect_certificate
from ottla_operator.certificates import x509
from ottla_operator.certificates.internal_authority import ClusterCertificates, maintain_certificates, read_authorities
from ottla_operator.kube.kinds import SECRET
from ottla_operator.local import internal_certificates
from ottla_operator.local.documents import InvalidFiles, read_files
from ottla_operator.local.home import Home
from ottla_operator.plan.certificate_renewal import Validity
from ottla_operator.plan.objects.services import ServiceAddress, ServiceAddresses, certificate_names
from ottla_operator.plan.source_credentials import SecretUnusable, secret_values
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.validation import validate_resource
from tests.unit.operator import samples
from tests.unit.operator.api_server import FakeApi
from tests.unit.operator.cluster_operator import SPEC, Operator
from tests.unit.operator.tls_handshake import shake_hands

DAY = 86_400.0
INTERNAL = {"issuer": "Internal"}
SAFE = {"name": "safe", "port": 9094, "tls": True}
MUTUAL = {**SAFE, "authentication": "TLS"}


def cluster(*listeners: dict[str, Any], **tls: Any) -> Cluster:
    data = samples.cluster(listeners=list(listeners) or [SAFE], tls={**INTERNAL, **tls})
    return Cluster.parse({**data, "metadata": {"name": "demo", "namespace": "events"}})


def maintain(now: float, before: ClusterCertificates | None = None, names: tuple[str, ...] = ("localhost",)) -> Any:
    authority, brokers = (before.authority, before.brokers) if before else ({}, {})
    return maintain_certificates(cluster(), authority, brokers, names, now)


def test_strict_clients_accept_the_first_certificates(tmp_path: Path) -> None:
    made = maintain(time.time(), names=("localhost", "127.0.0.1", "*.demo-brokers.events.svc"))
    assert list(made.authority) == ["ca-1.crt", "ca-1.key"]
    assert [it.split(",")[0] for it in made.changes] == [
        "authority 1 created",
        "brokers' certificate issued",
    ]
    shown = inspect_certificate(made.brokers["tls.crt"], made.brokers["tls.key"])
    assert shown.names == ("*.demo-brokers.events.svc", "127.0.0.1", "localhost")
    (authority,) = read_authorities(cluster(), made.authority)
    subject = x509.subject_of_common_name("billing, Ltd.")
    client = x509.issue_client_certificate(authority, subject, Validity(time.time(), time.time() + DAY))
    assert "billing, Ltd." in shake_hands(made.brokers, made.brokers["ca.crt"], client, tmp_path)
    other = maintain(time.time())
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(made.brokers, other.brokers["ca.crt"], None, tmp_path)
    assert "PRIVATE" not in repr(made)


def test_nothing_changes_until_something_is_due() -> None:
    now = 1_800_000_000.5
    first = maintain(now)
    assert maintain(now + 59 * DAY, first) == ClusterCertificates(first.authority, first.brokers, first.status)
    second = maintain(now + 60 * DAY, first)
    assert second.changes[0].endswith("two thirds of the previous one's lifetime are over")
    assert second.authority == first.authority
    assert second.brokers["tls.key"] != first.brokers["tls.key"]
    third = maintain(now + 61 * DAY, second, names=("localhost", "203.0.113.7"))
    assert third.changes[0].endswith("does not contain 203.0.113.7")
    assert maintain(now + 61 * DAY, third, names=("LOCALHOST", "203.0.113.7")).changes == ()
    assert third.status.to_json()["renewalTime"] > second.status.to_json()["renewalTime"]


def test_a_successor_is_trusted_before_it_signs_and_its_predecessor_until_it_expires() -> None:
    now, year = 1_800_000_000.0, 365 * DAY
    one = maintain(now)
    two = maintain(now + 3.4 * year, one)
    assert two.brokers["ca.crt"].count("BEGIN CERTIFICATE") == 2
    assert [it.number for it in two.status.authorities or ()] == [1, 2]
    certificate = (two.brokers["tls.crt"], two.brokers["tls.key"])
    (issued,) = [x509.read_certificate(*certificate, read_authorities(cluster(), two.authority))]
    assert issued is not None and issued.issuer == 1
    three = maintain(now + 4.19 * year, two)
    assert [it.split(":")[-1] for it in three.changes] == [" the previous one is not valid now"]
    four = maintain(now + 4.21 * year, three)
    assert [it.split(":")[-1] for it in four.changes] == [" authority 2 issues certificates now"]
    assert four.brokers["ca.crt"] == two.brokers["ca.crt"]
    five = maintain(now + 5 * year, four)
    assert list(five.authority) == ["ca-2.crt", "ca-2.key"]
    assert "authority 1 has expired and is no longer trusted" in five.changes


def test_a_damaged_authority_is_reported_and_a_damaged_certificate_is_issued_again() -> None:
    made = maintain(time.time())
    other = maintain(time.time())
    with pytest.raises(SecretUnusable, match=r"Secret demo-ca: ca-1.crt has a key that does not belong"):
        maintain_certificates(
            cluster(), {**made.authority, "ca-1.key": other.authority["ca-1.key"]}, {}, ["localhost"], time.time()
        )
    with pytest.raises(SecretUnusable, match=r"ca-1.crt has no private key in PEM"):
        maintain_certificates(cluster(), {"ca-1.crt": made.authority["ca-1.crt"]}, {}, ["localhost"], time.time())
    renewed = maintain_certificates(
        cluster(), made.authority, {**made.brokers, "tls.key": other.brokers["tls.key"]}, ["localhost"], time.time()
    )
    assert renewed.changes[0].endswith("there is none that can be used")


def test_names_are_those_by_which_clients_connect() -> None:
    out = {**SAFE, "name": "out", "port": 9095, "type": "LoadBalancer"}
    ports = {**SAFE, "name": "ports", "port": 9096, "type": "NodePort"}
    hosts = {**SAFE, "name": "hosts", "port": 9097, "type": "NodePort", "advertisedHost": "b{id}.example.com"}
    plain = {"name": "plain", "port": 9092}
    addresses = ServiceAddresses({"demo-out-1": ServiceAddress(host="lb-1.example.com")})
    found = certificate_names(cluster(SAFE, out, ports, hosts, plain), [1, 2], addresses, ["10.0.0.7", ""])
    assert {it for it in found if ".events" not in it} == {
        "lb-1.example.com",
        "10.0.0.7",
        "b1.example.com",
        "b2.example.com",
    }
    assert {it for it in found if it.endswith(".events.svc")} == {
        "*.demo-brokers.events.svc",
        *(f"demo-{it}-bootstrap.events.svc" for it in ("safe", "out", "ports", "hosts")),
    }


@pytest.mark.parametrize(
    ("tls", "message"),
    [
        ({}, "tls has either secretRef or issuer: Internal"),
        ({**INTERNAL, "secretRef": {"name": "a"}}, "tls has either secretRef or issuer: Internal"),
        ({"secretRef": {"name": "a"}, "certificateValidity": "1d"}, "only for issuer: Internal"),
        ({**INTERNAL, "certificateValidity": "5s"}, "at least 10 minutes"),
        ({**INTERNAL, "authorityValidity": "30d"}, "at least as long as certificateValidity"),
    ],
)
def test_invalid_specs_are_refused(tls: dict[str, Any], message: str) -> None:
    problems = validate_resource(samples.cluster(listeners=[SAFE], tls=tls))
    assert any(message in str(it) for it in problems), [str(it) for it in problems]


def test_only_their_owner_can_read_the_files_on_one_machine(tmp_path: Path) -> None:
    home = Home(tmp_path)
    made = internal_certificates.maintain_certificate_files(home, cluster(MUTUAL))
    files = [it for it in tmp_path.rglob("*") if it.is_file()]
    assert {it.name for it in files} == {"ca-1.crt", "ca-1.key", "ca.crt", "keystore.pem"}
    assert {stat.S_IMODE(it.stat().st_mode) for it in files} == {0o600}
    again = internal_certificates.maintain_certificate_files(home, cluster(MUTUAL))
    assert (again.changes, again.status) == ((), made.status)
    file = tmp_path / "demo.yaml"
    file.write_text(
        "apiVersion: ottla.dev/v1alpha1\nkind: Cluster\nmetadata: {name: demo}\nspec:\n  replicas: 1\n"
        "  listeners: [{name: safe, port: 9094, tls: true}]\n  tls: {issuer: Internal}\n"
    )
    assert len(read_files([file])) == 1
    file.write_text(file.read_text().replace("Internal", "External"))
    with pytest.raises(InvalidFiles, match="issuer"):
        read_files([file])


# --- on Kubernetes


@pytest.fixture
def api() -> FakeApi:
    api = FakeApi()
    api.put_cluster({**SPEC, "listeners": [MUTUAL], "tls": INTERNAL})
    return api


def values(api: FakeApi, name: str) -> dict[str, str]:
    return secret_values(api.of("Secret")[name])


def test_secrets_exist_before_pods_and_nothing_is_written_again(api: FakeApi, operator: Operator) -> None:
    writes = operator.reconcile()
    assert writes.index("apply Secret demo-ca") < writes.index("apply Secret demo-certificates")
    assert writes.index("apply Secret demo-certificates") < writes.index("apply StatefulSet demo")
    (volume,) = [it for it in api.stateful_set["spec"]["template"]["spec"]["volumes"] if it["name"] == "certificates"]
    assert volume["secret"]["secretName"] == "demo-certificates"
    assert [it["key"] for it in volume["secret"]["items"]] == ["tls.crt", "tls.key", "ca.crt"]
    for secret in api.of("Secret").values():
        assert secret["metadata"]["ownerReferences"][0]["name"] == "demo"
    trusted = api.of("ConfigMap")["demo-ca"]["data"]
    assert trusted == {"ca.crt": values(api, "demo-certificates")["ca.crt"]}
    assert any(reason == "CertificateChanged" for reason, _ in api.events)
    assert "PRIVATE" not in repr((api.events, trusted, api.of("Cluster")))
    operator.reconcile()
    assert operator.reconcile() == []
    status = api.of("Cluster")["demo"]["status"]["certificate"]
    assert status["notAfter"] > status["renewalTime"]


def test_a_renewed_certificate_restarts_no_broker(api: FakeApi, operator: Operator) -> None:
    operator.reconcile()
    api.run_pods()
    operator.reconcile()
    before = values(api, "demo-certificates")
    del api.objects["Secret", "events", "demo-certificates"]
    assert [it for it in operator.reconcile() if "Pod" in it or "StatefulSet" in it] == []
    after = values(api, "demo-certificates")
    assert after["tls.crt"] != before["tls.crt"]
    assert after["ca.crt"] == before["ca.crt"]


def test_a_secret_of_others_is_left_alone(api: FakeApi, operator: Operator) -> None:
    data = {"ca-1.key": base64.b64encode(b"x").decode()}
    api.put(SECRET, {"metadata": {"name": "demo-ca", "namespace": "events"}, "data": data})
    operator.reconcile()
    assert operator.conditions["Stalled"]["reason"] == "CertificateUnusable"
    assert "Secret demo-ca exists and is not the operator's" in operator.conditions["Stalled"]["message"]
    assert api.of("Secret")["demo-ca"]["data"] == data
    assert not api.of("StatefulSet")
