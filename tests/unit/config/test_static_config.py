"""Configs at start: files, --set, precedence, and an error message for each problem."""

import socket
from pathlib import Path

import pytest

from ottla_broker.config import (
    BROKER_NODE,
    BROKER_RACK,
    LOG_RETENTION_MS,
    NUM_PARTITIONS,
    TOPIC_RETENTION_MS,
    TOPIC_SEGMENT_MS,
    Config,
    Listener,
    SettingError,
    find_setting_problems,
)

SASL_BETWEEN_BROKERS = {
    "listeners": "SASL_SSL://:1",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
}
PLAIN_LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="broker" password="one" user_broker="two";'
)
# The keys and the format of the file that Kafka ships for a single node.
KAFKA_FILE = """\
process.roles=broker,controller
node.id=7
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
log.dirs=/data/kafka
num.recovery.threads.per.data.dir=1
share.coordinator.state.topic.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
"""


def problems(values: dict[str, str]) -> tuple[str, ...]:
    with pytest.raises(SettingError) as raised:
        Config.of({"log.dirs": "/data", **values})
    return raised.value.problems


def test_file_of_kafka_is_accepted_with_notes_about_settings_without_effect(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(KAFKA_FILE)
    config = Config.load([file])
    assert config.node_id == 7
    assert config.listeners == (Listener("PLAINTEXT", "", 9092),)
    assert config.advertised_listeners == (Listener("PLAINTEXT", "localhost", 9092),)
    assert config.inter_broker_listener == "PLAINTEXT"
    assert f"{file}:9: num.network.threads has no effect" in "\n".join(config.notes)
    assert len(config.notes) == 5
    assert config.quorum_bootstrap_servers == ()


def test_later_files_and_set_take_precedence_and_duplicate_keys_are_reported(tmp_path: Path) -> None:
    first, second = tmp_path / "a.properties", tmp_path / "b.properties"
    first.write_text("log.dirs=/a\nnum.partitions=2\nnum.partitions=3\nbroker.rack=one")
    second.write_text("num.partitions=4")
    assert Config.load([first])(NUM_PARTITIONS) == 3
    assert [note for note in Config.load([first]).notes if "num.partitions" in note]
    assert Config.load([first, second])(NUM_PARTITIONS) == 4
    config = Config.load([first, second], ["num.partitions=5"])
    assert config(NUM_PARTITIONS) == 5
    assert config(BROKER_RACK) == "one"


@pytest.mark.parametrize("name", ["ssl.key.password", "listener.name.client.ssl.key.password"])
def test_notes_about_duplicate_keys_have_no_secrets(tmp_path: Path, name: str) -> None:
    file = tmp_path / "a.properties"
    file.write_text(
        f"log.dirs=/a\nlisteners=CLIENT://:1\nlistener.security.protocol.map=CLIENT:PLAINTEXT\n"
        f"{name}=first-secret\n{name}=second-secret"
    )
    (note,) = Config.load([file]).notes
    assert note == f"{file}:5: {name} replaces {name} of {file}:4"


def test_all_problems_of_a_file_are_reported_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("log.dirs=/a\nnum.partiton=2\nlog.segment.bytes=1\nauthorizer.class.name=x.Y\n")
    with pytest.raises(SettingError) as raised:
        Config.load([file])
    assert raised.value.problems == (
        f"{file}:2: num.partiton is no setting of a broker; did you mean num.partitions?",
        f"{file}:3: log.segment.bytes cannot be '1'; allowed: a 32-bit integer, at least 14",
        f"{file}:4: authorizer.class.name cannot be 'x.Y'; allowed: "
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer or nothing",
    )


def test_unreadable_files_are_reported(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"missing\.properties: No such file"):
        Config.load([tmp_path / "missing.properties"])
    binary = tmp_path / "binary"
    binary.write_bytes(b"a=\xff")
    with pytest.raises(SettingError, match="byte 2 is not UTF-8"):
        Config.load([binary])
    (tmp_path / "escape").write_text("a=\\u1")
    with pytest.raises(SettingError, match=r"escape: line 1: "):
        Config.load([tmp_path / "escape"])
    with pytest.raises(SettingError, match="expected key=value"):
        Config.load([], ["num.partitions"])


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"log.dirs": ""}, "log.dirs is not set; allowed: directories separated by commas"),
        ({"log.dirs": "/a,/a"}, "log.dirs names a directory twice"),
        (
            {"listeners": "SASL_SSL://:1", "sasl.enabled.mechanisms": "SCRAM-SHA-512"},
            "brokers would connect to each other on SASL_SSL, which has SASL, and sasl.mechanism.inter.broker.protocol "
            "is not set; allowed: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512",
        ),
        (
            SASL_BETWEEN_BROKERS | {"sasl.enabled.mechanisms": "SCRAM-SHA-256"},
            "sasl.mechanism.inter.broker.protocol is SCRAM-SHA-512; allowed: those of sasl.enabled.mechanisms",
        ),
        (
            SASL_BETWEEN_BROKERS,
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config has no username and password, with which",
        ),
        (
            SASL_BETWEEN_BROKERS
            | {
                "sasl.enabled.mechanisms": "PLAIN",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "listener.name.sasl_ssl.plain.sasl.jaas.config": PLAIN_LOGIN,
            },
            "listener.name.sasl_ssl.plain.sasl.jaas.config has no user_broker with the same password",
        ),
        ({"sasl.enabled.mechanisms": "PLAIN,GSSAPI"}, "(GSSAPI (Kerberos) is not implemented); allowed: a comma-"),
        (
            SASL_BETWEEN_BROKERS
            | {
                "listeners": "SASL_SSL://:1,PLAINTEXT://:2",
                "inter.broker.listener.name": "PLAINTEXT",
                "sasl.enabled.mechanisms": "OAUTHBEARER",
            },
            "with OAUTHBEARER, and sasl.oauthbearer.jwks.endpoint.url is not set; allowed: a URL with https://",
        ),
        ({"sasl.oauthbearer.jwks.endpoint.url": "ftp://a"}, "allowed: a URL with https://, http:// or file://"),
        ({"ssl.principal.mapping.rules": "RULE:a/b"}, "the rule 'RULE:a/b' is malformed"),
        (
            {"listeners": "SASL_SSL://:1"},
            "with SASL, and sasl.enabled.mechanisms is empty; allowed: a comma-separated list of PLAIN",
        ),
        ({"ssl.keystore.type": "JKS"}, "Java keystores cannot be read; provide keys and certificates as PEM"),
        ({"listener.name.x.ssl.client.auth": "none"}, "listener.name.x is the name of no listener in listeners"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "a comma-separated list of TLSv1.2 and TLSv1.3"),
        ({"listeners": "X://:1"}, "listeners has X, to which listener.security.protocol.map assigns no protocol"),
        (
            {"listeners": "PLAINTEXT://:1,Y://:1", "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,Y:PLAINTEXT"},
            "has port 1 twice",
        ),
        ({"advertised.listeners": "X://h:1"}, "advertised.listeners has X; allowed: PLAINTEXT, as in listeners"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "which no client can reach"),
        ({"advertised.listeners": "PLAINTEXT://:1"}, "without a host"),
        ({"inter.broker.listener.name": "X"}, "inter.broker.listener.name is X; allowed: PLAINTEXT"),
        ({"controller.listener.names": "PLAINTEXT"}, "only listeners of controllers"),
        ({"process.roles": "controller"}, "no controllers that are not brokers"),
        ({"group.min.session.timeout.ms": "10", "group.max.session.timeout.ms": "9"}, "must not exceed"),
        (
            {"replica.fetch.wait.max.ms": "30001", "replica.socket.timeout.ms": "40000"},
            "must not exceed replica.lag.time.max.ms (30000)",
        ),
        ({"queued.max.request.bytes": "1000"}, "must not be less than socket.request.max.bytes"),
        ({"register": "file:/r"}, "register=file:/r is refused: brokers elect the controller themselves"),
        ({"remote.log.storage.system.enable": "true"}, "tiered storage is not implemented"),
        ({"listener.name.internal.max.connections.per.ip": "3"}, "is no setting of a broker"),
    ],
)
def test_invalid_values_are_reported(values: dict[str, str], sentence: str) -> None:
    found = problems(values)
    assert len(found) == 1, found
    assert sentence in found[0]


