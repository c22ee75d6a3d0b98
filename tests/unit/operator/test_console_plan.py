"""The console of a Cluster: from its resource and Secrets to settings that a broker starts with."""

import base64
import stat
from pathlib import Path, PurePath
from typing import Any

import pytest

from ottla_broker.config import Config
from ottla_broker.console.login_methods import find_login_methods
from ottla_operator.kube.kinds import SECRET
from ottla_operator.local.documents import InvalidFiles, read_files
from ottla_operator.local.home import write_console_files
from ottla_operator.plan.broker_processes import plan_broker_processes
from ottla_operator.plan.console import console_files, console_settings, secret_names
from ottla_operator.plan.refused_settings import find_refused_settings
from ottla_operator.plan.source_credentials import ObservedSecret, SecretUnusable
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.validation import validate_resource
from tests.unit.operator import samples
from tests.unit.operator.api_server import FakeApi
from tests.unit.operator.cluster_operator import SPEC, Operator

ISSUER = "https://login.example.com"
SCRAM = {"name": "clients", "port": 9092, "authentication": "SCRAM"}
TLS = {"name": "safe", "port": 9093, "authentication": "TLS", "tls": True}
OIDC: dict[str, Any] = {"issuer": ISSUER, "clientId": "ottla"}
WHOLE: dict[str, Any] = {
    **OIDC,
    "clientSecretFrom": {"name": "oidc", "key": "password"},
    "caSecretRef": {"name": "login-ca"},
    "scope": "openid email",
    "userClaim": "email",
    "redirectUri": "https://console.example.com/login/oidc",
}
SECRETS = {"oidc": {"password": "s3cret"}, "login-ca": {"ca.crt": "-----BEGIN"}}


def cluster(console: dict[str, Any] | None, *listeners: dict[str, Any], **spec: Any) -> Cluster:
    data = samples.cluster(listeners=list(listeners or (SCRAM,)), **spec)
    if console is not None:
        data["spec"]["console"] = console
    return Cluster.parse(data)


def observed(secrets: dict[str, dict[str, str]]) -> dict[str, ObservedSecret]:
    return {name: ObservedSecret(values, "1") for name, values in secrets.items()}


def test_brokers_log_users_in_by_the_provider_that_the_cluster_names(tmp_path: Path) -> None:
    demo = cluster({"oidc": WHOLE})
    (plan,) = plan_broker_processes([demo], tmp_path, logins={"demo": tmp_path})
    write_console_files(tmp_path / "demo", console_files(demo, observed(SECRETS)))
    files = [*(tmp_path / "demo" / "console").iterdir()]
    assert {stat.S_IMODE(it.stat().st_mode) for it in files} == {0o600} and len(files) == 2
    assert "s3cret" not in str(plan.settings)
    module = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="b" password="b";'
    login = {name: module for name in plan.settings if name.endswith("sasl.jaas.config")}
    overrides = [f"{name}={text}" for name, text in {**plan.settings, **login}.items() if "login.version" not in name]
    methods = find_login_methods(Config.load(overrides=overrides))
    assert methods is not None and methods.oidc is not None
    oidc = methods.oidc
    assert (oidc.issuer, oidc.client_id, oidc.client_secret) == (ISSUER, "ottla", "s3cret")
    assert (oidc.scope, oidc.redirect_uri) == (WHOLE["scope"], WHOLE["redirectUri"])
    assert oidc.oauth.rules.subject_claim == "email"
    assert Path(oidc.oauth.endpoint.trusted_certificates).read_text() == "-----BEGIN"


def test_fields_that_are_not_set_leave_brokers_their_defaults() -> None:
    folder = PurePath("/files")
    assert console_settings(cluster(None), folder) == {}
    assert console_settings(cluster({}), folder) == {"console.enable": "true"}
    assert console_settings(cluster({"enabled": False}), folder) == {"console.enable": "false"}
    public = cluster({"oidc": OIDC})
    expected = {"console.enable": "true", "console.oidc.issuer": ISSUER, "console.oidc.client.id": "ottla"}
    assert console_settings(public, folder) == expected
    assert (secret_names(public), console_files(public, {})) == ((), {})


def test_console_of_a_cluster_whose_clients_have_certificates_is_served_only_with_a_provider() -> None:
    for console, port in (({}, None), ({"oidc": OIDC}, 10093), ({"enabled": False}, None)):
        (plan,) = plan_broker_processes([cluster(console, TLS)], PurePath("/state"))
        assert plan.console_port == port, console


