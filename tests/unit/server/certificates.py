"""A broker with a listener of TLS, and the certificates for it."""

from pathlib import Path

import pytest

from tests.kube.certificates import CertificateAuthority, create_certificate_authority
from tests.unit.api.brokers import SmallBroker


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return create_certificate_authority(tmp_path_factory.mktemp("tls") / "authority", ["127.0.0.1"], ["localhost"])


@pytest.fixture(scope="module")
def keystore(made: CertificateAuthority) -> Path:
    file = made.folder / "keystore.pem"
    file.write_text(made.server_key.read_text() + made.server_certificate.read_text())
    return file


def broker_with(folder: Path, keystore: Path, **settings: str) -> SmallBroker:
    base = {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", "ssl.keystore.location": str(keystore)}
    authority_file = str(keystore.parent / "ca.crt")
    given = {name.replace("_", "."): value.replace("THE_AUTHORITY", authority_file) for name, value in settings.items()}
    return SmallBroker(folder, **(base | given))
