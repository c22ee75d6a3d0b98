"""Clients over TLS: librdkafka, kafka-python, aiokafka, Java's tools and `ottla`, with and without
client certificates.
"""

import asyncio
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafka import KafkaConsumer, KafkaProducer

from tests.brokers import BrokerProcess, add_listeners
from tests.clients import librdkafka as rd
from tests.clients.conftest import NewBroker
from tests.clients.sample_messages import messages
from tests.jars import java_command
from tests.kube.certificates import CertificateAuthority, create_certificate_authority, create_client_certificate
from tests.ottla_command import run_ottla
from tests.waiting import eventually

WITHIN_S = 30.0


@dataclass(frozen=True)
class TlsBroker:
    """`tls` and `mutual` are addresses of listeners; `mutual` requires client certificates.
    `alice` are the paths of a client's certificate and of its key.
    """

    broker: BrokerProcess
    authority: CertificateAuthority
    tls: str
    mutual: str
    alice: tuple[Path, Path]


@pytest.fixture(scope="module")
def secured(new_broker: NewBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    authority = create_certificate_authority(tmp_path_factory.mktemp("tls") / "authority", ["127.0.0.1"], ["localhost"])
    with new_broker(start=False) as broker:
        ports = add_listeners(broker, {"TLS": "SSL", "MUTUAL": "SSL"})
        broker.settings |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.write_keystore()),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.certificate),
            "listener.name.mutual.ssl.client.auth": "required",
        }
        broker.start()
        alice = create_client_certificate(authority, "alice")
        yield TlsBroker(broker, authority, f"127.0.0.1:{ports['TLS']}", f"127.0.0.1:{ports['MUTUAL']}", alice)


def librdkafka_settings(secured: TlsBroker, *, certificate: bool) -> dict[str, Any]:
    settings: dict[str, Any] = {"security_protocol": "SSL", "ssl_ca_location": str(secured.authority.certificate)}
    if certificate:
        settings |= {"ssl_certificate_location": str(secured.alice[0]), "ssl_key_location": str(secured.alice[1])}
    return settings


@pytest.mark.parametrize("mutual", [False, True], ids=["tls", "mutual"])
def test_librdkafka_produces_consumes_and_joins_a_group(secured: TlsBroker, name: str, mutual: bool) -> None:
    address, how = secured.mutual if mutual else secured.tls, librdkafka_settings(secured, certificate=mutual)
    rd.create_topic(secured.broker.bootstrap, name, 1)
    assert rd.produce(address, name, messages(), compression_type="lz4", **how) == list(range(50))
    assert rd.to_messages(rd.consume(address, name, 50, **how)) == messages()
    with rd.open_consumer(address, name, **how) as reader:
        reader.subscribe([name])
        got = [rd.poll_message(reader).value() for _ in range(50)]
        reader.commit(asynchronous=False)
    assert got == [it.value for it in messages()]
    with rd.open_consumer(address, name, **how) as reader:
        assert reader.committed([ck.TopicPartition(name, 0)])[0].offset == 50


def test_large_records_are_produced_and_consumed(secured: TlsBroker, name: str) -> None:
    how = librdkafka_settings(secured, certificate=False)
    rd.create_topic(secured.broker.bootstrap, name, 1)
    records = [
        replace(it, value=bytes([number % 256]) * 500_000) for number, it in enumerate(rd.numbered_messages(0, 60))
    ]
    assert len(rd.produce(secured.tls, name, records, **how)) == 60
    got = rd.consume(secured.tls, name, 60, fetch_message_max_bytes=20 << 20, **how)
    assert rd.values_of(got) == [it.value for it in records]


def test_clients_without_trust_a_certificate_or_the_listeners_protocol_are_rejected(
    secured: TlsBroker, name: str, tmp_path: Path
) -> None:
    rd.create_topic(secured.broker.bootstrap, name, 1)
    others = create_certificate_authority(tmp_path / "others", ["127.0.0.1"], ["localhost"])
    distrusts = {"security_protocol": "SSL", "ssl_ca_location": str(others.certificate)}
    for address, how in (
        (secured.tls, distrusts),
        (secured.mutual, librdkafka_settings(secured, certificate=False)),
        (secured.tls, {}),
        (secured.broker.bootstrap, librdkafka_settings(secured, certificate=False)),
    ):
        with pytest.raises(ck.KafkaException, match="_MSG_TIMED_OUT"):
            rd.produce(address, name, rd.numbered_messages(0, 1), **{"message_timeout_ms": 1500, **how})
    assert rd.produce(secured.broker.bootstrap, name, rd.numbered_messages(0, 1)) == [0]
    if secured.broker.kind == "ottla":
        for line in (
            "the client does not trust this broker's certificate",
            "the client has no certificate, and ssl.client.auth=required",
            "the client does not use TLS, and this listener requires it",
            "the client uses TLS, and this listener does not",
        ):
            eventually(lambda line=line: line in secured.broker.log_tail())  # type: ignore[misc]
        assert "Traceback" not in secured.broker.log_tail()


