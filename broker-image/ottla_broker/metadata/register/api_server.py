"""Where the API server of Kubernetes is, and what to show it: inside a pod the service account's, elsewhere a kubeconfig's.

Everything that is rotated under a running broker (projected tokens, the bundle of authorities) is read anew from its file when it is used.
"""

import base64
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ottla_broker.metadata.register import RegisterError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class CredentialSource:
    """Some bytes: given, or in a file that may change."""

    given: bytes | None = None
    file: Path | None = None

    def read(self) -> bytes | None:
        """None when there are none. RegisterError when the file cannot be read."""
        if self.file is None:
            return self.given
        try:
            return self.file.read_bytes()
        except OSError as error:
            raise RegisterError(f"{self.file} cannot be read: {error.strerror or error}") from error


@dataclass(slots=True)
class ApiServer:
    """`url` without a slash at its end. `certificate` and `key` are a client's, in PEM. `verify=False` trusts whoever answers."""

    url: str
    authority: CredentialSource = CredentialSource()
    token: CredentialSource = CredentialSource()
    certificate: CredentialSource = CredentialSource()
    key: CredentialSource = CredentialSource()
    verify: bool = True
    server_name: str | None = None
    _trust: tuple[tuple[bytes | None, ...], ssl.SSLContext] | None = field(default=None, repr=False)

    def headers(self) -> dict[str, str]:
        token = self.token.read()
        return {"Authorization": f"Bearer {token.decode().strip()}"} if token else {}

    def trust(self) -> ssl.SSLContext:
        """Made anew only when a file of it changed, so that connections are kept. RegisterError when what it is made of is no PEM."""
        read = (self.authority.read(), self.certificate.read(), self.key.read())
        if self._trust is None or self._trust[0] != read:
            try:
                self._trust = (read, _context(*read, verify=self.verify))
            except (ssl.SSLError, ValueError) as error:
                raise RegisterError(
                    f"the certificates for the API server at {self.url} are unusable: {error}"
                ) from error
        return self._trust[1]

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "ApiServer":
        """A pod's own API server; outside of one, that of KUBECONFIG's current context. RegisterError without either."""
        if host := environment.get("KUBERNETES_SERVICE_HOST"):
            host = f"[{host}]" if ":" in host else host
            url = f"https://{host}:{environment.get('KUBERNETES_SERVICE_PORT', '443')}"
            return cls(
                url, CredentialSource(file=SERVICE_ACCOUNT / "ca.crt"), CredentialSource(file=SERVICE_ACCOUNT / "token")
            )
        if paths := environment.get("KUBECONFIG"):
            return _of_kubeconfig([Path(path) for path in paths.split(os.pathsep) if path])
        raise RegisterError(
            "register=kubernetes:… needs an API server: inside a pod Kubernetes names it, elsewhere set KUBECONFIG to a kubeconfig file"
        )


def _context(authority: bytes | None, certificate: bytes | None, key: bytes | None, *, verify: bool) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate and key:
        with tempfile.NamedTemporaryFile(
            prefix="ottla-"
        ) as pem:  # only its owner may read it; OpenSSL takes files alone
            pem.write(certificate.rstrip() + b"\n" + key)
            pem.flush()
            context.load_cert_chain(pem.name)
    return context


def _of_kubeconfig(paths: list[Path]) -> ApiServer:
    """As kubectl does with several files: of each name, the first one counts."""
    files = [(path.parent, _loaded(path)) for path in paths if path.exists()]
    if not files:
        raise RegisterError(f"KUBECONFIG names {os.pathsep.join(map(str, paths))}, and there is no such file")
    current = next((file["current-context"] for _, file in files if file.get("current-context")), None)
    if current is None:
        raise RegisterError("the kubeconfig has no current-context: `kubectl config use-context` sets one")
    _, context = _named(files, "contexts", "context", current)
    place, cluster = _named(files, "clusters", "cluster", context.get("cluster"))
    home, user = _named(files, "users", "user", context["user"]) if context.get("user") else (place, {})
    if not cluster.get("server"):
        raise RegisterError(f"the kubeconfig's cluster {context.get('cluster')!r} names no server")
    if foreign := [kind for kind in ("exec", "auth-provider", "username") if kind in user]:
        raise RegisterError(f"the kubeconfig's user is by {foreign[0]}; a broker takes a token or a client certificate")
    return ApiServer(
        str(cluster["server"]).rstrip("/"),
        authority=_bytes(place, cluster, "certificate-authority"),
        token=CredentialSource(file=home / user["tokenFile"])
        if user.get("tokenFile")
        else CredentialSource(_text(user.get("token"))),
        certificate=_bytes(home, user, "client-certificate"),
        key=_bytes(home, user, "client-key"),
        verify=not cluster.get("insecure-skip-tls-verify", False),
        server_name=cluster.get("tls-server-name"),
    )


def _loaded(path: Path) -> dict[str, Any]:
    try:
        import yaml  # not among a broker's own requirements: pods have no kubeconfig
    except ImportError as error:
        raise RegisterError("to read a kubeconfig, PyYAML must be installed: pip install 'ottla[cli]'") from error
    try:
        loaded = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise RegisterError(f"the kubeconfig {path} cannot be read: {error}") from error
    if not isinstance(loaded, dict):
        raise RegisterError(f"{path} is no kubeconfig")
    return loaded


def _named(
    files: list[tuple[Path, dict[str, Any]]], many: str, one: str, name: str | None
) -> tuple[Path, dict[str, Any]]:
    for place, file in files:
        for entry in file.get(many) or ():
            if entry.get("name") == name:
                return place, entry.get(one) or {}
    raise RegisterError(f"the kubeconfig has no {one} {name!r}")


def _bytes(place: Path, entry: dict[str, Any], name: str) -> CredentialSource:
    if data := entry.get(f"{name}-data"):
        try:
            return CredentialSource(base64.b64decode(data))
        except ValueError as error:
            raise RegisterError(f"the kubeconfig's {name}-data is no base64: {error}") from error
    return CredentialSource(file=place / entry[name]) if entry.get(name) else CredentialSource()


def _text(value: str | None) -> bytes | None:
    return value.encode() if value else None
