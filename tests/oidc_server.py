"""A real OpenID Connect server (npm's oidc-provider), which gives OAuth access tokens to
clients.
"""

import json
import shutil
import ssl
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.daemons import Daemon
from tests.go_programs import cache_folder
from tests.jars import skip_or_fail_in_ci
from tests.kube.certificates import CertificateAuthority
from tests.locks import file_lock
from tests.ports import free_port
from tests.waiting import eventually

SOURCE = Path(__file__).parent / "clients" / "oidc"
CLIENTS = {"alice": "alice-secret", "bob": "bob-secret"}
CONSOLE = ("console", "console-secret")
"""Id and secret of the client as which a console logs in users."""
AUDIENCE = "kafka"
LOGIN_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@dataclass
class OidcServer:
    """`keys_file`: a JSON Web Key Set with the private keys that sign. `authority`: of the server's
    certificate; None without TLS.
    """

    url: str
    keys_file: Path
    daemon: Daemon
    authority: CertificateAuthority | None = None

    @property
    def jwks_url(self) -> str:
        return f"{self.url}/jwks"

    @property
    def token_url(self) -> str:
        return f"{self.url}/token"

    def start(self) -> None:
        self.daemon.start()
        eventually(self._answers, message="the OIDC server answers")

    def restart_with_keys(self, keys: list[dict[str, Any]]) -> None:
        self.daemon.stop()
        self.keys_file.write_text(json.dumps({"keys": keys}))
        self.start()

    def access_token(self, client: str) -> tuple[str, float]:
        """A new token of a client, and its lifetime in seconds."""
        form = {
            "grant_type": "client_credentials",
            "client_id": client,
            "client_secret": CLIENTS[client],
            "scope": "produce consume",
        }
        request = urllib.request.Request(self.token_url, urllib.parse.urlencode(form).encode())
        with urllib.request.urlopen(request, timeout=10) as response:
            found = json.loads(response.read())
        return found["access_token"], float(found["expires_in"])

    def _tls_context(self) -> ssl.SSLContext | None:
        return None if self.authority is None else ssl.create_default_context(cafile=str(self.authority.certificate))

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(self.jwks_url, timeout=5, context=self._tls_context()) as response:
                return bool(json.loads(response.read())["keys"])
        except OSError:
            return False


def new_key(key_id: str) -> dict[str, Any]:
    """A private key that signs tokens, as a JSON Web Key."""
    import jwt
    from cryptography.hazmat.primitives.asymmetric import rsa

    private = rsa.generate_private_key(65537, 2048)
    return {**jwt.algorithms.RSAAlgorithm.to_jwk(private, as_dict=True), "kid": key_id, "alg": "RS256", "use": "sig"}


@contextmanager
def run_oidc_server(
    folder: Path,
    keys: list[dict[str, Any]],
    redirect_uri: str = "",
    host: str = "127.0.0.1",
    authority: CertificateAuthority | None = None,
) -> Iterator[OidcServer]:
    """`redirect_uri`: where users of the client CONSOLE come back after their login. `authority`:
    has a server certificate for `host`; None: without TLS.
    """
    node = shutil.which("node") or skip_or_fail_in_ci("no `node` on PATH to run an OIDC server with")
    place = install_server()
    keys_file = folder / "keys.json"
    keys_file.write_text(json.dumps({"keys": keys}))
    url = f"{'http' if authority is None else 'https'}://{host}:{free_port()}"
    certificate = () if authority is None else (authority.server_certificate, authority.server_key)
    daemon = Daemon([node, place / "server.mjs", url, keys_file, redirect_uri, *certificate], folder / "oidc.log")
    server = OidcServer(url, keys_file, daemon, authority)
    try:
        server.start()
        yield server
    finally:
        daemon.stop()


def install_server() -> Path:
    """The folder with the server and its packages, which npm installs once."""
    npm = shutil.which("npm") or skip_or_fail_in_ci("no `npm` on PATH to install an OIDC server with")
    place = cache_folder(SOURCE, "oidc", "server")
    place.mkdir(parents=True, exist_ok=True)
    with file_lock(place / "install.lock"):
        if not (place / "installed").exists():
            shutil.copytree(SOURCE, place, dirs_exist_ok=True)
            done = subprocess.run(
                [npm, "install", "--no-audit", "--no-fund"],
                cwd=place,
                capture_output=True,
                text=True,
                timeout=180,
                check=False,
            )
            if done.returncode != 0:
                skip_or_fail_in_ci(f"npm cannot install oidc-provider: {done.stderr[-300:]}")
            (place / "installed").touch()
    return place


def listener_settings(bootstrap: str, login: str, oidc: OidcServer) -> dict[str, str]:
    """Settings of a broker that takes the server's tokens at `login`. Clients of `bootstrap` have
    no login and are super users.
    """
    return {
        "listeners": f"PLAINTEXT://{bootstrap},LOGIN://{login}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.login.oauthbearer.sasl.jaas.config": f"{LOGIN_MODULE} required;",
        "sasl.oauthbearer.jwks.endpoint.url": oidc.jwks_url,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "authorizer.class.name": "StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
