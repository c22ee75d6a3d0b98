"""Clusters whose brokers connect to each other over TLS and SASL: they start without any unsecured
connection, replicate records, continue without one broker, and refuse from clients the requests
that only brokers may send.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kio.schema.alter_partition.v3.request import AlterPartitionRequest
from kio.schema.broker_heartbeat.v1.request import BrokerHeartbeatRequest
from kio.schema.envelope.v0.request import EnvelopeRequest
from kio.schema.types import BrokerId
from kio.static.primitive import i64

from ottla_broker.wire.client import Client
from ottla_broker.wire.client_security import ClientSecurity
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.clients import librdkafka as rd
from tests.clients.sample_messages import messages
from tests.clusters import ProcessCluster, run_cluster
from tests.kube.certificates import (
    CertificateAuthority,
    create_certificate_authority,
    create_client_certificate,
    create_peer_certificate,
)
from tests.ports import free_port
from tests.slow_tests import slow
from tests.waiting import eventually

WITHIN_S = 30.0
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
MAPPING_RULES = "RULE:^CN=(.*)-certificate$/$1/L, DEFAULT"


@dataclass(frozen=True)
class SecuredCluster:
    """`clients`: addresses of the listener for clients, by broker. `alice`: client properties of
    user alice for this listener, with librdkafka's names.
    """

    cluster: ProcessCluster
    authority: CertificateAuthority
    clients: dict[int, str]
    alice: dict[str, Any]

    @property
    def bootstrap(self) -> str:
        return ",".join(self.clients.values())


def read_keystore(paths: tuple[Path, Path]) -> tuple[str, str]:
    return paths[0].read_text(), paths[1].read_text()


def write_broker_files(authority: CertificateAuthority, keystore: str) -> tuple[Path, Path]:
    """Writes the keystore and the truststore of all brokers, and returns their paths."""
    files = authority.folder / "broker.pem", authority.folder / "trusted.pem"
    files[0].write_text(keystore)
    files[1].write_text(authority.certificate.read_text())
    return files


@contextmanager
def run_mutual_tls_cluster(folder: Path) -> Iterator[SecuredCluster]:
    """Brokers and clients present certificates; brokers are one super user by a mapping rule."""
    authority = create_certificate_authority(folder / "authority", ["127.0.0.1"], ["localhost"])
    certificate, key = create_peer_certificate(authority, "Broker-certificate", ["IP:127.0.0.1"])
    keystore, trusted = write_broker_files(authority, key.read_text() + certificate.read_text())
    alice = create_client_certificate(authority, "Alice-certificate")
    with run_cluster("ottla", 3, start=False) as cluster:
        chain, key_text = read_keystore((certificate, key))
        cluster.security = ClientSecurity("SSL", authority.certificate.read_text(), chain, key_text)
        clients = {}
        for number, broker in cluster.brokers.items():
            clients[number] = f"127.0.0.1:{free_port()}"
            broker.settings |= {
                "listeners": f"BROKERS://{broker.bootstrap},CLIENTS://{clients[number]}",
                "listener.security.protocol.map": "BROKERS:SSL,CLIENTS:SSL",
                "inter.broker.listener.name": "BROKERS",
                "ssl.keystore.location": str(keystore),
                "ssl.truststore.location": str(trusted),
                "ssl.client.auth": "required",
                "ssl.principal.mapping.rules": MAPPING_RULES,
                "authorizer.class.name": "StandardAuthorizer",
                "super.users": "User:broker",
            }
        cluster.start()
        settings = {
            "security.protocol": "SSL",
            "ssl.ca.location": str(authority.certificate),
            "ssl.certificate.location": str(alice[0]),
            "ssl.key.location": str(alice[1]),
        }
        yield SecuredCluster(cluster, authority, clients, settings)


@contextmanager
def run_scram_cluster(folder: Path) -> Iterator[SecuredCluster]:
    """Brokers log in to each other by SCRAM over TLS, with a login that the metadata log does not
    have at first.
    """
    authority = create_certificate_authority(folder / "authority", ["127.0.0.1"], ["localhost"])
    pem = authority.server_key.read_text() + authority.server_certificate.read_text()
    keystore, trusted = write_broker_files(authority, pem)
    with run_cluster("ottla", 3, start=False) as cluster:
        cluster.security = ClientSecurity("SASL_SSL", authority.certificate.read_text()).with_login(
            "SCRAM-SHA-512", "broker", "between brokers"
        )
        clients = {}
        for number, broker in cluster.brokers.items():
            clients[number] = f"127.0.0.1:{free_port()}"
            broker.settings |= {
                "listeners": f"BROKERS://{broker.bootstrap},CLIENTS://{clients[number]}",
                "listener.security.protocol.map": "BROKERS:SASL_SSL,CLIENTS:SASL_SSL",
                "inter.broker.listener.name": "BROKERS",
                "ssl.keystore.location": str(keystore),
                "ssl.truststore.location": str(trusted),
                "sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
                "listener.name.brokers.scram-sha-512.sasl.jaas.config": (
                    f'{SCRAM_MODULE} required username="broker" password="between brokers";'
                ),
                "authorizer.class.name": "StandardAuthorizer",
                "super.users": "User:broker",
            }
        cluster.start()
        alice = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority.certificate),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": "alice's",
        }
        secured = SecuredCluster(cluster, authority, clients, alice)
        change = UserScramCredentialUpsertion(
            "alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), b"alice's"
        )
        admin = broker_admin(secured)
        for done in admin.alter_user_scram_credentials([change]).values():
            done.result(WITHIN_S)
        yield secured


CLUSTERS: dict[str, Callable[[Path], Any]] = {"mutual-tls": run_mutual_tls_cluster, "scram": run_scram_cluster}


@pytest.fixture(scope="module", params=[*slow(["mutual-tls"]), "scram"])
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    with CLUSTERS[request.param](tmp_path_factory.mktemp(request.param)) as found:
        yield found


def broker_admin(secured: SecuredCluster) -> AdminClient:
    """An admin client with the login of a broker, on the brokers' listener."""
    security = secured.cluster.security
    settings: dict[str, Any] = {
        "bootstrap.servers": secured.cluster.bootstrap,
        "security.protocol": security.protocol,
        "ssl.ca.location": str(secured.authority.certificate),
    }
    if security.uses_sasl:
        settings |= {
            "sasl.mechanism": security.mechanism,
            "sasl.username": security.username,
            "sasl.password": security.password,
        }
    else:
        settings |= {"ssl.certificate.pem": security.certificate_chain, "ssl.key.pem": security.key}
    return AdminClient(settings)


