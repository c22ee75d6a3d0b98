"""Certificates of a Cluster's listeners: from a Secret to settings of brokers, and errors of
unusable Secrets.
"""

import base64
import stat
import time
from pathlib import Path, PurePath
from typing import Any

import pytest

from ottla_broker.config import Config
from ottla_broker.config.listener_security import listener_tls
from ottla_operator.kube.api import ApiError
from ottla_operator.kube.kinds import SECRET
from ottla_operator.local.documents import InvalidFiles, read_files
from ottla_operator.local.home import write_certificates
from ottla_operator.plan import listener_certificates as tls
from ottla_operator.plan.broker_processes import plan_broker_processes
from ottla_operator.plan.objects.services import in_cluster_bootstrap
from ottla_operator.plan.source_credentials import ObservedSecret, SecretUnusable
from ottla_operator.resources.cluster import Cluster
from tests.kube.certificates import CertificateAuthority, create_server_certificate
from tests.unit.operator import samples
from tests.unit.operator.api_server import FakeApi
from tests.unit.operator.cluster_operator import SPEC, Operator

PLAIN, SAFE = {"name": "plain", "port": 9092}, {"name": "safe", "port": 9094, "tls": True}
MUTUAL = {**SAFE, "authentication": "TLS"}
REF = {"secretRef": {"name": "demo-tls"}}


def secret_values(authority: CertificateAuthority, name: str = "tls") -> dict[str, str]:
    files = {"tls.crt": f"{name}.crt", "tls.key": f"{name}.key", "ca.crt": "ca.crt"}
    return {key: (authority.folder / file).read_text() for key, file in files.items()}


def cluster(*listeners: dict[str, Any], name: str = "demo", **spec: Any) -> Cluster:
    return Cluster.parse(samples.cluster(name, listeners=list(listeners), tls=REF, **spec))


def read_certificates(it: Cluster, secret: dict[str, str]) -> tls.ListenerCertificates:
    certificates = tls.read_certificates(it, {"demo-tls": ObservedSecret(secret, "1")})
    assert certificates is not None
    return certificates


def test_digest_changes_with_certificates_and_used_authorities(authority: CertificateAuthority) -> None:
    create_server_certificate(authority, "renewed", ["DNS:localhost"])
    before = read_certificates(cluster(SAFE), secret_values(authority))
    assert (
        read_certificates(cluster(SAFE), {**secret_values(authority), "ca.crt": "another", "else": "x"}).digest
        == before.digest
    )
    assert read_certificates(cluster(SAFE), secret_values(authority, "renewed")).digest != before.digest
    mutual = read_certificates(cluster(MUTUAL), secret_values(authority))
    assert read_certificates(cluster(MUTUAL), {**secret_values(authority), "ca.crt": "another"}).digest != mutual.digest
    assert before.authorities == "", "no authorities without client authentication"
    assert "PRIVATE" not in repr(before)
    assert tls.read_certificates(cluster(PLAIN), {}) is None


def test_missing_secret_or_key_is_named(authority: CertificateAuthority) -> None:
    with pytest.raises(SecretUnusable, match=r"^spec.tls: Secret demo-tls does not exist$"):
        tls.read_certificates(cluster(SAFE), {})
    with pytest.raises(SecretUnusable, match=r"^spec.tls: Secret demo-tls has no tls.key; it has: tls.crt$"):
        read_certificates(cluster(SAFE), {"tls.crt": "x"})
    with pytest.raises(SecretUnusable, match=r"Secret demo-tls has no ca.crt; it has: tls.crt, tls.key$"):
        read_certificates(cluster(MUTUAL), {"tls.crt": "x", "tls.key": "x"})


def test_certificates_that_clients_would_reject_are_reported(authority: CertificateAuthority) -> None:
    create_server_certificate(authority, "other", ["DNS:localhost"])
    valid = read_certificates(cluster(SAFE), secret_values(authority))
    tls.check_certificates(valid, time.time())
    with pytest.raises(SecretUnusable, match=r"Secret demo-tls: clients would reject tls.crt: it expired on "):
        tls.check_certificates(valid, time.time() + 90 * 86_400)
    tls.check_certificates(valid, None)
    with pytest.raises(SecretUnusable, match="it is not valid before "):
        tls.check_certificates(valid, time.time() - 90 * 86_400)
    other_key = {**secret_values(authority), "tls.key": secret_values(authority, "other")["tls.key"]}
    with pytest.raises(SecretUnusable, match=r"tls.crt with tls.key has a key that does not belong to its certificate"):
        tls.check_certificates(read_certificates(cluster(SAFE), other_key), time.time())
    with pytest.raises(SecretUnusable, match=r"tls.crt with tls.key has no certificate in PEM"):
        tls.check_certificates(read_certificates(cluster(SAFE), {"tls.crt": "x", "tls.key": "x"}), time.time())


