"""Keys and certificates of a listener are checked when the broker starts."""

import asyncio
import ssl
import subprocess
from pathlib import Path

import pytest

from ottla_broker.__main__ import StartError, find_http_tls
from ottla_broker.config.description import describe_broker
from ottla_broker.config.listener_security import listener_tls
from ottla_broker.listener_certificates import ListenError
from ottla_broker.wire.listener_tls import CLIENT_AUTH_NONE
from tests.kube.certificates import CertificateAuthority, create_client_certificate, create_server_certificate
from tests.unit.api.brokers import create_server
from tests.unit.server.certificates import tls_broker
from tests.unit.server.connections import capture_log

Settings = dict[str, str]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"ssl.keystore.location": "/nowhere/x.pem"},
            "ssl.keystore.location=/nowhere/x.pem: no such file or directory",
        ),
        ({"ssl.keystore.location": ""}, "set ssl.keystore.location, or ssl.keystore.certificate.chain"),
        ({"ssl.keystore.location": "CA"}, "ca.crt has no private key in PEM"),
        ({"ssl.keystore.location": "KEY"}, "tls.key has no certificate in PEM"),
        ({"ssl.keystore.location": "JKS"}, "x.jks is a Java keystore (JKS or PKCS12); allowed: PEM"),
        ({"ssl.keystore.location": "OTHER"}, "other.pem has a key that does not belong to its certificate"),
        ({"ssl.keystore.location": "LOCKED"}, "locked.pem has an encrypted key, and no password is set for it"),
        ({"ssl.keystore.location": "LOCKED", "ssl.key.password": "x"}, "the password does not decrypt it"),
        (
            {"ssl.keystore.location": "CLIENT"},
            "is not accepted as a server certificate: unsuitable certificate purpose",
        ),
        ({"ssl.keystore.key": "x"}, "set either ssl.keystore.location or ssl.keystore.certificate.chain, not both"),
        ({"ssl.client.auth": "required"}, "ssl.client.auth=required needs ssl.truststore.location or"),
        ({"ssl.client.auth": "required", "ssl.truststore.location": "KEY"}, "tls.key has no certificate in PEM"),
        (
            {"ssl.client.auth": "required", "ssl.truststore.location": "/no"},
            "ssl.truststore.location=/no: no such file",
        ),
    ],
)
def test_invalid_certificates_are_reported_at_start(
    tmp_path: Path, authority: CertificateAuthority, keystore: Path, settings: Settings, sentence: str
) -> None:
    files = {"CA": authority.certificate, "KEY": authority.server_key, **write_invalid_files(tmp_path, authority)}
    given = {name: str(files.get(value, value)) for name, value in settings.items()}

    async def bind() -> None:
        broker = tls_broker(tmp_path, keystore, **given)
        create_server(broker).bind()

    with pytest.raises(ListenError) as raised:
        asyncio.run(bind())
    (line,) = str(raised.value).splitlines()
    assert line.startswith("listeners=SSL://127.0.0.1:0: ")
    assert sentence in line


@pytest.mark.parametrize("name", ["PLAINTEXT", "NONE"])
def test_http_takes_certificates_only_from_a_listener_with_tls(tmp_path: Path, keystore: Path, name: str) -> None:
    async def find() -> None:
        broker = tls_broker(tmp_path, keystore, **{"http.security.listener": name})
        server = create_server(broker)
        server.bind()
        try:
            find_http_tls(broker.config, server, CLIENT_AUTH_NONE)
        finally:
            await server.close()

    expected = f"http.security.listener={name} is not a listener with TLS; listeners with TLS: SSL"
    with pytest.raises(StartError, match=f"^{expected}$"):
        asyncio.run(find())


def write_invalid_files(folder: Path, authority: CertificateAuthority) -> dict[str, Path]:
    """Returns their paths by the names that settings of the tests have for them."""
    _, other_key = create_server_certificate(authority, "other", ["DNS:x"])
    client, client_key = create_client_certificate(authority, "a-client")
    contents = {
        "JKS": ("x.jks", b"\xfe\xed\xfe\xed\0\0\0\2"),
        "OTHER": ("other.pem", authority.server_certificate.read_bytes() + other_key.read_bytes()),
        "LOCKED": ("locked.pem", authority.server_certificate.read_bytes() + encrypt_key(authority.server_key)),
        "CLIENT": ("client.pem", client.read_bytes() + client_key.read_bytes()),
    }
    for name, content in contents.values():
        (folder / name).write_bytes(content)
    return {key: folder / name for key, (name, _) in contents.items()}


def encrypt_key(key: Path) -> bytes:
    return subprocess.run(
        ["openssl", "pkcs8", "-topk8", "-in", key, "-passout", "pass:secret"], capture_output=True, check=True
    ).stdout


def test_key_may_have_a_password_and_an_expired_certificate_is_logged(
    tmp_path: Path, authority: CertificateAuthority, keystore: Path
) -> None:
    (tmp_path / "locked.pem").write_bytes(authority.server_certificate.read_bytes() + encrypt_key(authority.server_key))

    async def bind() -> list[str]:
        broker = tls_broker(
            tmp_path, keystore, **{"ssl.keystore.location": str(tmp_path / "locked.pem"), "ssl.key.password": "secret"}
        )
        months_later = broker.runtime.now_ms() + 90 * 86_400_000
        lines = capture_log()
        create_server(broker).bind()
        assert lines() == []
        broker.runtime.now_ms = lambda: months_later
        create_server(broker).bind()
        return lines()

    (line,) = asyncio.run(bind())
    assert "clients refuse the certificate of ssl.keystore.location=" in line
    assert "locked.pem: it expired on " in line


def test_listener_may_have_tls_settings_of_its_own_and_inline_certificates(
    tmp_path: Path, authority: CertificateAuthority, keystore: Path
) -> None:
    broker = tls_broker(
        tmp_path,
        keystore,
        **{
            "listener.name.ssl.ssl.client.auth": "requested",
            "ssl.truststore.certificates": authority.certificate.read_text(),
        },
    )
    assert listener_tls(broker.config, "SSL").client_auth == "requested"
    assert listener_tls(broker.config, "PLAINTEXT").client_auth == "none"
    assert listener_tls(broker.config, "SSL").load()[0].verify_mode is ssl.CERT_OPTIONAL
    entry = next(it for it in describe_broker(broker.config) if it.name == "ssl.truststore.certificates")
    assert entry.value is None
