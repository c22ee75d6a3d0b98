"""A tenant sees nothing of another one in the response of any API in any version.

The rules are those that the operator gives to a User with a tenant. Requests of every API are built
from its schema: without names, which lists everything, and with names of another tenant's topic,
group, transactional id and user. The responses to these names must equal those to names that do not
exist.
"""

import asyncio
import dataclasses
import typing
from collections.abc import Iterator
from types import UnionType
from typing import Any, Final

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla_broker.requests.served_versions import SERVED_VERSIONS
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.channel import open_channel
from ottla_broker.wire.client_security import ClientSecurity
from ottla_broker.wire.codec import request_class
from ottla_operator.kafka import acls, quotas
from ottla_operator.kafka.client import connect
from ottla_operator.plan.user_rules import desired_entries
from ottla_operator.resources.user import User
from tests.brokers import BrokerProcess, add_listeners, run_ottla_broker
from tests.clients.api_session import exchange, has_message_class, type_hints

OTHER: Final = "globex"
PRESENT, ABSENT = f"{OTHER}.orders", f"{OTHER}.absent"
PASSWORD: Final = "secret"
RESPONSE_WITHIN_S: Final = 10.0
MODULES: Final = "org.apache.kafka.common.security"
NON_ZERO_FIELDS: Final[dict[str, dict[str, Any]]] = {
    "produce": {"acks": -1},
    "describe_acls": {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1},
}
"""Fields of requests that must not have the zero value, by API."""
WITHOUT_LOGIN = ("sasl_handshake", "sasl_authenticate")
WITHOUT_NAMES = ("get_telemetry_subscriptions", "push_telemetry")
"""APIs whose requests have no names, and whose responses depend on the time of the last request."""
NOT_TRIED = (*WITHOUT_LOGIN, *WITHOUT_NAMES)
APIS = [ApiKey(key).name.lower() for key in SERVED_VERSIONS if ApiKey(key).name.lower() not in NOT_TRIED]


@dataclasses.dataclass(frozen=True)
class SharedBroker:
    """A broker that two tenants share. `login`: port of its listener with a login."""

    broker: BrokerProcess
    login: int

    def security(self, user: str) -> ClientSecurity:
        return ClientSecurity("SASL_PLAINTEXT").with_login("PLAIN", user, PASSWORD)

    def settings(self, user: str) -> dict[str, Any]:
        login = {"sasl.mechanism": "PLAIN", "sasl.username": user, "sasl.password": PASSWORD}
        return {"bootstrap.servers": f"127.0.0.1:{self.login}", "security.protocol": "SASL_PLAINTEXT", **login}


def tenant_user(tenant: str, name: str) -> User:
    spec = {"clusterRef": {"name": "demo"}, "authentication": {"type": "SCRAM-SHA-512"}, "tenant": tenant}
    return User.parse({"apiVersion": "ottla.dev/v1alpha1", "kind": "User", "metadata": {"name": name}, "spec": spec})


USERS = (tenant_user("acme", "app"), tenant_user(OTHER, "orders"))


@pytest.fixture(scope="module")
def shared() -> Iterator[SharedBroker]:
    with run_ottla_broker(start=False) as broker:
        login = add_listeners(broker, {"LOGIN": "SASL_PLAINTEXT"})["LOGIN"]
        users = " ".join(f'user_{it.user_name}="{PASSWORD}"' for it in USERS)
        broker.settings |= {
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.name.login.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.login.plain.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required {users};",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "delegation.token.secret.key": "for tests",
        }
        broker.start()
        shared_broker = SharedBroker(broker, login)
        asyncio.run(give_rules_and_quotas(broker))
        for it in USERS:
            create_resources(shared_broker, it)
        yield shared_broker


async def give_rules_and_quotas(broker: BrokerProcess) -> None:
    async with connect(broker.bootstrap) as client:
        for it in USERS:
            entries = desired_entries(it, f"User:{it.user_name}", {})
            assert entries and not await acls.create_acls(client, list(entries))
            change = quotas.QuotaChange(quotas.user_entity(it.user_name), {"producer_byte_rate": 1e9})
            assert not await quotas.alter_quotas(client, [change])


