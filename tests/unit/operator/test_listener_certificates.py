"""Certificates of a Cluster's listeners: from a Secret to what brokers are started with, and what is said when they cannot be used."""

import base64
import stat
import time
from pathlib import Path, PurePath
from typing import Any

import pytest

from ottla_broker.config import Config
from ottla_operator.kube.api import ApiError
from ottla_operator.kube.kinds import SECRET
from ottla_operator.local.documents import InvalidFiles, read_files
from ottla_operator.local.home import write_certificates
from ottla_operator.plan import listener_certificates as tls
from ottla_operator.plan.broker_processes import plan_broker_processes, unsupported_fields
from ottla_operator.plan.objects.services import in_cluster_bootstrap
from ottla_operator.plan.source_credentials import ObservedSecret, SecretUnusable
from ottla_operator.resources.cluster import Cluster
from tests.kube.certificates import CertificateAuthority, create_certificate_authority, create_server_certificate
from tests.unit.operator import samples
from tests.unit.operator.api_server import FakeApi
from tests.unit.operator.test_cluster_reconciler import SPEC, Operator

PLAIN, SAFE = {"name": "plain", "port": 9092}, {"name": "safe", "port": 9094, "tls": True}
MUTUAL = {**SAFE, "authentication": "TLS"}
REF = {"secretRef": {"name": "demo-tls"}}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return create_certificate_authority(tmp_path_factory.mktemp("tls") / "authority", ["127.0.0.1"], ["localhost"])


def values(made: CertificateAuthority, name: str = "tls") -> dict[str, str]:
    files = {"tls.crt": f"{name}.crt", "tls.key": f"{name}.key", "ca.crt": "ca.crt"}
    return {key: (made.folder / file).read_text() for key, file in files.items()}


def cluster(*listeners: dict[str, Any], name: str = "demo", **spec: Any) -> Cluster:
    return Cluster.parse(samples.cluster(name, listeners=list(listeners), tls=REF, **spec))


def found(it: Cluster, secret: dict[str, str]) -> tls.ListenerCertificates:
    made = tls.read_certificates(it, {"demo-tls": ObservedSecret(secret, "1")})
    assert made is not None
    return made


def test_the_digest_changes_with_what_brokers_show_and_trust(made: CertificateAuthority) -> None:
    create_server_certificate(made, "renewed", ["DNS:localhost"])
    before = found(cluster(SAFE), values(made))
    assert found(cluster(SAFE), {**values(made), "ca.crt": "another", "else": "x"}).digest == before.digest
    assert found(cluster(SAFE), values(made, "renewed")).digest != before.digest
    asking = found(cluster(MUTUAL), values(made))
    assert found(cluster(MUTUAL), {**values(made), "ca.crt": "another"}).digest != asking.digest
    assert before.authorities == "", "where no clients are asked, nobody is trusted"
    assert "PRIVATE" not in repr(before)
    assert tls.read_certificates(cluster(PLAIN), {}) is None


def test_what_is_missing_is_named(made: CertificateAuthority) -> None:
    with pytest.raises(SecretUnusable, match=r"^spec.tls: Secret demo-tls does not exist$"):
        tls.read_certificates(cluster(SAFE), {})
    with pytest.raises(SecretUnusable, match=r"^spec.tls: Secret demo-tls has no tls.key; it has: tls.crt$"):
        found(cluster(SAFE), {"tls.crt": "x"})
    with pytest.raises(SecretUnusable, match=r"Secret demo-tls has no ca.crt; it has: tls.crt, tls.key$"):
        found(cluster(MUTUAL), {"tls.crt": "x", "tls.key": "x"})


def test_what_clients_would_refuse_is_told_before_any_broker_has_it(made: CertificateAuthority) -> None:
    create_server_certificate(made, "other", ["DNS:localhost"])
    good = found(cluster(SAFE), values(made))
    tls.check_certificates(good, time.time())
    with pytest.raises(SecretUnusable, match=r"Secret demo-tls: clients would reject tls.crt: it expired on "):
        tls.check_certificates(good, time.time() + 90 * 86_400)
    tls.check_certificates(good, None)
    with pytest.raises(SecretUnusable, match="it is not valid before "):
        tls.check_certificates(good, time.time() - 90 * 86_400)
    wrong = {**values(made), "tls.key": values(made, "other")["tls.key"]}
    with pytest.raises(SecretUnusable, match=r"tls.crt with tls.key has a key that does not belong to its certificate"):
        tls.check_certificates(found(cluster(SAFE), wrong), time.time())
    with pytest.raises(SecretUnusable, match=r"tls.crt with tls.key has no certificate in PEM"):
        tls.check_certificates(found(cluster(SAFE), {"tls.crt": "x", "tls.key": "x"}), time.time())


