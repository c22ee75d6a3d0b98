"""--command-config: security from client properties, and errors with file, line and property."""

from pathlib import Path

import pytest

from ottla_broker.wire.client_security import UNSECURED, ClientSecurity
from ottla_operator.cli.command_config import read_security
from ottla_operator.cli.exit_codes import CommandError, ExitCode
from tests.kube.certificates import create_certificate_authority, create_client_certificate


def read(folder: Path, *lines: str) -> ClientSecurity:
    file = folder / "client.properties"
    file.write_text("\n".join(lines))
    return read_security(file)


def test_connection_is_not_encrypted_without_a_file(tmp_path: Path) -> None:
    assert read_security(None) == UNSECURED
    assert read(tmp_path, "# no property of security", "client.id=me", "request.timeout.ms=5000") == UNSECURED


@pytest.mark.parametrize(
    "login",
    [
        ["sasl.username=alice", "sasl.password=a \\\\ \\u00e4"],
        [
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\",
            '  username="alice" \\',
            '  password="a \\\\\\\\ \\u00e4";',
        ],
    ],
    ids=["as librdkafka has it", "as Java has it"],
)
def test_sasl_credentials_are_read_in_both_forms(tmp_path: Path, login: list[str]) -> None:
    found = read(tmp_path, "security.protocol=SASL_SSL", "sasl.mechanism=SCRAM-SHA-512", *login)
    assert found == ClientSecurity("SASL_SSL", mechanism="SCRAM-SHA-512", username="alice", password="a \\ ä")
    assert "ä" not in repr(found)


def test_certificates_are_read_by_names_of_kafka_and_of_librdkafka(tmp_path: Path) -> None:
    authority = create_certificate_authority(tmp_path / "authority", ["127.0.0.1"], ["localhost"])
    certificate, key = create_client_certificate(authority, "alice")
    (tmp_path / "alice.pem").write_text(key.read_text() + certificate.read_text())
    javas = read(
        tmp_path,
        "security.protocol=SSL",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={authority.certificate}",
        "ssl.keystore.location=alice.pem",
        "ssl.endpoint.identification.algorithm=",
    )
    librdkafkas = read(
        tmp_path,
        "security.protocol=SSL",
        f"ssl.ca.location={authority.certificate}",
        f"ssl.certificate.location={certificate}",
        f"ssl.key.location={key}",
        "ssl.endpoint.identification.algorithm=none",
    )
    for found in (javas, librdkafkas):
        assert (found.trusted_certificates, found.verifies_hostname) == (authority.certificate.read_text(), False)
        assert (found.certificate_chain.strip(), found.key.strip()) == (
            certificate.read_text().strip(),
            key.read_text().strip(),
        )


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        (
            ["security.protocol=TLS"],
            (":1: security.protocol cannot be 'TLS'; allowed: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ),
        (
            ["", "sasl.mechanism=GSSAPI"],
            (":2: sasl.mechanism cannot be 'GSSAPI'; allowed: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ),
        (["ssl.truststore.type=JKS"], ":1: ssl.truststore.type cannot be 'JKS'; allowed: PEM"),
        (["ssl.truststore.password=x"], ":1: ssl.truststore.password is not supported; supported: sasl.jaas.config, "),
        (["ssl.truststore.location=gone.pem"], ":1: ssl.truststore.location names gone.pem: No such file or directory"),
        (
            ["ssl.keystore.location=client.properties"],
            (":1: ssl.keystore.location names client.properties, which does not have both"),
        ),
        (["sasl.jaas.config=OAuthBearerLoginModule required;"], ":1: sasl.jaas.config has no username and password;"),
        (
            ["security.protocol=SASL_SSL", "sasl.username=a", "sasl.password=b"],
            (": security.protocol SASL_SSL needs sasl.mechanism"),
        ),
        (["security.protocol=SSL", "ssl.truststore.certificates=x"], ": the PEM of ssl.truststore.certificates or of"),
        (["security.protocol=\\uzz"], ": line 1: invalid escape '\\\\uzz'"),
    ],
)
def test_error_names_the_line_and_the_property(tmp_path: Path, lines: list[str], error: str) -> None:
    with pytest.raises(CommandError) as failed:
        read(tmp_path, *lines)
    assert failed.value.code is ExitCode.usage
    assert str(failed.value).startswith(f"{tmp_path / 'client.properties'}{error}")


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"none\.properties: No such file or directory"):
        read_security(tmp_path / "none.properties")
