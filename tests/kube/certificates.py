"""Certificates made by `openssl`: a certificate authority, server and client certificates, and the
key that signs service account tokens.
"""

import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.jars import skip_or_fail_in_ci

DAYS = "30"
ELLIPTIC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


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
    def key(self) -> Path:
        return self.folder / "ca.key"

    @property
    def server_certificate(self) -> Path:
        return self.folder / "tls.crt"

    @property
    def server_key(self) -> Path:
        return self.folder / "tls.key"

    @property
    def accounts_key(self) -> Path:
        return self.folder / "sa.key"


def create_certificate_authority(folder: Path, addresses: Iterable[str], names: Iterable[str]) -> CertificateAuthority:
    """Create all files in `folder`. `addresses` and `names` are the subject alternative names of
    the server certificate.
    """
    if shutil.which("openssl") is None:
        skip_or_fail_in_ci("no `openssl` on PATH, which makes the certificates of a control plane")
    folder.mkdir()
    made = CertificateAuthority(folder)
    extensions = folder / "server.extensions"
    called = [f"IP:{address}" for address in addresses] + [f"DNS:{name}" for name in names]
    extensions.write_text(f"subjectAltName={','.join(called)}\nextendedKeyUsage=serverAuth\n")
    request = folder / "tls.csr"
    use = "keyUsage=critical,keyCertSign,digitalSignature"
    _openssl(
        *("req", "-x509", *ELLIPTIC, "-keyout", made.key, "-out", made.certificate),
        *("-days", DAYS, "-subj", "/CN=tests", "-addext", use),
    )
    _openssl("req", *ELLIPTIC, "-keyout", made.server_key, "-out", request, "-subj", "/CN=kube-apiserver")
    _openssl(
        *("x509", "-req", "-in", request, "-CA", made.certificate, "-CAkey", made.key, "-CAcreateserial"),
        *("-days", DAYS, "-extfile", extensions, "-out", made.server_certificate),
    )
    _openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", made.accounts_key)
    return made


def create_client_certificate(made: CertificateAuthority, name: str) -> tuple[Path, Path]:
    """(certificate, key) of a client with the common name `name`."""
    return _signed(made, name, "extendedKeyUsage=clientAuth\n")


def create_server_certificate(made: CertificateAuthority, name: str, called: Iterable[str]) -> tuple[Path, Path]:
    """(certificate, key) of another server. `alternative_names` are its subject alternative names,
    each `IP:…` or `DNS:…`.
    """
    return _signed(made, name, f"subjectAltName={','.join(called)}\nextendedKeyUsage=serverAuth\n")


def _signed(made: CertificateAuthority, name: str, extension: str) -> tuple[Path, Path]:
    certificate, key, request = (made.folder / f"{name}.{suffix}" for suffix in ("crt", "key", "csr"))
    extensions = made.folder / f"{name}.extensions"
    extensions.write_text(extension)
    _openssl("req", *ELLIPTIC, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
    _openssl(
        *("x509", "-req", "-in", request, "-CA", made.certificate, "-CAkey", made.key, "-CAcreateserial"),
        *("-days", DAYS, "-extfile", extensions, "-out", certificate),
    )
    return certificate, key


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