def test_brokers_of_one_machine_read_files_that_the_digest_names(made: CertificateAuthority, tmp_path: Path) -> None:
    wanted = cluster(PLAIN, MUTUAL, replicas=2)
    certificates = found(wanted, values(made))
    folder = write_certificates(tmp_path, certificates)
    assert folder.name == certificates.digest
    assert stat.S_IMODE((folder / "keystore.pem").stat().st_mode) == 0o600
    assert write_certificates(tmp_path, certificates) == folder
    first, second = plan_broker_processes([wanted], tmp_path, certificates={"demo": folder})
    config = Config.of(dict(first.settings))
    assert config.security_protocol("SAFE") == "SSL"
    assert config.inter_broker_listener == "PLAIN"
    assert config.tls("SAFE").client_auth == "required"
    assert config.tls("SAFE").load()
    assert (first.address, first.tls_address) == ("127.0.0.1:9092", "127.0.0.1:9094")
    assert (second.address, second.tls_address) == ("127.0.0.1:9093", "127.0.0.1:9095")
    assert not unsupported_fields(wanted)


def test_brokers_need_a_listener_in_the_open_among_themselves(made: CertificateAuthority) -> None:
    (broker,) = plan_broker_processes([cluster(SAFE)], PurePath("/state"), certificates={"demo": PurePath("/c")})
    assert broker.settings["listeners"] == "SAFE://127.0.0.1:9094,INTER_BROKER://127.0.0.1:9095"
    assert broker.settings["inter.broker.listener.name"] == "INTER_BROKER"
    assert broker.address == "127.0.0.1:9095"


def test_whoever_speaks_no_tls_is_sent_to_a_listener_without() -> None:
    def of(*listeners: dict[str, Any]) -> Cluster:
        wanted = samples.cluster(listeners=list(listeners), tls=REF)
        return Cluster.parse({**wanted, "metadata": {"name": "demo", "namespace": "events"}})

    assert in_cluster_bootstrap(of(SAFE, {**PLAIN, "type": "NodePort"})) == "demo-plain-bootstrap.events.svc:9092"
    assert in_cluster_bootstrap(of(SAFE)) == ""
    assert in_cluster_bootstrap(of(PLAIN, SAFE), tls=True) == "demo-safe-bootstrap.events.svc:9094"


def test_files_without_the_secret_are_refused_with_the_line(made: CertificateAuthority, tmp_path: Path) -> None:
    file = tmp_path / "demo.yaml"
    text = (
        "apiVersion: ottla.dev/v1alpha1\nkind: Cluster\nmetadata: {name: demo}\nspec:\n  replicas: 1\n"
        "  listeners: [{name: safe, port: 9094, tls: true}]\n  tls:\n    secretRef: {name: demo-tls}\n"
    )
    file.write_text(text)
    with pytest.raises(InvalidFiles) as caught:
        read_files([file])
    assert caught.value.lines == (f"{file}:8: spec.tls: Secret demo-tls does not exist",)
    secret = {key: base64.b64encode(value.encode()).decode() for key, value in values(made).items()}
    file.write_text(
        f"{text}---\napiVersion: v1\nkind: Secret\nmetadata: {{name: demo-tls}}\ndata: {str(secret).replace(chr(39), chr(34))}\n"
    )
    assert len(read_files([file])) == 2


# --- on Kubernetes


def put(api: FakeApi, secret: dict[str, str]) -> None:
    data = {key: base64.b64encode(value.encode()).decode() for key, value in secret.items()}
    api.put(SECRET, {"metadata": {"name": "demo-tls", "namespace": "events"}, "data": data})


