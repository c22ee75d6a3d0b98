"""Brokers of clusters as processes on one machine."""

from pathlib import PurePath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.config import Config
from ottla_operator.plan.broker_processes import (
    plan_broker_processes,
    with_founding,
    with_optional_login,
    with_replication_defaults,
)
from ottla_operator.plan.password_rotation import LoginSecret
from ottla_operator.plan.settings import broker_count_for_defaults
from ottla_operator.resources.cluster import Cluster
from tests.unit.operator import samples

HOME = PurePath("/state")


def cluster(name: str = "demo", **spec: object) -> Cluster:
    return Cluster.parse(samples.cluster(name, **spec))


def test_one_broker_has_the_settings_of_its_spec_and_of_its_process() -> None:
    (broker,) = plan_broker_processes([cluster(config={"num.partitions": 3, "auto.create.topics.enable": False})], HOME)
    assert broker.address == "127.0.0.1:9092"
    assert broker.settings["node.id"] == "1"
    assert broker.settings["listeners"] == "PLAIN://127.0.0.1:9092"
    assert broker.settings["log.dirs"] == "/state/demo/1/data"
    assert broker.settings["controller.quorum.bootstrap.servers"] == "127.0.0.1:9092"
    assert (broker.settings["num.partitions"], broker.settings["auto.create.topics.enable"]) == ("3", "false")
    assert broker.settings["offsets.topic.replication.factor"] == "1"


def test_every_broker_has_a_port_of_its_own_for_the_schema_registry() -> None:
    named = cluster(replicas=3, schemaRegistry={"port": 8081}, listeners=[{"name": "in", "port": 8081}])
    plans = plan_broker_processes([named], HOME)
    listeners = [it.settings["schema.registry.listener"] for it in plans]
    assert listeners[0] == "127.0.0.1:8082", "8081 is the port of a listener"
    assert len(set(listeners)) == 3
    assert {it.settings["schema.registry.security.listener"] for it in plans} == {"IN"}
    assert "schema.registry.listener" not in plan_broker_processes([cluster()], HOME)[0].settings


def test_registry_port_that_the_spec_does_not_name_is_not_in_the_settings() -> None:
    """The port may change at each start, and a changed setting would restart the broker."""
    (with_registry,) = plan_broker_processes([cluster(schemaRegistry={})], HOME)
    assert with_registry.registry_port == 8081 and "schema.registry.listener" not in with_registry.settings
    assert with_registry.settings["schema.registry.security.listener"] == "PLAIN"
    first, second = plan_broker_processes([cluster(replicas=2)], HOME, serves_registry=True)
    assert (first.registry_port, second.registry_port) == (8081, 8082)
    assert first.settings == plan_broker_processes([cluster(replicas=2)], HOME)[0].settings
    for spec in ({"enabled": False}, {"port": 9000}):
        (broker,) = plan_broker_processes([cluster(schemaRegistry=spec)], HOME, serves_registry=True)
        assert broker.registry_port is None
        assert ("schema.registry.listener" in broker.settings) == ("port" in spec)


def test_config_of_the_cluster_takes_precedence_over_derived_settings() -> None:
    (broker,) = plan_broker_processes([cluster(config={"offsets.topic.replication.factor": 2})], HOME)
    assert broker.settings["offsets.topic.replication.factor"] == "2"


def test_derived_settings_count_brokers_that_are_being_removed() -> None:
    assert [
        broker_count_for_defaults(desired, over) for desired, over in [(3, ()), (3, {1}), (1, {1, 2, 3}), (1, {1})]
    ] == [3, 3, 3, 1]
    desired = cluster(replicas=1, config={"min.insync.replicas": 1})
    (broker,) = plan_broker_processes([desired], HOME)
    leaving = with_replication_defaults(broker, desired, 3).settings
    assert (leaving["default.replication.factor"], leaving["min.insync.replicas"]) == ("3", "1"), (
        "the config takes precedence"
    )
    assert with_replication_defaults(with_replication_defaults(broker, desired, 3), desired, 1) == broker


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.lists(st.integers(9090, 9096), min_size=1, max_size=3, unique=True)), max_size=3
    )
)
def test_ports_and_folders_are_unique(shapes: list[tuple[int, list[int]]]) -> None:
    clusters = [
        cluster(
            f"c{index}",
            replicas=replicas,
            listeners=[{"name": f"l{at}", "port": port} for at, port in enumerate(ports)],
        )
        for index, (replicas, ports) in enumerate(shapes)
    ]
    brokers = plan_broker_processes(clusters, HOME)
    ports = [port for broker in brokers for port in broker.ports.values()]
    assert len(ports) == len(set(ports))
    assert len({broker.folder for broker in brokers}) == len(brokers) == sum(it.spec.replicas for it in clusters)
    assert plan_broker_processes(clusters, HOME) == brokers
    if clusters:
        assert list(brokers[0].ports.values()) == shapes[0][1]


