"""Certificates of a broker with a TLS listener."""

from pathlib import Path

import pytest

from tests.kube.certificates import CertificateAuthority, create_certificate_authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return create_certificate_authority(tmp_path_factory.mktemp("tls") / "authority", ["127.0.0.1"], ["localhost"])


@pytest.fixture(scope="module")
def keystore(authority: CertificateAuthority) -> Path:
    file = authority.folder / "keystore.pem"
    file.write_text(authority.server_key.read_text() + authority.server_certificate.read_text())
    return file
