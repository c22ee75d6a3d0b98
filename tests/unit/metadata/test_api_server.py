"""How a broker finds the API server of Kubernetes, and what it shows there."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.metadata.register import RegisterError
from ottla_broker.metadata.register import api_server as module
from ottla_broker.metadata.register.api_server import ApiServer


def kubeconfig(path: Path, *, user: dict[str, Any] | None = None, **cluster: Any) -> dict[str, str]:
    path.write_text(
        json.dumps(
            {
                "current-context": "here",
                "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": "https://api:6443/"} | cluster}],
                "users": [{"name": "u", "user": {"token": "secret"} if user is None else user}],
            }
        )
    )
    return {"KUBECONFIG": str(path)}


def test_a_pod_finds_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SERVICE_ACCOUNT", tmp_path)
    pod = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443", "KUBECONFIG": "elsewhere"}
    server = ApiServer.from_environment(pod)
    assert server.url == "https://[fd00::1]:6443"
    with pytest.raises(RegisterError, match="token cannot be read: No such file"):
        server.headers()
    (tmp_path / "token").write_text("first\n")
    assert server.headers() == {"Authorization": "Bearer first"}
    (tmp_path / "token").write_text("second\n")
    assert server.headers() == {"Authorization": "Bearer second"}


def test_without_a_pod_or_kubeconfig_it_says_what_to_do() -> None:
    with pytest.raises(RegisterError, match="elsewhere set KUBECONFIG"):
        ApiServer.from_environment({})


def test_a_kubeconfig_is_understood(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from a file")
    server = ApiServer.from_environment(
        kubeconfig(tmp_path / "one", user={"tokenFile": "token"}, **{"tls-server-name": "api"})
    )
    assert (server.url, server.server_name) == ("https://api:6443", "api")
    assert server.headers() == {"Authorization": "Bearer from a file"}


def test_of_several_kubeconfigs_the_first_of_a_name_counts(tmp_path: Path) -> None:
    kubeconfig(tmp_path / "one", server="https://one")
    kubeconfig(tmp_path / "two", server="https://two")
    assert (
        ApiServer.from_environment({"KUBECONFIG": f"{tmp_path}/none:{tmp_path}/one:{tmp_path}/two"}).url
        == "https://one"
    )


def test_a_client_shows_its_certificate(tmp_path: Path) -> None:
    user = {"client-certificate-data": base64.b64encode(b"no pem").decode(), "client-key-data": "bm8="}
    server = ApiServer.from_environment(kubeconfig(tmp_path / "one", user=user))
    assert server.headers() == {}
    with pytest.raises(RegisterError, match="certificates for the API server at https://api:6443 are unusable"):
        server.trust()


def test_trust_is_made_anew_when_a_file_of_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bytes | None] = []
    monkeypatch.setattr(module, "_context", lambda authority, *_, verify: made.append(authority))
    (tmp_path / "ca.crt").write_bytes(b"old")
    server = ApiServer.from_environment(kubeconfig(tmp_path / "one", user=None, **{"certificate-authority": "ca.crt"}))
    server.trust()
    server.trust()
    (tmp_path / "ca.crt").write_bytes(b"new")
    server.trust()
    assert made == [b"old", b"new"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "cannot be read"),
        ("[]", "is no kubeconfig"),
        ("{}", "no current-context"),
        ("current-context: here", "no context 'here'"),
        ("{current-context: a, contexts: [{name: a, context: {cluster: b}}]}", "no cluster 'b'"),
        (
            "{current-context: a, contexts: [{name: a, context: {cluster: b}}], clusters: [{name: b}]}",
            "cluster 'b' names no server",
        ),
    ],
)
def test_what_is_wrong_with_a_kubeconfig_is_said(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(RegisterError, match=sentence):
        ApiServer.from_environment({"KUBECONFIG": str(path)})


def test_a_kubeconfig_that_needs_another_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RegisterError, match="user is by exec; a broker takes a token or a client certificate"):
        ApiServer.from_environment(kubeconfig(tmp_path / "one", user={"exec": {"command": "cloud"}}))
