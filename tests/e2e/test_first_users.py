"""The first users of a secured cluster: `--add-scram` adds them at the first start, before a client
is served. A broker whose only listener asks for a login is never open.
"""

from typing import Any

import confluent_kafka as ck
import pytest

from tests.brokers import BrokerProcess, run_ottla_broker
from tests.clients import librdkafka as rd
from tests.clients.sample_messages import START_MS, Message

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
USERS = ("admin", "producer")


def secure(broker: BrokerProcess, *options: str) -> None:
    """Sets one listener with SCRAM, for clients and brokers. `options`: for the command line."""
    broker.settings |= {
        "listeners": f"LOGIN://127.0.0.1:{broker.port}",
        "listener.security.protocol.map": "LOGIN:SASL_PLAINTEXT",
        "inter.broker.listener.name": "LOGIN",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "listener.name.login.scram-sha-256.sasl.jaas.config": (
            f'{MODULE} required username="admin" password="admin-secret";'
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    start = broker.command
    broker.command = lambda it: [*start(it), *options]


def login(user: str, password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": password,
    }


def can_list_topics(broker: BrokerProcess, **settings: str) -> bool:
    client = ck.Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, **settings})
    try:
        client.list_topics(timeout=5)
    except ck.KafkaException:
        return False
    return True


@pytest.mark.parametrize("restarts", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_users_of_the_first_start_log_in_and_nobody_else_does(restarts: int) -> None:
    added = [f"SCRAM-SHA-256=[name={user},password={user}-secret]" for user in USERS]
    with run_ottla_broker(start=False) as broker:
        secure(broker, *(part for one in added for part in ("--add-scram", one)))
        broker.start()
        for _ in range(restarts):
            broker.restart()
        for user in USERS:
            assert can_list_topics(broker, **login(user, f"{user}-secret"))
            assert not can_list_topics(broker, **login(user, "wrong"))
        assert not can_list_topics(broker, **login("nobody", "admin-secret"))
        assert not can_list_topics(broker)
        settings: dict[str, Any] = {
            name.replace(".", "_"): value for name, value in login("admin", "admin-secret").items()
        }
        assert rd.produce(broker.bootstrap, "first", [Message(None, b"1", START_MS)], **settings) == [0]
