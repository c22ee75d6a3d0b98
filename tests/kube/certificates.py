"""Certificates made by `openssl`: a certificate authority, server and client certificates, and the
key that signs service account tokens.
"""

import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.jars import skip_or_fail_in_ci

VALID_DAYS = "30"
NEW_EC_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True, slots=True)
class CertificateAuthority:
    """Paths of PEM files in `folder`.

    Clients trust `certificate`, servers present `server_certificate` with `server_key`, and the API
    server signs tokens with `service_account_key`.
    """

    folder: Path

    @property
    def certificate(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def private_key(self) -> Path:
        return self.folder / "ca.key"

    @property
    def server_certificate(self) -> Path:
        return self.folder / "tls.crt"

    @property
    def server_key(self) -> Path:
        return self.folder / "tls.key"

    @property
    def service_account_key(self) -> Path:
        return self.folder / "sa.key"

    def write_keystore(self) -> Path:
        """Writes the server's key and certificate to one file, as brokers read them."""
        file = self.folder / "keystore.pem"
        file.write_text(self.server_key.read_text() + self.server_certificate.read_text())
        return file


def create_certificate_authority(folder: Path, addresses: Iterable[str], names: Iterable[str]) -> CertificateAuthority:
    """Creates all files in `folder`. `addresses` and `names` are the subject alternative names of
    the server certificate.
    """
    if shutil.which("openssl") is None:
        skip_or_fail_in_ci("no `openssl` on PATH to create the certificates of a control plane with")
    folder.mkdir()
    authority = CertificateAuthority(folder)
    extensions = folder / "server.extensions"
    alternative_names = [f"IP:{address}" for address in addresses] + [f"DNS:{name}" for name in names]
    extensions.write_text(f"subjectAltName={','.join(alternative_names)}\nextendedKeyUsage=serverAuth\n")
    request = folder / "tls.csr"
    key_usage = "keyUsage=critical,keyCertSign,digitalSignature"
    _run_openssl(
        *("req", "-x509", *NEW_EC_KEY, "-keyout", authority.private_key, "-out", authority.certificate),
        *("-days", VALID_DAYS, "-subj", "/CN=tests", "-addext", key_usage),
    )
    _run_openssl("req", *NEW_EC_KEY, "-keyout", authority.server_key, "-out", request, "-subj", "/CN=kube-apiserver")
    _sign(authority, request, extensions, authority.server_certificate)
    _run_openssl(
        "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", authority.service_account_key
    )
    return authority


def create_client_certificate(authority: CertificateAuthority, name: str) -> tuple[Path, Path]:
    """(certificate, key) of a client with the common name `name`."""
    return _create_certificate(authority, name, "extendedKeyUsage=clientAuth\n")


def create_peer_certificate(
    authority: CertificateAuthority, name: str, alternative_names: Iterable[str]
) -> tuple[Path, Path]:
    """(certificate, key) of a server that connects to others like it: valid at both ends."""
    names = ",".join(alternative_names)
    return _create_certificate(authority, name, f"subjectAltName={names}\nextendedKeyUsage=serverAuth,clientAuth\n")


def create_server_certificate(
    authority: CertificateAuthority, name: str, alternative_names: Iterable[str]
) -> tuple[Path, Path]:
    """(certificate, key) of another server. `alternative_names` are its subject alternative names,
    each `IP:…` or `DNS:…`.
    """
    return _create_certificate(
        authority, name, f"subjectAltName={','.join(alternative_names)}\nextendedKeyUsage=serverAuth\n"
    )


def _sign(authority: CertificateAuthority, request: Path, extensions: Path, certificate: Path) -> None:
    _run_openssl(
        *("x509", "-req", "-in", request, "-CA", authority.certificate, "-CAkey", authority.private_key),
        *("-CAcreateserial", "-days", VALID_DAYS, "-extfile", extensions, "-out", certificate),
    )


def _create_certificate(authority: CertificateAuthority, name: str, extension: str) -> tuple[Path, Path]:
    certificate, key, request = (authority.folder / f"{name}.{suffix}" for suffix in ("crt", "key", "csr"))
    extensions = authority.folder / f"{name}.extensions"
    extensions.write_text(extension)
    _run_openssl("req", *NEW_EC_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
    _sign(authority, request, extensions, certificate)
    return certificate, key


def _run_openssl(*arguments: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