def test_brokers_on_one_machine_read_files_that_are_replaced(authority: CertificateAuthority, tmp_path: Path) -> None:
    demo = cluster(PLAIN, MUTUAL, replicas=2)
    certificates = read_certificates(demo, secret_values(authority))
    folder, is_renewed = write_certificates(tmp_path, certificates)
    assert not is_renewed
    assert {stat.S_IMODE(it.stat().st_mode) for it in folder.iterdir()} == {0o600}
    assert write_certificates(tmp_path, certificates) == (folder, False)
    create_server_certificate(authority, "replaced", ["DNS:localhost"])
    assert write_certificates(tmp_path, read_certificates(demo, secret_values(authority, "replaced"))) == (folder, True)
    first, second = plan_broker_processes([demo], tmp_path, certificates={"demo": folder})
    config = Config.of(dict(first.settings))
    assert config.security_protocol("SAFE") == "SSL"
    assert config.inter_broker_listener == "PLAIN"
    assert listener_tls(config, "SAFE").client_auth == "required"
    assert listener_tls(config, "SAFE").load()
    assert (first.address, first.address_with("SSL")) == ("127.0.0.1:9092", "127.0.0.1:9094")
    assert (second.address, second.address_with("SSL")) == ("127.0.0.1:9093", "127.0.0.1:9095")


def test_brokers_whose_listeners_all_have_tls_get_an_inter_broker_listener(authority: CertificateAuthority) -> None:
    (broker,) = plan_broker_processes([cluster(SAFE)], PurePath("/state"), certificates={"demo": PurePath("/c")})
    assert broker.settings["listeners"] == "SAFE://127.0.0.1:9094,INTER_BROKER://127.0.0.1:9095"
    assert broker.settings["inter.broker.listener.name"] == "INTER_BROKER"
    assert broker.address == "127.0.0.1:9095"


def test_bootstrap_address_is_that_of_a_listener_with_or_without_tls() -> None:
    def cluster_with(*listeners: dict[str, Any]) -> Cluster:
        data = samples.cluster(listeners=list(listeners), tls=REF)
        return Cluster.parse({**data, "metadata": {"name": "demo", "namespace": "events"}})

    assert (
        in_cluster_bootstrap(cluster_with(SAFE, {**PLAIN, "type": "NodePort"}))
        == "demo-plain-bootstrap.events.svc:9092"
    )
    assert in_cluster_bootstrap(cluster_with(SAFE)) == ""
    assert in_cluster_bootstrap(cluster_with(PLAIN, SAFE), has_tls=True) == "demo-safe-bootstrap.events.svc:9094"


def test_files_without_the_secret_are_rejected_with_the_line(authority: CertificateAuthority, tmp_path: Path) -> None:
    file = tmp_path / "demo.yaml"
    text = (
        "apiVersion: ottla.dev/v1alpha1\nkind: Cluster\nmetadata: {name: demo}\nspec:\n  replicas: 1\n"
        "  listeners: [{name: safe, port: 9094, tls: true}]\n  tls:\n    secretRef: {name: demo-tls}\n"
    )
    file.write_text(text)
    with pytest.raises(InvalidFiles) as raised:
        read_files([file])
    assert raised.value.lines == (f"{file}:8: spec.tls: Secret demo-tls does not exist",)
    secret = {key: base64.b64encode(value.encode()).decode() for key, value in secret_values(authority).items()}
    file.write_text(
        f"{text}---\napiVersion: v1\nkind: Secret\nmetadata: {{name: demo-tls}}\ndata: "
        f"{str(secret).replace(chr(39), chr(34))}\n"
    )
    assert len(read_files([file])) == 2


# --- on Kubernetes


def put_secret(api: FakeApi, secret: dict[str, str]) -> None:
    data = {key: base64.b64encode(value.encode()).decode() for key, value in secret.items()}
    api.put(SECRET, {"metadata": {"name": "demo-tls", "namespace": "events"}, "data": data})