@pytest.fixture
def api() -> FakeApi:
    made = FakeApi()
    made.cluster({**SPEC, "listeners": [PLAIN, SAFE], "tls": REF})
    return made


@pytest.fixture
def operator(api: FakeApi) -> Operator:
    return Operator(api)


def test_nothing_is_started_before_the_secret_is_there(
    api: FakeApi, operator: Operator, made: CertificateAuthority
) -> None:
    assert operator.reconcile() == ["status Cluster demo"]
    assert operator.conditions["Stalled"]["status"] == "True"
    assert operator.conditions["Stalled"]["reason"] == "CertificateUnusable"
    assert operator.conditions["Stalled"]["message"] == "spec.tls: Secret demo-tls does not exist"
    put(api, {"tls.crt": values(made)["tls.crt"]})
    operator.reconcile()
    assert "has no tls.key" in operator.conditions["Stalled"]["message"]
    put(api, values(made))
    assert "apply StatefulSet demo" in operator.reconcile()
    assert operator.conditions["Stalled"]["status"] == "False"
    template = api.stateful_set["spec"]["template"]
    (volume,) = [it for it in template["spec"]["volumes"] if it["name"] == "certificates"]
    assert volume["secret"]["secretName"] == "demo-tls"
    assert [it["key"] for it in volume["secret"]["items"]] == ["tls.crt", "tls.key"]


def test_a_secret_that_may_not_be_read_is_told(api: FakeApi, operator: Operator, made: CertificateAuthority) -> None:
    class Forbidding(FakeApi):
        async def get(self, kind: Any, namespace: str | None, name: str) -> Any:
            if kind is SECRET:
                raise ApiError(403, "no")
            return await super().get(kind, namespace, name)

    api = Forbidding()
    api.cluster({**SPEC, "listeners": [SAFE], "tls": REF})
    operator = Operator(api)
    operator.reconcile()
    assert (
        "the operator may not read Secret demo-tls: install its chart with rbac.secrets=true"
        in (operator.conditions["Stalled"]["message"])
    )


def test_a_renewed_secret_restarts_brokers_and_says_why(
    api: FakeApi, operator: Operator, made: CertificateAuthority
) -> None:
    put(api, values(made))
    operator.reconcile()
    api.run_pods()  # none is ready: each may be restarted without asking anybody
    operator.reconcile()
    assert operator.reconcile() == []
    create_server_certificate(made, "next", ["DNS:localhost"])
    put(api, values(made, "next"))
    assert "delete Pod demo-1" in operator.reconcile()
    assert operator.conditions["Ready"]["reason"] == "RollingRestart"
    assert "certificates of Secret demo-tls" in operator.conditions["Ready"]["message"]
    api.run_pods()
    assert "delete Pod demo-2" in operator.reconcile()
    api.run_pods()
    operator.reconcile()
    api.run_pods()
    assert not [it for it in operator.reconcile() if "Pod" in it]


def test_brokers_stay_as_they_are_while_the_secret_is_wrong(
    api: FakeApi, operator: Operator, made: CertificateAuthority
) -> None:
    put(api, values(made))
    operator.reconcile()
    api.run_pods()
    create_server_certificate(made, "again", ["DNS:localhost"])
    put(api, {**values(made), "tls.crt": values(made, "again")["tls.crt"]})
    before = api.stateful_set["spec"]["template"]["metadata"]["annotations"]
    assert not [it for it in operator.reconcile() if "Pod" in it or "StatefulSet" in it]
    assert operator.conditions["Stalled"]["reason"] == "CertificateUnusable"
    assert "has a key that does not belong to its certificate" in operator.conditions["Stalled"]["message"]
    assert api.stateful_set["spec"]["template"]["metadata"]["annotations"] == before
    put(api, {**values(made), "tls.key": values(made, "again")["tls.key"]})
    assert not [it for it in operator.reconcile() if "Pod" in it], "whoever falls now would not come back"
    assert "has a key that does not belong to its certificate" in operator.conditions["Stalled"]["message"]
    del api.objects["Secret", "events", "demo-tls"]
    operator.reconcile()
    assert "Secret demo-tls does not exist" in operator.conditions["Stalled"]["message"]
    put(api, values(made))
    operator.reconcile()
    assert operator.conditions["Stalled"]["status"] == "False"