def test_values_that_disable_an_unsupported_feature_are_accepted() -> None:
    Config.of({"log.dirs": "/data", "authorizer.class.name": "", "remote.log.storage.system.enable": "false"})


def test_broker_id_is_an_alias_of_node_id() -> None:
    assert Config.of({"log.dirs": "/data", "broker.id": "3"}).node_id == 3


@pytest.mark.parametrize(
    ("values", "retention_ms"),
    [
        ({}, 7 * 24 * 3_600_000),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-1", "log.retention.hours": "5"}, -1),
    ],
)
def test_milliseconds_take_precedence_over_minutes_and_hours(values: dict[str, str], retention_ms: int) -> None:
    config = Config.of({"log.dirs": "/data", **values})
    assert config.topic_value(TOPIC_RETENTION_MS, {}) == retention_ms
    assert config.log_config({}).retention_ms == retention_ms


def test_log_roll_hours_apply_without_log_roll_ms() -> None:
    config = Config.of({"log.dirs": "/data", "log.roll.hours": "2"})
    assert config.topic_value(TOPIC_SEGMENT_MS, {}) == 7_200_000
    assert config(LOG_RETENTION_MS) is None


def test_advertised_listeners_default_to_the_listeners() -> None:
    config = Config.of(
        {
            "log.dirs": "/data",
            "listeners": "PLAINTEXT://0.0.0.0:0,OUT://:9093,IN://h:1",
            "advertised.listeners": "OUT://out:19093",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUT:PLAINTEXT,IN:PLAINTEXT",
        }
    )
    assert config.advertised_listeners == (
        Listener("PLAINTEXT", "", 0),
        Listener("OUT", "out", 19093),
        Listener("IN", "h", 1),
    )


