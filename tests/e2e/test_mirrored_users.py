"""A mirror that copies SCRAM credentials, between two brokers with logins."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import confluent_kafka as ck
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from ottla_broker.security.acls import AccessControlEntry, PatternType, Permission
from ottla_broker.security.authorizer import Operation, ResourceType
from ottla_operator.kafka import acls
from ottla_operator.kafka.client import connect
from tests.brokers import BrokerProcess, run_ottla_broker
from tests.e2e.mirroring import set_mirror
from tests.ports import free_port
from tests.waiting import eventually

MECHANISM: Final = "SCRAM-SHA-512"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
REFUSED: Final = "credentials cannot be read (users): "


@contextmanager
def run_login_broker() -> Iterator[tuple[BrokerProcess, str]]:
    """Yields a broker with an authorizer, and the address of its listener with logins."""
    with run_ottla_broker(start=False) as broker:
        login = f"127.0.0.1:{free_port()}"
        broker.settings |= {
            "listeners": f"PLAINTEXT://127.0.0.1:{broker.port},LOGIN://{login}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.name.login.sasl.enabled.mechanisms": MECHANISM,
            f"listener.name.login.{MECHANISM.lower()}.sasl.jaas.config": SCRAM_MODULE,
            "authorizer.class.name": "StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:root",
            "restricted.super.users": "User:deputy=Cluster:Alter",
        }
        broker.start()
        yield broker, login


def alter(broker: BrokerProcess, change: UserScramCredentialUpsertion | UserScramCredentialDeletion) -> None:
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    for done in client.alter_user_scram_credentials([change]).values():
        done.result(10)


def set_password(broker: BrokerProcess, user: str, password: str) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion(user, info, password.encode())
    alter(broker, change)


def allow(broker: BrokerProcess, kind: ResourceType, name: str, operation: Operation) -> None:
    """Creates a rule that allows the mirror's user this operation."""
    entry = AccessControlEntry(kind, name, PatternType.LITERAL, "User:mirror", "*", operation, Permission.ALLOW)

    async def create() -> None:
        async with connect(broker.bootstrap) as client:
            assert await acls.create_acls(client, [entry]) == {}

    asyncio.run(create())


def can_log_in(address: str, user: str, password: str) -> bool:
    login = {"sasl.mechanism": MECHANISM, "sasl.username": user, "sasl.password": password}
    client = AdminClient({"bootstrap.servers": address, "security.protocol": "SASL_PLAINTEXT", **login})
    try:
        client.list_topics(timeout=2)
    except ck.KafkaException:
        return False
    return True


def mirror_settings(source: str) -> dict[str, str]:
    return {
        "bootstrap.servers": source,
        "topics": "orders",
        "users": "*",
        "metadata.max.age.ms": "200",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": MECHANISM,
        "sasl.username": "mirror",
        "sasl.password": "secret",
    }


def test_users_log_in_at_the_target_with_their_passwords() -> None:
    with run_login_broker() as (source, source_login), run_login_broker() as (target, target_login):
        for user in ("mirror", "alice", "own", "root", "deputy"):
            set_password(source, user, "secret")
        set_password(target, "own", "another")
        set_mirror(target.bootstrap, "west", mirror_settings(source_login))
        eventually(lambda: REFUSED in target.log_tail(), within_s=30, message=target.log_tail)
        assert not can_log_in(target_login, "alice", "secret")
        allow(source, ResourceType.cluster, "kafka-cluster", Operation.describe)
        eventually(lambda: "delegation_token_authorization_failed" in target.log_tail(), within_s=30)
        allow(source, ResourceType.user, "*", Operation.describe_tokens)
        eventually(lambda: can_log_in(target_login, "alice", "secret"), within_s=30, message=target.log_tail)
        assert "credentials of deputy, own, root are not copied" in target.log_tail()
        assert can_log_in(target_login, "own", "another") and not can_log_in(target_login, "own", "secret")
        assert not can_log_in(target_login, "root", "secret"), "a super user of the target has the source's password"
        assert not can_log_in(target_login, "deputy", "secret"), (
            "a restricted super user of the target has the source's password"
        )
        set_password(source, "alice", "changed")
        eventually(lambda: can_log_in(target_login, "alice", "changed"), within_s=30, message=target.log_tail)
        target.stop()
        target.start()
        alter(source, UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_512))
        eventually(lambda: not can_log_in(target_login, "alice", "changed"), within_s=30, message=target.log_tail)
        assert can_log_in(target_login, "own", "another")
