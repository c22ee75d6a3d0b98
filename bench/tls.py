"""`python -m bench.tls`: throughput over TLS, of Ottla and of Apache Kafka on the same machine.

librdkafka produces and consumes records of 1 kB, without compression, to one partition of one
broker; first without TLS, then with it (TLS 1.3, a P-256 key). Seconds are the producer's and the
consumer's; processor time is the broker's.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import confluent_kafka as ck
from rich.console import Console
from rich.table import Table

from tests.brokers import BROKERS, BrokerProcess
from tests.clients import librdkafka as rd
from tests.kube.certificates import CertificateAuthority, create_certificate_authority
from tests.ports import free_port

HOST: Final = "127.0.0.1"
TOPIC: Final = "tls"
RECORD: Final = bytes(1000)
NAMES: Final = {"ottla": "Ottla", "kafka": "Apache Kafka"}


@dataclass(frozen=True, slots=True)
class TlsThroughput:
    """MB per second, and processor seconds of the broker."""

    produced_mb_s: float
    produce_cpu_s: float
    consumed_mb_s: float
    consume_cpu_s: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.tls", description=__doc__)
    parser.add_argument("--mb", type=int, default=200, help="MB that are produced and consumed each time")
    options = parser.parse_args()
    table = Table(box=None)
    for heading in ("broker", "listener", "produced MB/s", "broker's s", "consumed MB/s", "broker's s"):
        table.add_column(heading, justify="left" if heading in ("broker", "listener") else "right")
    with tempfile.TemporaryDirectory() as folder:
        authority = create_certificate_authority(Path(folder) / "authority", [HOST], ["localhost"])
        for kind, name in NAMES.items():
            with run_tls_broker(kind, authority) as (broker, port):
                settings = {"security.protocol": "SSL", "ssl.ca.location": str(authority.certificate)}
                for listener, at, client in (("PLAINTEXT", broker.port, {}), ("SSL", port, settings)):
                    found = measure(broker, f"{HOST}:{at}", f"{TOPIC}-{listener.lower()}", client, options.mb)
                    row = (found.produced_mb_s, found.produce_cpu_s, found.consumed_mb_s, found.consume_cpu_s)
                    table.add_row(name, listener, *(f"{it:.2f}" if it < 10 else f"{it:.0f}" for it in row))
    Console(width=100).print(table)


@contextmanager
def run_tls_broker(kind: str, authority: CertificateAuthority) -> Iterator[tuple[BrokerProcess, int]]:
    """A broker and the port of its listener with TLS."""
    keystore = authority.folder / "broker.pem"
    keystore.write_text(authority.server_key.read_text() + authority.server_certificate.read_text())
    with BROKERS[kind](start=False, test_settings=False, offsets_topic_replication_factor=1) as broker:
        ports = {"PLAINTEXT": broker.port, "TLS": free_port()}
        protocols = {"PLAINTEXT": "PLAINTEXT", "TLS": "SSL"}
        if kind == "kafka":
            controller = broker.folder / "controller.port"
            controller.write_text(str(free_port()))
            ports["CONTROLLER"], protocols["CONTROLLER"] = int(controller.read_text()), "PLAINTEXT"
        broker.settings |= {
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{it}" for name, it in protocols.items()),
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keystore),
        }
        broker.start()
        yield broker, ports["TLS"]


def measure(broker: BrokerProcess, bootstrap: str, topic: str, client: dict[str, Any], mb: int) -> TlsThroughput:
    rd.create_topic(broker.bootstrap, topic)
    produce(bootstrap, topic, client, 10)  # warm, as the JVM has to be
    consume(bootstrap, topic, client, 10_000)
    count, cpu_s, began = mb * 1_000_000 // len(RECORD), broker.cpu_s(), time.perf_counter()
    produce(bootstrap, topic, client, mb)
    produced_s, produce_cpu_s = time.perf_counter() - began, broker.cpu_s() - cpu_s
    cpu_s, began = broker.cpu_s(), time.perf_counter()
    consume(bootstrap, topic, client, count)
    return TlsThroughput(mb / produced_s, produce_cpu_s, mb / (time.perf_counter() - began), broker.cpu_s() - cpu_s)


def produce(bootstrap: str, topic: str, client: dict[str, Any], mb: int) -> None:
    """Raises KafkaException if a record is not acknowledged."""
    producer = ck.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.size": 500_000, **client})
    failed: list[ck.KafkaError] = []

    def note(error: ck.KafkaError | None, _: ck.Message) -> None:
        if error is not None:
            failed.append(error)

    for _ in range(mb * 1_000_000 // len(RECORD)):
        while True:
            try:
                producer.produce(topic, RECORD, on_delivery=note)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    producer.flush()
    if failed:
        raise ck.KafkaException(failed[0])


def consume(bootstrap: str, topic: str, client: dict[str, Any], count: int) -> None:
    with rd.consumer(bootstrap, **{key.replace(".", "_"): it for key, it in client.items()}) as reader:
        reader.assign([ck.TopicPartition(topic, 0, 0)])
        while count > 0:
            count -= len(reader.consume(10_000, 1.0))


if __name__ == "__main__":
    main()