@pytest.mark.parametrize(("replicas", "factor", "min_isr"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (7, 3, 2)])
def test_settings_are_derived_from_the_number_of_brokers(replicas: int, factor: int, min_isr: int) -> None:
    for broker in plan_broker_processes([cluster(replicas=replicas, config={"offsets.topic.num.partitions": 5})], HOME):
        assert broker.settings["default.replication.factor"] == str(factor)
        assert broker.settings["offsets.topic.replication.factor"] == str(factor)
        assert broker.settings["min.insync.replicas"] == str(min_isr)
        assert broker.settings["offsets.topic.num.partitions"] == "5"


def test_brokers_have_consecutive_ports() -> None:
    assert [it.address for it in plan_broker_processes([cluster(replicas=3)], HOME)] == [
        f"127.0.0.1:{port}" for port in (9092, 9093, 9094)
    ]


def test_brokers_of_a_cluster_are_its_bootstrap_servers_and_the_first_may_found_it() -> None:
    brokers = plan_broker_processes(
        [cluster(replicas=3), cluster("other", listeners=[{"name": "b", "port": 9200}])], HOME
    )
    servers = [it.settings["controller.quorum.bootstrap.servers"] for it in brokers]
    assert servers == 3 * ["127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"] + ["127.0.0.1:9200"]
    assert not any("cluster.found" in it.settings for it in brokers)
    assert [with_founding(it).settings.get("cluster.found") for it in brokers[:3]] == ["true", None, None]


def test_larger_cluster_does_not_change_ports_of_others() -> None:
    other = cluster("other", replicas=1, listeners=[{"name": "plain", "port": 9093}])
    small, large = (plan_broker_processes([cluster(replicas=it), other], HOME) for it in (1, 3))
    assert small[-1] == large[-1]
    assert large[-1].address == "127.0.0.1:9093"


def test_brokers_of_a_smaller_spec_keep_their_ports_and_get_its_defaults() -> None:
    three = plan_broker_processes([cluster(replicas=3)], HOME)
    two = plan_broker_processes([cluster(replicas=2)], HOME, {"demo": 3})
    assert [it.ports for it in two] == [it.ports for it in three]
    assert two[2].settings["default.replication.factor"] == "2"


def test_listeners_with_a_login_have_mechanisms_and_brokers_a_listener_of_their_own() -> None:
    wanted = cluster(
        listeners=[{"name": "safe", "port": 9093, "authentication": "SCRAM"}],
        authorization={"type": "ACL", "superUsers": ["User:admin"]},
    )
    (broker,) = plan_broker_processes([wanted], HOME, logins={"demo": HOME / "login"})
    assert dict(broker.ports) == {"safe": 9093, "inter_broker": 9094}
    settings = broker.settings
    assert settings["listener.security.protocol.map"] == "SAFE:SASL_PLAINTEXT,INTER_BROKER:SASL_PLAINTEXT"
    assert settings["inter.broker.listener.name"] == "INTER_BROKER"
    assert settings["listener.name.safe.sasl.enabled.mechanisms"] == "SCRAM-SHA-256,SCRAM-SHA-512"
    assert settings["authorizer.class.name"].endswith("StandardAuthorizer")
    assert settings["super.users"] == "User:ottla-broker;User:ottla-broker-2;User:admin"
    module = "listener.name.inter_broker.scram-sha-512.sasl.jaas.config"
    assert settings[module] == f"${{directory:{HOME}/login:sasl.jaas.config}}"
    assert broker.address == "127.0.0.1:9094"
    assert not Config.of({**settings, module: LoginSecret.generate().to_values()["sasl.jaas.config"]}).notes
    optional = with_optional_login(broker, wanted).settings
    assert optional["super.users"].startswith("User:ANONYMOUS;") and optional["sasl.inter.broker.optional"] == "true"


def test_open_cluster_has_no_authorizer() -> None:
    (broker,) = plan_broker_processes([cluster(authorization={"type": "None"})], HOME)
    assert not {"authorizer.class.name", "super.users"} & broker.settings.keys()


def test_console_is_served_unless_it_is_disabled_or_users_have_no_passwords() -> None:
    plans = plan_broker_processes([cluster(replicas=2)], HOME)
    assert [it.console_port for it in plans] == [10092, 10093]
    assert not [it for it in plans if {"console.enable", "http.listener"} & it.settings.keys()], (
        "another port of the console restarts no broker"
    )
    scram = {"name": "a", "port": 9092, "authentication": "SCRAM"}
    certificates = {"name": "b", "port": 9093, "authentication": "TLS", "tls": True}
    for spec, port in (
        ({"config": {"console.enable": False}}, None),
        ({"listeners": [{"name": "a", "port": 9092, "tls": True}]}, 10092),
        ({"listeners": [scram], "authorization": {"type": "ACL"}}, 10092),
        ({"listeners": [certificates, scram], "authorization": {"type": "ACL"}}, 10093),
        ({"listeners": [certificates]}, None),
    ):
        (broker,) = plan_broker_processes([cluster(**spec)], HOME)
        assert broker.console_port == port, spec