def create_resources(shared: SharedBroker, user: User) -> None:
    """Creates a topic with a record and a group with an offset, as a tenant's user."""
    settings, name = shared.settings(user.user_name), f"{user.spec.tenant}.orders"
    admin = AdminClient(settings)
    for done in admin.create_topics([NewTopic(name, 2)]).values():
        done.result(20)
    producer = ck.Producer(settings)
    producer.produce(name, name.encode(), partition=0)
    assert producer.flush(20) == 0
    consumer = ck.Consumer({**settings, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe([name])
    message = consumer.poll(20)
    assert message is not None and message.error() is None
    consumer.commit(message, asynchronous=False)
    consumer.close()


def name_everything(hint: Any, name: str, field: str = "") -> Any:
    """A value of a request's field in which every text is `name` and every list has one entry."""
    if typing.get_origin(hint) in (UnionType, typing.Union):
        hint = next(it for it in typing.get_args(hint) if it is not type(None))
    if typing.get_origin(hint) is tuple:
        return [name_everything(typing.get_args(hint)[0], name, field)]
    if dataclasses.is_dataclass(hint):
        hints = type_hints(typing.cast(type, hint))
        return {it.name: name_everything(hints[it.name], name, it.name) for it in dataclasses.fields(hint)}
    base = hint
    while not isinstance(base, type):
        base = base.__supertype__
    if field in ("resource_type", "resource_type_filter"):
        return TOPIC
    return name if issubclass(base, str) else None


TOPIC: Final = 2


def without_unset(value: Any) -> Any:
    """The value without fields that are None, at any depth."""
    if isinstance(value, dict):
        return {key: without_unset(it) for key, it in value.items() if it is not None}
    return [without_unset(it) for it in value if it is not None] if isinstance(value, list) else value


async def response_as_text(shared: SharedBroker, api: str, version: int, fields: dict[str, Any]) -> str:
    """The response as text; or that the connection was closed."""
    channel = await open_channel("127.0.0.1", shared.login, "acme", security=shared.security("acme.app"))
    try:
        return repr(await asyncio.wait_for(exchange(channel, api, version, fields), RESPONSE_WITHIN_S))
    except ConnectionError:
        return "the connection is closed"
    finally:
        channel.close()


def versions(api: str) -> list[int]:
    first, last = SERVED_VERSIONS[int(ApiKey[api.upper()])]
    return [it for it in range(first, last + 1) if has_message_class(api, it)]


@pytest.mark.parametrize("api", APIS)
def test_listings_omit_resources_of_other_tenants(shared: SharedBroker, api: str) -> None:
    for version in versions(api):
        shown = asyncio.run(response_as_text(shared, api, version, NON_ZERO_FIELDS.get(api, {})))
        assert OTHER not in shown, f"{api} {version}: {shown}"


@pytest.mark.parametrize("api", APIS)
def test_a_name_of_another_tenant_gets_the_response_of_one_that_does_not_exist(shared: SharedBroker, api: str) -> None:
    for version in versions(api):
        cls = request_class(int(ApiKey[api.upper()]), version)
        shown = []
        for it in (PRESENT, ABSENT):
            fields = {**without_unset(name_everything(cls, it)), **NON_ZERO_FIELDS.get(api, {})}
            shown.append(asyncio.run(response_as_text(shared, api, version, fields)).replace(it, "NAME"))
        assert shown[0] == shown[1], f"{api} {version}"


def test_a_tenant_sees_what_is_its_own(shared: SharedBroker) -> None:
    """Shows that the lists in the tests above are empty because of the tenant."""
    shown = {
        api: asyncio.run(response_as_text(shared, api, versions(api)[-1], NON_ZERO_FIELDS.get(api, {})))
        for api in ("metadata", "list_groups", "describe_topic_partitions")
    }
    assert all("acme.orders" in it for it in shown.values()), shown
    admin = AdminClient(shared.settings("acme.app"))
    assert list(admin.list_topics(timeout=10).topics) == ["acme.orders"]
    assert [it.group_id for it in admin.list_consumer_groups().result(10).valid] == ["acme.orders"]
