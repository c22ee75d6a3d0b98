"""Brokers that run without logins or TLS among themselves get them, one restart after the other,
and lose them again. Records are produced after each restart.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from ottla_broker.wire.client_security import UNSECURED, ClientSecurity
from ottla_broker.wire.errors import KafkaError
from tests.clients import librdkafka as rd
from tests.clients.sample_messages import messages
from tests.clusters import ProcessCluster, run_cluster
from tests.kube.certificates import create_certificate_authority
from tests.waiting import eventually

WITHIN_S = 60.0
LOGIN = ClientSecurity("SASL_PLAINTEXT").with_login("SCRAM-SHA-512", "operator", "operator's")
OPTIONAL_LOGIN = ClientSecurity("SASL_PLAINTEXT", is_login_optional=True).with_login(
    "SCRAM-SHA-512", "operator", "operator's"
)
JAAS = "listener.name.plaintext.scram-sha-512.sasl.jaas.config"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
REQUIRED = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    JAAS: f'{SCRAM_MODULE} required username="broker" password="brokers\'" user_operator="operator\'s";',
    "authorizer.class.name": "StandardAuthorizer",
    "super.users": "User:broker;User:operator",
}
OPTIONAL = REQUIRED | {
    "sasl.inter.broker.optional": "true",
    "super.users": "User:broker;User:operator;User:ANONYMOUS",
}


def roll(cluster: ProcessCluster, settings: dict[str, str], topic: str) -> None:
    """Restarts one broker after the other with these settings instead of those of OPTIONAL and of
    TLS, and produces records after each restart.
    """
    for broker in cluster.brokers.values():
        assert broker.stop() == 0
        kept = {key: it for key, it in broker.settings.items() if key not in OPTIONAL and not key.startswith("ssl.")}
        broker.settings = kept | settings
        broker.start()
        cluster.wait_until_healthy()
        rd.produce(cluster.bootstrap, topic, messages(), **login_of(cluster))


def login_of(cluster: ProcessCluster) -> dict[str, Any]:
    """Login and authorities as settings of librdkafka; empty if clients need no login."""
    security = cluster.security
    if not security.uses_sasl or security.is_login_optional:
        return {}
    return {
        "security_protocol": security.protocol,
        **({"ssl_ca_pem": security.trusted_certificates} if security.uses_tls else {}),
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": LOGIN.username,
        "sasl_password": LOGIN.password,
    }


@pytest.mark.slow
def test_brokers_get_logins_and_lose_them_one_restart_after_the_other() -> None:
    with run_cluster("ottla", 3) as cluster:
        admin = rd.admin_client(cluster.bootstrap)
        admin.create_topics([NewTopic("orders", 1, 3)])["orders"].result(WITHIN_S)
        rd.produce(cluster.bootstrap, "orders", messages())
        cluster.security = OPTIONAL_LOGIN
        roll(cluster, OPTIONAL, "orders")
        cluster.security = LOGIN
        roll(cluster, REQUIRED, "orders")
        for security in (UNSECURED, ClientSecurity("SASL_PLAINTEXT").with_login("SCRAM-SHA-512", "operator", "no")):
            cluster.security = security
            with pytest.raises((KafkaError, OSError)):
                cluster.metadata(1)
        cluster.security = LOGIN
        roll(cluster, OPTIONAL, "orders")
        cluster.security = OPTIONAL_LOGIN
        roll(cluster, {}, "orders")
        cluster.security = UNSECURED
        assert len(rd.consume(cluster.bootstrap, "orders")) == 13 * len(messages())


def test_brokers_get_tls_and_logins_together_and_lose_them_again(tmp_path: Path) -> None:
    authority = create_certificate_authority(tmp_path / "authority", ["127.0.0.1"], ["localhost"])
    tls = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL",
        "ssl.keystore.location": str(authority.write_keystore()),
        "ssl.truststore.location": str(authority.certificate),
    }
    trusted = authority.certificate.read_text()
    login = replace(LOGIN, protocol="SASL_SSL", trusted_certificates=trusted)
    optional = OPTIONAL | tls | {"ssl.inter.broker.optional": "true"}
    with run_cluster("ottla", 3) as cluster:
        admin = rd.admin_client(cluster.bootstrap)
        admin.create_topics([NewTopic("orders", 1, 3)])["orders"].result(WITHIN_S)
        cluster.security = replace(login, is_login_optional=True, is_tls_optional=True)
        roll(cluster, optional, "orders")
        false_authority = create_certificate_authority(tmp_path / "false", ["127.0.0.1"], ["localhost"])
        distrusting = replace(cluster.security, trusted_certificates=false_authority.certificate.read_text())
        cluster.security = distrusting
        with pytest.raises((KafkaError, OSError)):  # it does not fall back to a connection without TLS
            cluster.metadata(1)
        cluster.security = login
        assert cluster.is_healthy()
        roll(cluster, REQUIRED | tls, "orders")
        for security in (UNSECURED, LOGIN, replace(login, password="no")):
            cluster.security = security
            with pytest.raises((KafkaError, OSError)):
                cluster.metadata(1)
        cluster.security = login
        roll(cluster, optional, "orders")
        cluster.security = replace(login, is_login_optional=True, is_tls_optional=True)
        roll(cluster, {}, "orders")
        cluster.security = UNSECURED
        assert len(rd.consume(cluster.bootstrap, "orders")) == 12 * len(messages())


def write_login(folder: Path, cluster: ProcessCluster, user: str, **others: str) -> None:
    """Writes another login module to the file of all brokers. Returns when each broker uses it.
    `others`: passwords of the other users that it accepts.
    """
    before = {number: reload_count(cluster, number) for number in cluster.brokers}
    accepted = " ".join(f'user_{name}="{password}"' for name, password in others.items())
    new = folder / "new"
    new.write_text(f'{SCRAM_MODULE} required username="{user}" password="of {user}" {accepted};')
    new.replace(folder / "login")
    eventually(lambda: all(reload_count(cluster, number) > before[number] for number in before), within_s=30)


def find_failed_logins(log: str) -> list[str]:
    return [it for it in log.splitlines() if "login from" in it and "failed" in it]


def reload_count(cluster: ProcessCluster, number: int) -> int:
    return cluster.brokers[number].log_tail(1_000_000).count("login modules have changed")


def test_brokers_change_their_passwords_without_a_restart(tmp_path: Path) -> None:
    with run_cluster("ottla", 3, start=False) as cluster:
        both = {"operator": "operator's", "operator2": "the operator's next"}
        for broker in cluster.brokers.values():
            broker.settings |= REQUIRED | {
                JAAS: f"${{directory:{tmp_path}:login}}",
                "super.users": "User:broker;User:broker2;User:operator;User:operator2",
            }
        module = f'{SCRAM_MODULE} required username="broker" password="of broker" user_operator="operator\'s";'
        (tmp_path / "login").write_text(module)
        cluster.security = LOGIN
        cluster.start()
        pids = [it.pid for it in cluster.brokers.values()]
        write_login(tmp_path, cluster, "broker", broker2="of broker2", operator="operator's")
        write_login(tmp_path, cluster, "broker2", broker="of broker", **both)
        cluster.security = LOGIN.with_login("SCRAM-SHA-512", "operator2", "the operator's next")
        assert cluster.is_healthy()
        write_login(tmp_path, cluster, "broker2", operator2="the operator's next")
        (tmp_path / "new").write_text("no login module")
        (tmp_path / "new").replace(tmp_path / "login")
        eventually(
            lambda: all(
                "changed login modules are not used" in it.log_tail(1_000_000) for it in cluster.brokers.values()
            ),
            within_s=30,
        )
        cluster.wait_until_healthy()
        login: dict[str, Any] = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_username": "operator2",
            "sasl_password": "the operator's next",
        }
        rd.produce(cluster.bootstrap, "orders", messages(), **login)
        cluster.wait_until_healthy()
        assert [it.pid for it in cluster.brokers.values()] == pids
        failed = [it for broker in cluster.brokers.values() for it in find_failed_logins(broker.log_tail(1_000_000))]
        assert not failed, "each step accepts the logins of the steps beside it"
        for name, password in (("operator", "operator's"), ("broker", "of broker")):
            cluster.security = LOGIN.with_login("SCRAM-SHA-512", name, password)
            with pytest.raises((KafkaError, OSError)):
                cluster.metadata(1)