def create_topic(secured: SecuredCluster, topic: str) -> None:
    admin = broker_admin(secured)  # keep a reference until the result
    admin.create_topics([NewTopic(topic, 3, 3)])[topic].result(WITHIN_S)
    rd.allow_to_produce_and_consume(admin, "alice", topic)
    cluster = secured.cluster
    cluster.wait_until_healthy()


def produce_to(secured: SecuredCluster, topic: str, partitions: Sequence[int]) -> None:
    settings = {name.replace(".", "_"): value for name, value in secured.alice.items()}
    for partition in partitions:
        rd.produce(secured.bootstrap, topic, messages(), partition=partition, **settings)


def count_records(secured: SecuredCluster, topic: str, partition: int) -> int:
    settings = {name.replace(".", "_"): value for name, value in secured.alice.items()}
    return len(rd.consume(secured.bootstrap, topic, partition=partition, **settings))


def test_records_are_replicated_and_served_without_a_killed_broker(secured: SecuredCluster) -> None:
    cluster = secured.cluster
    create_topic(secured, "orders")
    produce_to(secured, "orders", range(3))
    killed = cluster.controller_id()
    cluster.brokers[killed].kill()
    others = [number for number in cluster.brokers if number != killed]
    cluster.wait_until_healthy(others)
    produce_to(secured, "orders", range(3))
    cluster.brokers[killed].start()
    cluster.wait_until_healthy()
    assert [count_records(secured, "orders", partition) for partition in range(3)] == [2 * len(messages())] * 3


def test_clients_produce_and_lose_no_record_while_a_broker_restarts(secured: SecuredCluster) -> None:
    cluster = secured.cluster
    create_topic(secured, "payments")
    produce_to(secured, "payments", range(3))
    assert cluster.brokers[2].stop() == 0
    produce_to(secured, "payments", range(3))
    cluster.brokers[2].start()
    cluster.wait_until_healthy()
    assert [count_records(secured, "payments", partition) for partition in range(3)] == [2 * len(messages())] * 3


def test_killed_brokers_start_again_with_all_records(secured: SecuredCluster) -> None:
    cluster = secured.cluster
    create_topic(secured, "returns")
    produce_to(secured, "returns", range(3))
    for broker in cluster.brokers.values():
        broker.kill()
    cluster.start()
    assert [count_records(secured, "returns", partition) for partition in range(3)] == [len(messages())] * 3


