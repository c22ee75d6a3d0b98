"""Apache Kafka with listeners that require TLS, client certificates or SASL."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.brokers import BrokerProcess, run_apache_kafka
from tests.kube.certificates import CertificateAuthority, create_certificate_authority
from tests.ports import free_port

USER, PASSWORD = "mirror", "p=ss,w0rd \\ ä"
SCRAM = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
PLAIN_PASSWORD = "plain-pass"
MODULES = "org.apache.kafka.common.security"
PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True)
class SecuredKafka:
    """`broker.bootstrap` is the PLAINTEXT listener. `addresses`: those of the other listeners, by
    protocol. The SSL listener requires client certificates.
    """

    broker: BrokerProcess
    authority: CertificateAuthority
    addresses: dict[str, str]


@contextmanager
def run_secured_kafka(folder: Path, host: str = "127.0.0.1") -> Iterator[SecuredKafka]:
    """`host`: the address of the secured listeners; the PLAINTEXT listener is at 127.0.0.1."""
    authority = create_certificate_authority(folder / "authority", [host], ["localhost"])
    with run_apache_kafka(start=False) as broker:
        ports = {protocol: free_port() for protocol in PROTOCOLS}
        controller = free_port()
        (broker.folder / "controller.port").write_text(str(controller))
        broker.settings |= _settings(broker.port, controller, host, ports, authority, broker.folder)
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for mechanism in SCRAM.values():
            credential = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            for result in admin.alter_user_scram_credentials([credential]).values():
                result.result(30)
        yield SecuredKafka(broker, authority, {protocol: f"{host}:{port}" for protocol, port in ports.items()})


def _settings(
    port: int, controller: int, host: str, ports: dict[str, int], authority: CertificateAuthority, folder: Path
) -> dict[str, str]:
    keystore = folder / "keystore.pem"
    keystore.write_text(_concatenate(authority.server_key, authority.server_certificate))
    addresses = [f"PLAINTEXT://127.0.0.1:{port}", f"CONTROLLER://127.0.0.1:{controller}"]
    addresses += [f"{protocol}://{host}:{listener_port}" for protocol, listener_port in ports.items()]
    return {
        "listeners": ",".join(addresses),
        "listener.security.protocol.map": ",".join(
            ["PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT", *(f"{it}:{it}" for it in PROTOCOLS)]
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        **{
            f"listener.name.{protocol.lower()}.{mechanism.lower()}.sasl.jaas.config": module
            for protocol in ("SASL_PLAINTEXT", "SASL_SSL")
            for mechanism, module in _login_modules().items()
        },
    }


def _login_modules() -> dict[str, str]:
    scram = f"{MODULES}.scram.ScramLoginModule required;"
    plain = f'{MODULES}.plain.PlainLoginModule required user_{USER}="{PLAIN_PASSWORD}";'
    return {"PLAIN": plain} | dict.fromkeys(SCRAM, scram)


def _concatenate(*paths: Path) -> str:
    parts: Sequence[str] = [path.read_text() for path in paths]
    return "\n".join(parts)
