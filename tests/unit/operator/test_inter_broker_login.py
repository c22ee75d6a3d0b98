"""The login between brokers, and its roll-out while they run."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.config import Config
from ottla_broker.security.authorizer import Operation, ResourceType
from ottla_broker.security.jaas import parse_jaas_config
from ottla_broker.security.restricted_super_users import parse_restricted_super_users
from ottla_broker.wire.client_security import UNSECURED
from ottla_operator.plan.inter_broker_login import (
    LOGIN_MODULE,
    VERSION_SETTING,
    InterBrokerLogin,
    LoginPasswords,
    observed_login,
    operator_security,
    plan_login,
)
from ottla_operator.plan.objects.config import common_settings
from ottla_operator.plan.password_rotation import LoginSecret, UnusableLogin
from ottla_operator.resources.cluster import Cluster
from tests.unit.operator import samples

NONE, OPTIONAL, REQUIRED = InterBrokerLogin
SCRAM = {"name": "safe", "port": 9094, "authentication": "SCRAM"}
PLAIN = {"name": "plain", "port": 9092}


def cluster(*listeners: dict[str, Any], **spec: Any) -> Cluster:
    resource = samples.cluster(listeners=list(listeners), **spec)
    return Cluster.parse({**resource, "metadata": {**resource["metadata"], "namespace": "default"}})


SECURED = cluster(SCRAM, authorization={"type": "ACL", "superUsers": ["User:admin"]})
OPEN = cluster(SCRAM, PLAIN)


def test_brokers_of_a_new_cluster_require_a_login_if_every_listener_does() -> None:
    assert plan_login(SECURED, []) is plan_login(cluster(SCRAM), []) is REQUIRED
    settings = common_settings(SECURED, 3, REQUIRED)
    assert settings["listener.security.protocol.map"] == "INTER_BROKER:SASL_PLAINTEXT,SAFE:SASL_PLAINTEXT"
    assert settings["super.users"] == "User:ottla-broker;User:ottla-broker-2;User:admin"
    assert "sasl.inter.broker.optional" not in settings


def test_a_cluster_with_an_open_listener_has_no_login_between_brokers() -> None:
    assert plan_login(OPEN, []) is plan_login(cluster(PLAIN), []) is NONE
    settings = common_settings(OPEN, 3, NONE)
    assert settings["listener.security.protocol.map"].startswith("INTER_BROKER:PLAINTEXT,")
    assert not [it for it in settings if it.startswith("listener.name.inter_broker")]


def can_reach(one: InterBrokerLogin, other: InterBrokerLogin) -> bool:
    """True if a broker with one login can connect to a broker with the other."""
    return {one, other} != {NONE, REQUIRED}


@given(
    running=st.lists(st.sampled_from([*InterBrokerLogin]), min_size=1, max_size=5).filter(
        lambda logins: not {NONE, REQUIRED} <= {*logins}
    ),
    wanted=st.sampled_from([SECURED, OPEN]),
    data=st.data(),
)
def test_brokers_reach_each_other_at_every_step_of_a_roll(
    running: list[InterBrokerLogin], wanted: Cluster, data: st.DataObject
) -> None:
    target = plan_login(wanted, [])
    for _ in range(2 * len(running)):
        planned = plan_login(wanted, running)
        outdated = [at for at, it in enumerate(running) if it is not planned]
        if not outdated:
            break
        running[data.draw(st.sampled_from(outdated))] = planned
        assert all(can_reach(one, other) for one in running for other in running)
    assert {*running, plan_login(wanted, running)} == {target}


@pytest.mark.parametrize("login", InterBrokerLogin)
def test_login_of_a_running_broker_is_read_from_its_settings(login: InterBrokerLogin) -> None:
    assert observed_login(common_settings(OPEN, 1, login)) is login


def test_super_users_lose_anonymous_with_the_last_broker_without_a_login() -> None:
    assert common_settings(SECURED, 3, OPTIONAL)["super.users"].split(";")[0] == "User:ANONYMOUS"
    assert "User:ANONYMOUS" not in common_settings(SECURED, 3, REQUIRED)["super.users"]


def test_the_operator_may_administer_and_neither_reads_records_nor_acts_as_a_broker() -> None:
    settings = common_settings(SECURED, 3, REQUIRED)
    users = parse_restricted_super_users(settings["restricted.super.users"])
    assert [*users] == ["User:ottla-operator", "User:ottla-operator-2"]
    rights, other = users.values()
    assert rights == other
    assert (ResourceType.cluster, Operation.alter) in rights
    refused = {
        (ResourceType.topic, Operation.read),
        (ResourceType.group, Operation.read),
        (ResourceType.group, Operation.delete),
        (ResourceType.cluster, Operation.cluster_action),
    }
    assert not rights & refused
    assert "restricted.super.users" not in common_settings(OPEN, 3, NONE)


def test_brokers_start_with_the_login_module_of_the_secret() -> None:
    secret = LoginSecret.generate()
    values, passwords = secret.to_values(), secret.current
    assert LoginSecret.parse(values) == secret
    module = parse_jaas_config(values[LOGIN_MODULE])
    assert (module.username, module.password) == ("ottla-broker", passwords.broker)
    assert module.users == {"ottla-operator": passwords.operator}
    local = {"node.id": "1", "listeners": "INTER_BROKER://127.0.0.1:9091,SAFE://127.0.0.1:9094", "log.dirs": "/data"}
    address_settings = ("http.listener", "advertised.listeners", "controller.quorum.bootstrap.servers")
    settings = {
        key: values[LOGIN_MODULE] if key.endswith(LOGIN_MODULE) else "1" if key == VERSION_SETTING else it
        for key, it in common_settings(SECURED, 1, REQUIRED).items()
        if key not in address_settings
    }
    assert not Config.of(settings | local).notes


def test_passwords_are_in_no_text_that_is_logged() -> None:
    passwords = LoginPasswords.generate()
    texts = [repr(passwords), passwords.digest, repr(operator_security(passwords, [REQUIRED]))]
    assert not [it for it in texts if passwords.broker in it or passwords.operator in it]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"operator.password": ""}, "operator.password: it has 0 characters; a password has at least 24 characters"),
        ({"broker.password": "short"}, "broker.password: it has 5 characters; a password has at least 24 characters"),
        ({"rotation": "[]"}, "rotation: it is not the state of a rotation"),
    ],
)
def test_an_invalid_secret_is_not_used(changed: dict[str, str], message: str) -> None:
    with pytest.raises(UnusableLogin, match=message):
        LoginSecret.parse({**LoginSecret.generate().to_values(), **changed})


def test_an_empty_secret_is_not_used() -> None:
    with pytest.raises(UnusableLogin, match=r"broker\.password: it is missing"):
        LoginSecret.parse({})


def test_the_operator_goes_without_a_login_only_where_a_broker_has_none() -> None:
    passwords = LoginPasswords.generate()
    assert operator_security(None, [NONE]) == operator_security(passwords, [NONE]) == UNSECURED
    assert operator_security(passwords, [OPTIONAL, NONE]).is_login_optional
    for running in ([OPTIONAL], [REQUIRED], [OPTIONAL, REQUIRED]):
        security = operator_security(passwords, running)
        assert security.username == "ottla-operator" and not security.is_login_optional
