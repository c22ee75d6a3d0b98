"""Apache Kafka and Ottla with the same users and access rules.

Clients of the listener `LOGIN` log in by PLAIN, with their name as password. Those of the broker's
own port are the super user `ANONYMOUS`. Kafka's controller has a listener of its own, to which
requests between brokers go; Ottla serves them on `LOGIN`.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from ottla_broker.wire.channel import Channel, open_channel
from ottla_broker.wire.client_security import ClientSecurity
from tests.brokers import BrokerProcess, add_listeners, run_apache_kafka, run_ottla_broker
from tests.jars import KAFKA

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
HOST: Final = "127.0.0.1"


@dataclass(frozen=True)
class SecuredBroker:
    """A broker whose own port, `broker.port`, is for super users. `login` is the port for users,
    `controller` the port for requests between brokers.
    """

    broker: BrokerProcess
    login: int
    controller: int

    async def open_as(self, user: str, *, to_controller: bool = False, client_id: str = "walk") -> Channel:
        """A connection of a user. If `user` is empty, one of the super user, to the broker's own
        port.
        """
        if not user:
            return await open_channel(HOST, self.broker.port, client_id)
        login = ClientSecurity("SASL_PLAINTEXT").with_login("PLAIN", user, user)
        port = self.controller if to_controller else self.login
        return await open_channel(HOST, port, client_id, security=login)


@contextmanager
def run_secured_pair(
    users: Iterable[str], kafka_settings: Mapping[str, Any] | None = None, kafka: str = KAFKA, **settings: Any
) -> Iterator[tuple[SecuredBroker, SecuredBroker]]:
    """Runs both brokers, and yields Apache Kafka first. `kafka` is its version; `kafka_settings`
    are only for Kafka, `settings` for both.
    """
    named = list(users)
    with (
        run_apache_kafka(version=kafka, start=False, **settings, **(kafka_settings or {})) as theirs,
        run_ottla_broker(start=False, **settings) as ours,
    ):
        yield _start(theirs, named), _start(ours, named)


def _start(broker: BrokerProcess, users: list[str]) -> SecuredBroker:
    accounts = " ".join(f'user_{user}="{user}"' for user in users)
    ports = add_listeners(broker, {"LOGIN": "SASL_PLAINTEXT"}, controller_protocol="SASL_PLAINTEXT")
    if broker.kind == "kafka":
        own = 'username="admin" password="admin" user_admin="admin"'
        broker.settings |= {
            "listener.name.controller.plain.sasl.jaas.config": f"{PLAIN_MODULE} {own} {accounts};",
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
        }
    broker.settings |= {
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": f"{PLAIN_MODULE} {accounts};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "delegation.token.secret.key": "a secret of the brokers",
        "super.users": "User:ANONYMOUS;User:admin",
    }
    broker.start()
    return SecuredBroker(broker, ports["LOGIN"], ports.get("CONTROLLER", ports["LOGIN"]))
