"""Changes of a listener's certificates that a broker accepts while it runs."""

import time
from pathlib import Path

import pytest

from ottla_broker.config import Config, ConfigSource
from ottla_broker.config.certificate_changes import find_certificate_problems
from ottla_broker.config.description import describe_broker
from ottla_broker.config.listener_security import listener_tls
from ottla_broker.config.validation import check_broker_changes
from ottla_broker.wire.errors import KafkaError
from tests.kube.certificates import CertificateAuthority, create_certificate_authority, create_peer_certificate

NAMES = ["IP:127.0.0.1", "DNS:localhost"]
PREFIX = "listener.name.between.ssl."


def make_authority(folder: Path) -> CertificateAuthority:
    return create_certificate_authority(folder, ["127.0.0.1"], ["localhost"])


def make_keystore(authority: CertificateAuthority, subject: str = "broker", names: list[str] | None = None) -> Path:
    certificate, key = create_peer_certificate(authority, subject, names or NAMES)
    file = authority.folder / f"{subject}-{len(list(authority.folder.iterdir()))}.pem"
    file.write_text(key.read_text() + certificate.read_text())
    return file


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return make_authority(tmp_path / "authority")


@pytest.fixture
def keystore(authority: CertificateAuthority) -> Path:
    return make_keystore(authority)


def make_config(authority: CertificateAuthority, keystore: Path, **more: str) -> Config:
    """A broker with the inter-broker listener BETWEEN and the listener OUTSIDE, both with TLS."""
    settings = {
        "node.id": "1",
        "log.dirs": "/data",
        "listeners": "BETWEEN://127.0.0.1:9091,OUTSIDE://127.0.0.1:9093",
        "listener.security.protocol.map": "BETWEEN:SSL,OUTSIDE:SSL",
        "inter.broker.listener.name": "BETWEEN",
        "ssl.keystore.location": str(keystore),
        "ssl.truststore.location": str(authority.certificate),
        "ssl.client.auth": "required",
    }
    return Config.of(settings | {name.replace("_", "."): text for name, text in more.items()})


def problems(config: Config, **changes: str | Path | None) -> str:
    """`changes`: by the end of a setting's name."""
    named = {f"{PREFIX}{name.replace('_', '.')}": None if it is None else str(it) for name, it in changes.items()}
    check_broker_changes(named, cluster_wide=False)
    return "; ".join(find_certificate_problems(config, named, time.time()))


def test_a_renewed_certificate_is_accepted_and_one_for_others_is_not(
    authority: CertificateAuthority, keystore: Path
) -> None:
    config = make_config(authority, keystore)
    assert problems(config, keystore_location=make_keystore(authority, names=[*NAMES, "DNS:more"])) == ""
    assert "has the subject" in problems(config, keystore_location=make_keystore(authority, "another"))
    assert "lacks the names localhost" in problems(config, keystore_location=make_keystore(authority, names=NAMES[:1]))
    assert "no such file" in problems(config, keystore_location="/missing.pem")
    assert "not both" in problems(config, keystore_key="a key", keystore_certificate_chain="a certificate")


def test_other_names_are_accepted_where_settings_allow_them(authority: CertificateAuthority, keystore: Path) -> None:
    other, fewer = make_keystore(authority, "another"), make_keystore(authority, names=NAMES[:1])
    assert problems(make_config(authority, keystore, ssl_allow_dn_changes="true"), keystore_location=other) == ""
    assert problems(make_config(authority, keystore, ssl_allow_san_changes="true"), keystore_location=fewer) == ""


def test_brokers_change_their_authority_in_three_steps(
    authority: CertificateAuthority, keystore: Path, tmp_path: Path
) -> None:
    config, next_one = make_config(authority, keystore), make_authority(tmp_path / "next")
    both = tmp_path / "both.pem"
    both.write_text(authority.certificate.read_text() + next_one.certificate.read_text())
    new = make_keystore(next_one)
    assert "brokers could not connect" in problems(config, keystore_location=new)
    assert "brokers could not connect" in problems(config, truststore_location=next_one.certificate)
    assert "brokers could not connect" in problems(
        config, keystore_location=new, truststore_location=next_one.certificate
    )
    for change in (
        {"truststore.location": both},
        {"keystore.location": new},
        {"truststore.location": next_one.certificate},
    ):
        name, value = next(iter(change.items()))
        assert problems(config, **{name: value}) == "", name
        config.set_dynamic({}, {**config.broker_dynamic, f"{PREFIX}{name}": str(value)})


def test_a_truststore_is_not_added_where_there_is_none(authority: CertificateAuthority, keystore: Path) -> None:
    config = make_config(authority, keystore, ssl_truststore_location="", ssl_client_auth="none")
    found = problems(config, truststore_location=authority.certificate)
    assert "a truststore cannot be added" in found


def test_only_settings_of_one_broker_and_one_listener_can_be_changed(
    authority: CertificateAuthority, keystore: Path
) -> None:
    new = str(make_keystore(authority))
    with pytest.raises(KafkaError, match="can be changed for one listener alone"):
        check_broker_changes({"ssl.keystore.location": new}, cluster_wide=False)
    with pytest.raises(KafkaError, match="can only be set for one broker"):
        check_broker_changes({f"{PREFIX}keystore.location": new}, cluster_wide=True)
    with pytest.raises(KafkaError, match="Java keystores"):
        check_broker_changes({f"{PREFIX}keystore.type": "JKS"}, cluster_wide=False)
    with pytest.raises(KafkaError, match="read-only"):
        check_broker_changes({f"{PREFIX}client.auth": "none"}, cluster_wide=False)
    config, unknown = make_config(authority, keystore), "listener.name.unknown.ssl.keystore.location"
    assert "no listener" in "".join(find_certificate_problems(config, {unknown: new}, time.time()))
    assert not list(find_certificate_problems(config, {unknown: None}, time.time())), "it can be removed"


def test_dynamic_settings_are_those_of_their_listener(authority: CertificateAuthority, keystore: Path) -> None:
    config, new, notified = make_config(authority, keystore), str(make_keystore(authority)), list[None]()
    config.subscribe_to_certificates(lambda: notified.append(None))
    config.set_dynamic({}, {f"{PREFIX}keystore.location": new})
    assert listener_tls(config, "BETWEEN").keystore_location == new
    assert listener_tls(config, "OUTSIDE").keystore_location == str(keystore)
    (entry,) = [it for it in describe_broker(config) if it.name == f"{PREFIX}keystore.location"]
    assert (entry.value, entry.is_read_only, entry.is_sensitive) == (new, False, False)
    assert [(it.name, it.source) for it in entry.synonyms] == [
        (f"{PREFIX}keystore.location", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("ssl.keystore.location", ConfigSource.STATIC_BROKER_CONFIG),
    ]
    config.set_dynamic({}, {f"{PREFIX}keystore.key": "a key"})
    (entry,) = [it for it in describe_broker(config) if it.name == f"{PREFIX}keystore.key"]
    assert entry.value is None and entry.is_sensitive
    config.set_dynamic({}, {})
    assert listener_tls(config, "BETWEEN").keystore_location == str(keystore)
    assert len(notified) == 3