def test_ottla_command_connects_over_tls(secured: TlsBroker, name: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        f"security.protocol=SSL\nssl.ca.location={secured.authority.certificate}\n"
        f"ssl.certificate.location={secured.alice[0]}\nssl.key.location={secured.alice[1]}\n"
    )

    def ottla(*arguments: str, stdin_text: str = "", config: Path | None = file) -> subprocess.CompletedProcess[str]:
        how = ["--bootstrap", secured.mutual, *(["--command-config", str(config)] if config else [])]
        return run_ottla(*arguments, *how, stdin=stdin_text)

    assert ottla("topics", "create", name).returncode == 0
    assert ottla("produce", name, stdin_text="one\ntwo\n").returncode == 0
    assert ottla("consume", name, "--from", "beginning", "--exit").stdout == "one\ntwo\n"
    without_certificate = tmp_path / "no-certificate.properties"
    without_certificate.write_text(f"security.protocol=SSL\nssl.ca.location={secured.authority.certificate}\n")
    for config in (without_certificate, None):
        refused = ottla("topics", "list", config=config)
        assert (refused.returncode, refused.stdout) == (4, "")
        assert refused.stderr.startswith("ottla: ") and refused.stderr.count("\n") == 1, refused.stderr


def test_kafka_python_connects_over_tls(secured: TlsBroker, name: str) -> None:
    rd.create_topic(secured.broker.bootstrap, name, 1)
    how: dict[str, Any] = {
        "bootstrap_servers": secured.mutual,
        "security_protocol": "SSL",
        "ssl_cafile": str(secured.authority.certificate),
        "ssl_certfile": str(secured.alice[0]),
        "ssl_keyfile": str(secured.alice[1]),
    }
    with closing(KafkaProducer(**how)) as producer:
        for future in [producer.send(name, it.value, it.key) for it in messages()]:
            future.get(WITHIN_S)
    with closing(
        KafkaConsumer(name, group_id=name, auto_offset_reset="earliest", consumer_timeout_ms=20_000, **how)
    ) as reader:
        got = [record.value for _, record in zip(range(50), reader, strict=False)]
        reader.commit()
    assert got == [it.value for it in messages()]


def test_aiokafka_connects_over_tls(secured: TlsBroker, name: str) -> None:
    rd.create_topic(secured.broker.bootstrap, name, 1)
    context = ssl.create_default_context(cafile=secured.authority.certificate)
    how: dict[str, Any] = {
        "bootstrap_servers": secured.tls,
        "security_protocol": "SSL",
        "ssl_context": context,
    }

    async def produce_and_consume() -> list[bytes | None]:
        async with AIOKafkaProducer(**how) as producer:
            for it in messages():
                await producer.send_and_wait(name, it.value, it.key)
        async with AIOKafkaConsumer(name, group_id=name, auto_offset_reset="earliest", **how) as reader:
            return [(await reader.getone()).value for _ in range(50)]

    assert asyncio.run(asyncio.wait_for(produce_and_consume(), WITHIN_S)) == [it.value for it in messages()]


def test_java_tools_connect_over_tls(secured: TlsBroker, name: str, classpath: str, tmp_path: Path) -> None:
    rd.create_topic(secured.broker.bootstrap, name, 1)
    store = tmp_path / "alice.pem"
    key = subprocess.run(
        ["openssl", "pkcs8", "-topk8", "-nocrypt", "-in", secured.alice[1]], capture_output=True, text=True, check=True
    )
    store.write_text(key.stdout + secured.alice[0].read_text())
    settings = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(secured.authority.certificate),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
    }
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    lines = [f"line {number}" for number in range(200)]
    tool(classpath, "ConsoleProducer", secured.mutual, config, "--topic", name, stdin="\n".join(lines))
    got = tool(
        *(classpath, "consumer.ConsoleConsumer", secured.mutual, config),
        *("--topic", name, "--group", name, "--from-beginning", "--max-messages", "200", "--timeout-ms", "30000"),
    )
    assert got.split("\n")[:200] == lines
    groups = tool(
        classpath, "consumer.group.ConsumerGroupCommand", secured.mutual, config, "--describe", "--group", name
    )
    assert " 200 " in groups


def tool(classpath: str, main: str, bootstrap: str, config: Path, *arguments: str, stdin: str = "") -> str:
    flag = {"ConsoleProducer": "--producer.config", "consumer.ConsoleConsumer": "--consumer.config"}.get(main)
    command = java_command(
        *(classpath, f"org.apache.kafka.tools.{main}", "--bootstrap-server", bootstrap),
        *(flag or "--command-config", str(config), *arguments),
    )
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout
