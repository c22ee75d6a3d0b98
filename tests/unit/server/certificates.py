"""A broker with a TLS listener, and its certificates."""

from pathlib import Path

import pytest

from tests.kube.certificates import CertificateAuthority, create_certificate_authority
from tests.unit.api.brokers import SmallBroker


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return create_certificate_authority(tmp_path_factory.mktemp("tls") / "authority", ["127.0.0.1"], ["localhost"])


@pytest.fixture(scope="module")
def keystore(authority: CertificateAuthority) -> Path:
    return authority.write_keystore()


def tls_broker(folder: Path, keystore: Path, **settings: str) -> SmallBroker:
    """A broker with a PLAINTEXT and an SSL listener. `settings`: with underscores for dots, and
    THE_AUTHORITY for the path of the authority's certificate.
    """
    defaults = {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", "ssl.keystore.location": str(keystore)}
    authority_file = str(keystore.parent / "ca.crt")
    given = {name.replace("_", "."): value.replace("THE_AUTHORITY", authority_file) for name, value in settings.items()}
    return SmallBroker(folder, **(defaults | given))