def test_broker_node_is_the_setting_or_the_environment_variable_or_the_host_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("BROKER_NODE", raising=False)
    assert Config.load([], ["log.dirs=/a"])(BROKER_NODE) == socket.gethostname()
    monkeypatch.setenv("BROKER_NODE", "worker-3")
    assert Config.load([], ["log.dirs=/a"])(BROKER_NODE) == "worker-3"
    config = Config.load([], ["log.dirs=/a", "broker.node=mine"])
    assert (config(BROKER_NODE), config.notes) == ("mine", ())
    with pytest.raises(SettingError, match=r"--set: broker\.node cannot be ''; allowed: a name"):
        Config.load([], ["log.dirs=/a", "broker.node="])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("node.id", "${env:ID}"),
        ("broker.id", "${env:ID}"),
        ("listener.name.client.max.connections", "${env:LIMIT}"),
        ("listener.name.client.plain.sasl.jaas.config", "${directory:/secrets:jaas}"),
    ],
)
def test_references_are_no_problem_before_a_broker_resolves_them(name: str, text: str) -> None:
    assert find_setting_problems(name, text) == ()


def test_a_reference_does_not_hide_an_unknown_name() -> None:
    assert find_setting_problems("nonsense", "${env:ID}")


def test_environment_variables_are_substituted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.properties"
    file.write_text(
        "log.dirs=/a\nnode.id=${env:ID}\nadvertised.listeners=PLAINTEXT://${env:POD}.x.${env:NS}.svc:9092\nbroker.rack=${env:RACK}"
    )
    for name, value in {"ID": "3", "POD": "demo-3", "NS": "events", "RACK": ""}.items():
        monkeypatch.setenv(name, value)
    config = Config.load([file])
    assert config.node_id == 3
    assert config.advertised_listeners == (Listener("PLAINTEXT", "demo-3.x.events.svc", 9092),)
    assert config(BROKER_RACK) is None
    monkeypatch.setenv("RACK", "west")
    assert Config.load([file])(BROKER_RACK) == "west"
    monkeypatch.delenv("RACK")
    with pytest.raises(SettingError) as raised:
        Config.load([file])
    assert raised.value.problems == (f"{file}:4: broker.rack=${{env:RACK}}: there is no environment variable 'RACK'",)