def test_client_cannot_act_as_a_broker(secured: SecuredCluster) -> None:
    """A client's own login is refused on the listener for clients and on the brokers' listener."""
    if secured.cluster.security.uses_sasl:
        alice = replace(secured.cluster.security, username="alice", password="alice's")
    else:
        chain, key = read_keystore(
            (Path(secured.alice["ssl.certificate.location"]), Path(secured.alice["ssl.key.location"]))
        )
        alice = replace(secured.cluster.security, certificate_chain=chain, key=key)
    requests = [
        EnvelopeRequest(request_data=b"", request_principal=b"", client_host_address=b"\x7f\0\0\1"),
        BrokerHeartbeatRequest(
            broker_id=BrokerId(1),
            broker_epoch=i64(1),
            current_metadata_offset=i64(0),
            want_fence=True,
            want_shut_down=True,
        ),
        AlterPartitionRequest(broker_id=BrokerId(1), topics=()),
    ]

    async def send(client: Client) -> list[ErrorCode]:
        return [(await client.send(request)).error_code for request in requests]

    observer = replace(secured.cluster, security=alice)
    assert observer.call_broker(1, send) == [ErrorCode.cluster_authorization_failed] * len(requests)
    at_clients = replace(
        observer, brokers={1: replace(secured.cluster.brokers[1], port=int(secured.clients[1].rpartition(":")[2]))}
    )
    assert at_clients.call_broker(1, send) == [ErrorCode.cluster_authorization_failed] * len(requests)
    admin = AdminClient(secured.alice | {"bootstrap.servers": secured.bootstrap})
    with pytest.raises(ck.KafkaException, match="AUTHORIZATION_FAILED"):
        admin.create_topics([NewTopic("x", 1, 1)])["x"].result(WITHIN_S)


def test_brokers_without_the_login_are_refused(secured: SecuredCluster) -> None:
    cluster = secured.cluster
    stranger = (
        replace(cluster.security, password="guessed") if cluster.security.uses_sasl else ClientSecurity("PLAINTEXT")
    )
    with pytest.raises((KafkaError, OSError)):
        replace(cluster, security=stranger).metadata(1)
    if cluster.security.uses_sasl:  # the brokers' login is known only on their own listener
        at = secured.clients[1]
        with pytest.raises((KafkaError, OSError), match="invalid credentials"):
            replace(cluster, brokers={1: replace(cluster.brokers[1], port=int(at.rpartition(":")[2]))}).metadata(1)
    assert cluster.is_healthy()


def test_another_authority_takes_over_without_a_restart(secured: SecuredCluster, tmp_path: Path) -> None:
    """First brokers trust the new authority beside the old one, then the new one issues their
    certificates, then a client trusts only the new one.
    """
    cluster, old = secured.cluster, secured.authority
    create_topic(secured, "renewals")
    new = create_certificate_authority(tmp_path / "new", ["127.0.0.1"], ["localhost"])
    certificate, key = create_peer_certificate(new, "Broker-certificate", ["IP:127.0.0.1"])
    steps = (
        (old.folder / "trusted.pem", old.certificate.read_text() + new.certificate.read_text()),
        (old.folder / "broker.pem", key.read_text() + certificate.read_text()),
    )
    pids = {number: broker.pid for number, broker in cluster.brokers.items()}
    for number_of_changes, (file, text) in enumerate(steps, 1):
        replace_file(file, text)
        eventually(partial(have_reloaded, cluster, number_of_changes), within_s=WITHIN_S, message=f"{file} is read")
    both = cluster.security.trusted_certificates + new.certificate.read_text()
    secured.alice["ssl.ca.location"] = str(new.certificate)
    cluster.security = replace(cluster.security, trusted_certificates=both)
    produce_to(secured, "renewals", range(3))
    assert {number: broker.pid for number, broker in cluster.brokers.items()} == pids
    cluster.brokers[3].kill()
    cluster.brokers[3].start()  # it connects to the others again, and they to it
    cluster.wait_until_healthy()
    assert [count_records(secured, "renewals", partition) for partition in range(3)] == [len(messages())] * 3


def have_reloaded(cluster: ProcessCluster, times: int) -> bool:
    logs = [(broker.folder / "broker.log").read_text() for broker in cluster.brokers.values()]
    return all(log.count("listener CLIENTS has new certificates") >= times for log in logs)


def replace_file(file: Path, text: str) -> None:
    written = file.with_suffix(".new")
    written.write_text(text)
    written.replace(file)