@pytest.mark.parametrize(
    ("secrets", "reason"),
    [
        ({}, "spec.console.oidc.clientSecretFrom: Secret oidc does not exist"),
        (SECRETS | {"oidc": {"user": "x"}}, "clientSecretFrom: Secret oidc has no password; it has: user"),
        (SECRETS | {"oidc": {"password": "s3cret\n"}}, "clientSecretFrom: password of Secret oidc contains a line end"),
        (SECRETS | {"login-ca": {}}, "spec.console.oidc.caSecretRef: Secret login-ca has no ca.crt; it has: nothing"),
    ],
)
def test_unusable_secret_is_named_with_its_field(secrets: dict[str, dict[str, str]], reason: str) -> None:
    with pytest.raises(SecretUnusable, match=reason) as raised:
        console_files(cluster({"oidc": WHOLE}), observed(secrets))
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("console", "problem"),
    [
        ({"oidc": {"clientId": "ottla"}}, "spec.console.oidc: 'issuer' is required"),
        ({"oidc": {"issuer": ISSUER}}, "spec.console.oidc: 'clientId' is required"),
        ({"oidc": OIDC | {"issuer": "login.example.com"}}, "spec.console.oidc.issuer"),
        ({"oidc": OIDC | {"issuer": f"{ISSUER}?realm=a"}}, "spec.console.oidc.issuer"),
        ({"oidc": OIDC | {"clientSecret": "s"}}, "spec.console.oidc.clientSecret"),
        ({"oidc": OIDC | {"clientSecretFrom": {"name": "oidc"}}}, "spec.console.oidc.clientSecretFrom: 'key' is req"),
        ({"oidc": OIDC | {"scope": "email"}}, "spec.console.oidc.scope: scope has to contain openid"),
        ({"oidc": OIDC | {"issuer": "http://a", "caSecretRef": {"name": "a"}}}, "spec.console.oidc.caSecretRef"),
        ({"enabled": False, "oidc": OIDC}, "spec.console.oidc: oidc needs the console"),
    ],
)
def test_invalid_field_is_named(console: dict[str, Any], problem: str) -> None:
    assert not validate_resource(samples.cluster(listeners=[SCRAM], console={"oidc": WHOLE}))
    found = [str(it) for it in validate_resource(samples.cluster(listeners=[SCRAM], console=console))]
    assert len(found) == 1 and found[0].startswith(problem), found


def test_console_logins_of_an_open_cluster_are_refused() -> None:
    found = [str(it) for it in validate_resource(samples.cluster(console={"oidc": OIDC}))]
    assert len(found) == 1 and found[0].startswith("spec.console: console.oidc needs a listener with"), found


@pytest.mark.parametrize(
    ("name", "console", "reason"),
    [
        ("console.oidc.issuer", None, "it follows from spec.console.oidc"),
        ("console.enable", {}, "it follows from spec.console"),
        ("sasl.oauthbearer.sub.claim.name", {"oidc": WHOLE}, "it follows from spec.console"),
    ],
)
def test_setting_that_follows_from_the_console_is_refused(
    name: str, console: dict[str, Any] | None, reason: str
) -> None:
    (refused,) = find_refused_settings(cluster(console, config={name: "true"}))
    assert (refused.name, refused.reason) == (name, f"{name} cannot be set here: {reason}")


def test_setting_is_not_refused_if_the_console_field_for_it_is_not_set() -> None:
    assert not find_refused_settings(cluster(None, config={"console.enable": "true"}))
    assert not find_refused_settings(cluster({"oidc": OIDC}, config={"sasl.oauthbearer.sub.claim.name": "email"}))


def test_files_without_the_secret_are_refused_with_the_line(tmp_path: Path) -> None:
    file = tmp_path / "demo.yaml"
    file.write_text(
        "apiVersion: ottla.dev/v1alpha1\nkind: Cluster\nmetadata: {name: demo}\nspec:\n  replicas: 1\n"
        "  listeners: [{name: clients, port: 9092, authentication: SCRAM}]\n  console:\n    oidc:\n"
        f"      {{issuer: '{ISSUER}', clientId: ottla, clientSecretFrom: {{name: oidc, key: a}}}}\n"
    )
    with pytest.raises(InvalidFiles) as raised:
        read_files([file])
    (line,) = raised.value.lines
    assert line.startswith(f"{file}:8: spec.console.oidc.clientSecretFrom: Secret oidc does not exist")
    file.write_text(
        f"{file.read_text()}---\napiVersion: v1\nkind: Secret\nmetadata: {{name: oidc}}\ndata: {{a: YQ==}}\n"
    )
    assert len(read_files([file])) == 2


def test_no_pod_is_created_before_the_secret_exists() -> None:
    api = FakeApi()
    console = {"oidc": {**OIDC, "clientSecretFrom": WHOLE["clientSecretFrom"]}}
    api.put_cluster({**SPEC, "listeners": [SCRAM], "console": console})
    operator = Operator(api)
    operator.reconcile()
    stalled = operator.conditions["Stalled"]
    assert (stalled["status"], stalled["reason"]) == ("True", "ConsoleSecretUnusable")
    assert stalled["message"] == "spec.console.oidc.clientSecretFrom: Secret oidc does not exist"
    data = {"password": base64.b64encode(b"s3cret").decode()}
    api.put(SECRET, {"metadata": {"name": "oidc", "namespace": "events"}, "data": data})
    assert "apply StatefulSet demo" in operator.reconcile()
    assert operator.conditions["Stalled"]["status"] == "False"
