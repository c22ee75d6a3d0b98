"""A broker with a listener of TLS, and the certificates for it."""

from pathlib import Path

import pytest

from tests.kube.authority import Authority, authority
from tests.unit.api.brokers import SmallBroker


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("tls") / "authority", ["127.0.0.1"], ["localhost"])


@pytest.fixture(scope="module")
def keystore(made: Authority) -> Path:
    file = made.folder / "keystore.pem"
    file.write_text(made.server_key.read_text() + made.server.read_text())
    return file


def broker_with(folder: Path, keystore: Path, **settings: str) -> SmallBroker:
    base = {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", "ssl.keystore.location": str(keystore)}
    authority_file = str(keystore.parent / "ca.crt")
    given = {name.replace("_", "."): value.replace("THE_AUTHORITY", authority_file) for name, value in settings.items()}
    return SmallBroker(folder, **(base | given))
