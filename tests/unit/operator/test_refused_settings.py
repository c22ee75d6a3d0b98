"""Settings that no broker could be started with are found from the broker's own table, before a
broker is started.
"""

from pathlib import Path
from typing import Any

import pytest

from ottla_broker.config import BROKER_SETTINGS, Config
from ottla_operator.local.documents import InvalidFiles, read_file
from ottla_operator.plan.broker_processes import plan_broker_processes
from ottla_operator.plan.inter_broker_login import InterBrokerLogin
from ottla_operator.plan.objects.config import common_settings
from ottla_operator.plan.refused_settings import OPERATOR_SETTINGS, find_refused_settings
from ottla_operator.plan.settings import replication_defaults
from ottla_operator.resources.cluster import Cluster
from tests.unit.operator import samples


def refused_settings(config: dict[str, Any], **spec: Any) -> list[tuple[str | None, str]]:
    return [(it.name, it.reason) for it in find_refused_settings(Cluster.parse(samples.cluster(config=config, **spec)))]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("num.partitons", 3, "num.partitons is no setting of a broker; did you mean num.partitions?"),
        ("num.partitions", 0, "num.partitions cannot be '0'; allowed: a 32-bit integer, at least 1"),
        ("num.partitions", "many", "num.partitions cannot be 'many'; allowed: a 32-bit integer, at least 1"),
        ("auto.create.topics.enable", "yes", "auto.create.topics.enable cannot be 'yes'; allowed: true or false"),
        ("ssl.cipher.suites", "AES", "ssl.cipher.suites=AES is refused: the ciphers are OpenSSL's default"),
        ("listeners", "PLAIN://:1", "listeners cannot be set here: it follows from spec.listeners"),
        ("broker.id", 4, "broker.id cannot be set here: the operator sets it"),
    ],
)
def test_the_reason_names_setting_value_and_what_is_allowed(name: str, value: object, reason: str) -> None:
    assert refused_settings({name: value}) == [(name, reason)]


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"auto.create.topics.enable": False, "num.partitions": "3", "log.retention.ms": -1},
        {"num.network.threads": 8, "connections.max.reauth.ms": 60000},
        {"num.partitions": "${env:PARTITIONS}"},
        {"listener.name.plain.ssl.enabled.protocols": "TLSv1.3"},
    ],
    ids=str,
)
def test_settings_that_brokers_accept_are_not_refused(config: dict[str, Any]) -> None:
    assert refused_settings(config) == []


def test_settings_that_exclude_each_other_are_refused_together() -> None:
    found = refused_settings({"broker.heartbeat.interval.ms": 5000, "broker.session.timeout.ms": 4000})
    assert found == [
        (None, "broker.heartbeat.interval.ms (5000) must not exceed broker.session.timeout.ms (4000)"),
    ]
    assert refused_settings({"listener.name.other.ssl.enabled.protocols": "TLSv1.3"})[0][1].endswith(
        "no listener in listeners"
    )


@pytest.mark.parametrize("tls", [{}, {"tls": {"secretRef": {"name": "x"}}}], ids=["plain", "tls"])
def test_settings_that_the_operator_sets_are_refused_in_a_cluster_unless_they_are_defaults(tls: dict[str, Any]) -> None:
    listener = {"name": "plain", "port": 9092, **({"tls": True, "authentication": "TLS"} if tls else {})}
    cluster = Cluster.parse(samples.cluster(listeners=[listener], rack={"topologyKey": "zone"}, **tls))
    certificates = {"demo": Path("/certificates")} if tls else {}
    (process,) = plan_broker_processes([cluster], Path("/home"), certificates=certificates)
    login = InterBrokerLogin.OPTIONAL if tls else InterBrokerLogin.NONE
    set_by_operator = common_settings(cluster, 1, login).keys() | process.settings.keys()
    defaults = set(replication_defaults(3))
    assert {it for it in set_by_operator - defaults if not it.startswith("listener.name.")} <= OPERATOR_SETTINGS.keys()


def test_operator_settings_are_settings_of_brokers() -> None:
    assert OPERATOR_SETTINGS.keys() - {"broker.id", "cluster.id"} <= BROKER_SETTINGS.keys()


def test_settings_that_are_not_refused_are_valid_as_a_whole() -> None:
    """The settings that a broker of `ottla up` gets are valid as a whole."""
    cluster = Cluster.parse(samples.cluster(config={"num.partitions": 3, "log.retention.ms": 5}))
    assert find_refused_settings(cluster) == ()
    (process,) = plan_broker_processes([cluster], Path("/home"))
    assert Config.of(process.settings).node_id == 1


def test_ottla_up_names_file_and_line_of_a_refused_setting(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "apiVersion: ottla.dev/v1alpha1\nkind: Cluster\nmetadata: {name: demo}\n"
        "spec:\n  replicas: 1\n  config:\n    num.partitions: 3\n    num.partitons: 4\n"
    )
    with pytest.raises(InvalidFiles) as found:
        read_file(file)
    (line,) = found.value.lines
    assert line.startswith(f"{file}:8: spec.config.num.partitons: num.partitons is no setting of a broker")
