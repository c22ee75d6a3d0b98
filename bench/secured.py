"""Throughput over TLS (1.3, a P-256 key), and after a login without TLS.

The login is by PLAIN: librdkafka before 2.6.1 sends a wrong nonce in SCRAM's last message, which
Kafka rejects since 4.0. After the login the mechanisms do not differ.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench import programs
from bench.load_size import LoadSize
from bench.one_broker import RunBroker, is_any_selected
from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.kube.certificates import CertificateAuthority, create_certificate_authority
from tests.ports import free_port

HOST: Final = "127.0.0.1"
KIB: Final = 1024
PASSWORD: Final = "bench"
LOGIN: Final = (
    "security.protocol=SASL_PLAINTEXT",
    "sasl.mechanism=PLAIN",
    "sasl.username=bench",
    f"sasl.password={PASSWORD}",
)


def measure_secured(run_broker: RunBroker, selected: Sequence[str], load_size: LoadSize) -> dict[str, float]:
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        authority = create_certificate_authority(Path(folder) / "authority", [HOST], ["localhost"])
        tls = ("security.protocol=SSL", f"ssl.ca.location={authority.certificate}")
        with run_secured_broker(run_broker, authority) as (broker, ports):
            for name, settings in (("tls", tls), ("sasl", LOGIN)):
                if is_any_selected(selected, name):
                    at = f"{HOST}:{ports[name.upper()]}"
                    found |= _measure_listener(broker, at, name, settings, load_size.settings)
    return found


def _measure_listener(
    broker: BrokerProcess, bootstrap: str, name: str, settings: Sequence[str], records: int
) -> dict[str, float]:
    rd.create_topic(broker.bootstrap, name)
    for count in (records // 4, records):  # the first one warms up
        produced = programs.produce(bootstrap, name, count, KIB, settings=settings)
    programs.consume(bootstrap, name, records // 4, settings=settings)
    before = broker.cpu_s()
    consumed = programs.consume(bootstrap, name, records, settings=settings)
    cpu = (broker.cpu_s() - before) / (consumed.records * KIB / 1e9)
    return {f"{name}-produce": produced.mb_per_s, f"{name}-consume": consumed.mb_per_s, f"{name}-cpu": cpu}


@contextmanager
def run_secured_broker(
    run_broker: RunBroker, authority: CertificateAuthority
) -> Iterator[tuple[BrokerProcess, dict[str, int]]]:
    """A broker and the ports of its listeners: PLAINTEXT, TLS, SASL and, of Kafka, CONTROLLER."""
    keystore = authority.folder / "broker.pem"
    keystore.write_text(authority.server_key.read_text() + authority.server_certificate.read_text())
    with run_broker(start=False, test_settings=False, offsets_topic_replication_factor=1) as broker:
        ports = {"PLAINTEXT": broker.port, "TLS": free_port(), "SASL": free_port()}
        protocols = {"PLAINTEXT": "PLAINTEXT", "TLS": "SSL", "SASL": "SASL_PLAINTEXT"}
        if broker.kind == "kafka":
            controller = broker.folder / "controller.port"
            controller.write_text(str(free_port()))
            ports["CONTROLLER"], protocols["CONTROLLER"] = int(controller.read_text()), "PLAINTEXT"
        login = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_bench="{PASSWORD}";'
        broker.settings |= {
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{it}" for name, it in protocols.items()),
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keystore),
            "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl.plain.sasl.jaas.config": login,
        }
        broker.start()
        yield broker, ports