@pytest.fixture
def api() -> FakeApi:
    api = FakeApi()
    api.put_cluster({**SPEC, "listeners": [PLAIN, SAFE], "tls": REF})
    return api


def test_no_pod_is_created_before_the_secret_exists(
    api: FakeApi, operator: Operator, authority: CertificateAuthority
) -> None:
    assert operator.reconcile() == ["status Cluster demo"]
    assert operator.conditions["Stalled"]["status"] == "True"
    assert operator.conditions["Stalled"]["reason"] == "CertificateUnusable"
    assert operator.conditions["Stalled"]["message"] == "spec.tls: Secret demo-tls does not exist"
    put_secret(api, {"tls.crt": secret_values(authority)["tls.crt"]})
    operator.reconcile()
    assert "has no tls.key" in operator.conditions["Stalled"]["message"]
    put_secret(api, secret_values(authority))
    assert "apply StatefulSet demo" in operator.reconcile()
    assert operator.conditions["Stalled"]["status"] == "False"
    template = api.stateful_set["spec"]["template"]
    (volume,) = [it for it in template["spec"]["volumes"] if it["name"] == "certificates"]
    assert volume["secret"]["secretName"] == "demo-tls"
    assert [it["key"] for it in volume["secret"]["items"]] == ["tls.crt", "tls.key"]


def test_missing_permission_to_read_the_secret_is_reported() -> None:
    class ApiWithoutSecrets(FakeApi):
        async def get(self, kind: Any, namespace: str | None, name: str) -> Any:
            if kind is SECRET:
                raise ApiError(403, "no")
            return await super().get(kind, namespace, name)

    api = ApiWithoutSecrets()
    api.put_cluster({**SPEC, "listeners": [SAFE], "tls": REF})
    operator = Operator(api)
    operator.reconcile()
    assert (
        "the operator is not allowed to read Secret demo-tls: install its chart with rbac.secrets=true"
        in (operator.conditions["Stalled"]["message"])
    )


def test_renewed_secret_restarts_no_broker(api: FakeApi, operator: Operator, authority: CertificateAuthority) -> None:
    put_secret(api, secret_values(authority))
    operator.reconcile()
    api.run_pods()  # none is ready, so each could be restarted
    operator.reconcile()
    assert operator.reconcile() == []
    create_server_certificate(authority, "next", ["DNS:localhost"])
    put_secret(api, secret_values(authority, "next"))
    assert not [it for it in operator.reconcile() if "Pod" in it]
    renewed = [message for reason, message in api.events if reason == "CertificateChanged"]
    assert len(renewed) == 1 and renewed[0].startswith("Secret demo-tls is renewed, valid until ")
    assert operator.reconcile() == []
    assert api.of("Cluster")["demo"]["status"]["certificate"]["notAfter"] in renewed[0]


def test_brokers_are_not_changed_while_the_secret_is_invalid(
    api: FakeApi, operator: Operator, authority: CertificateAuthority
) -> None:
    put_secret(api, secret_values(authority))
    operator.reconcile()
    api.run_pods()
    create_server_certificate(authority, "again", ["DNS:localhost"])
    put_secret(api, {**secret_values(authority), "tls.crt": secret_values(authority, "again")["tls.crt"]})
    before = api.stateful_set["spec"]["template"]["metadata"]["annotations"]
    assert not [it for it in operator.reconcile() if "Pod" in it or "StatefulSet" in it]
    assert operator.conditions["Stalled"]["reason"] == "CertificateUnusable"
    assert "has a key that does not belong to its certificate" in operator.conditions["Stalled"]["message"]
    assert api.stateful_set["spec"]["template"]["metadata"]["annotations"] == before
    put_secret(api, {**secret_values(authority), "tls.key": secret_values(authority, "again")["tls.key"]})
    assert not [it for it in operator.reconcile() if "Pod" in it], "a restarted broker would not start again"
    assert "has a key that does not belong to its certificate" in operator.conditions["Stalled"]["message"]
    del api.objects["Secret", "events", "demo-tls"]
    operator.reconcile()
    assert "Secret demo-tls does not exist" in operator.conditions["Stalled"]["message"]
    put_secret(api, secret_values(authority))
    operator.reconcile()
    assert operator.conditions["Stalled"]["status"] == "False"
