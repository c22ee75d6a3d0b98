"""Dynamic configs: precedence, subscribers, descriptions, and changes that are rejected."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.config import (
    BROKER_SETTINGS,
    LOG_RETENTION_MS,
    MAX_CONNECTIONS,
    NUM_PARTITIONS,
    TOPIC_MAX_MESSAGE_BYTES,
    Config,
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
)
from ottla_broker.config.description import describe_broker, describe_cluster_defaults, describe_topic
from ottla_broker.config.loggers import describe_loggers, find_level_problems, set_levels
from ottla_broker.config.validation import check_broker_changes, check_topic_changes
from ottla_broker.config.value_types import ConfigType
from ottla_broker.wire.errors import ErrorCode, KafkaError

D, C, S, DEFAULT, T = (
    ConfigSource.DYNAMIC_BROKER_CONFIG,
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    ConfigSource.STATIC_BROKER_CONFIG,
    ConfigSource.DEFAULT_CONFIG,
    ConfigSource.DYNAMIC_TOPIC_CONFIG,
)


def config(**values: str) -> Config:
    return Config.of({"log.dirs": "/data", **{name.replace("_", "."): value for name, value in values.items()}})


def entry_named(entries: list[ConfigEntry], name: str) -> ConfigEntry:
    return next(entry for entry in entries if entry.name == name)


LAYER = st.none() | st.integers(0, 100)


@given(LAYER, LAYER, LAYER, LAYER)
def test_value_and_description_are_those_of_the_source_with_the_highest_precedence(
    static: int | None, cluster: int | None, broker: int | None, topic: int | None
) -> None:
    live = config(**({} if static is None else {"message_max_bytes": str(static)}))
    live.set_dynamic(
        {} if cluster is None else {"message.max.bytes": str(cluster)},
        {} if broker is None else {"message.max.bytes": str(broker)},
    )
    overrides = {} if topic is None else {"max.message.bytes": str(topic)}
    sources = [(T, topic), (D, broker), (C, cluster), (S, static), (DEFAULT, 1048588)]
    expected = [(source, value) for source, value in sources if value is not None]
    assert live.topic_value(TOPIC_MAX_MESSAGE_BYTES, overrides) == expected[0][1]
    assert live.log_config(overrides).max_message_bytes == expected[0][1]
    assert live(BROKER_SETTINGS["message.max.bytes"]) == next(value for source, value in expected if source is not T)

    entry = entry_named(describe_topic(live, overrides), "max.message.bytes")
    assert (entry.source, entry.value) == (expected[0][0], str(expected[0][1]))
    assert [(synonym.source, synonym.value) for synonym in entry.synonyms] == [(s, str(v)) for s, v in expected]
    assert {synonym.name for synonym in entry.synonyms if synonym.source is not T} == {"message.max.bytes"}
    entry = entry_named(describe_broker(live), "message.max.bytes")
    assert entry.value == str(live(BROKER_SETTINGS["message.max.bytes"]))


def test_retention_hours_of_the_broker_are_described_in_milliseconds_for_topics() -> None:
    entry = entry_named(describe_topic(config(log_retention_hours="2"), {}), "retention.ms")
    assert entry.value == "7200000"
    assert entry.source is S
    assert entry.synonyms == (
        ConfigSynonym("retention.ms", "7200000", S),
        ConfigSynonym("log.retention.hours", "2", S),
        ConfigSynonym("log.retention.hours", "168", DEFAULT),
    )


def test_subscribers_are_called_only_when_the_value_changes() -> None:
    live = config()
    values: list[int] = []
    unsubscribe = live.subscribe(MAX_CONNECTIONS, values.append)
    live.set_dynamic({"max.connections": "10"}, {})
    live.set_dynamic({"max.connections": "10"}, {"max.connections": "10"})
    live.set_dynamic({"max.connections": "10"}, {"max.connections": "20", "message.max.bytes": "5"})
    live.set_dynamic({}, {"message.max.bytes": "5"})
    assert values == [10, 20, 2**31 - 1]
    unsubscribe()
    live.set_dynamic({"max.connections": "10"}, {})
    assert len(values) == 3


def test_unknown_names_and_invalid_values_of_another_version_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    live = config()
    with caplog.at_level(logging.WARNING):
        live.set_dynamic({"max.connections": "many", "from.the.future": "1", "num.partitions": "9"}, {})
    assert live(MAX_CONNECTIONS) == 2**31 - 1
    assert live(NUM_PARTITIONS) == 1
    assert len(caplog.records) == 3
    assert live.topic_value(TOPIC_MAX_MESSAGE_BYTES, {"max.message.bytes": "?"}) == 1048588


def test_topics_with_equal_overrides_share_their_log_config() -> None:
    live = config()
    assert live.log_config({"retention.ms": "1"}) is live.log_config({"retention.ms": "1"})
    before = live.log_config({})
    live.set_dynamic({"log.retention.ms": "77"}, {})
    assert live(LOG_RETENTION_MS) == 77
    assert (before.retention_ms, live.log_config({}).retention_ms) == (604800000, 77)


def test_entries_have_a_type_and_say_whether_they_are_read_only() -> None:
    entries = describe_broker(config())
    assert [entry.name for entry in entries] == sorted(entry.name for entry in entries)
    assert entry_named(entries, "num.partitions").is_read_only
    assert not entry_named(entries, "max.connections").is_read_only
    assert entry_named(entries, "log.retention.ms").value is None
    assert entry_named(entries, "log.cleanup.policy").type is ConfigType.LIST
    live = config()
    live.set_dynamic({"max.connections": "4"}, {})
    assert [(e.name, e.value, e.source) for e in describe_cluster_defaults(live)] == [("max.connections", "4", C)]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"retention.m": "1"}, "retention.m is no setting of a topic; did you mean retention.ms?"),
        ({"log.retention.ms": "1"}, "log.retention.ms is a setting of brokers; for a topic its name is retention.ms"),
        ({"cleanup.policy": "keep"}, "cleanup.policy cannot be 'keep' ('keep' is unknown); allowed: "),
        ({"min.compaction.lag.ms": "10"}, "min.compaction.lag.ms (10) must not exceed max.compaction.lag.ms (5)"),
        ({"remote.storage.enable": "true"}, "records are kept on the broker's own disks only"),
        ({"unheard.of": None}, "unheard.of is no setting of a topic"),
        (
            {"leader.replication.throttled.replicas": "1:2,x"},
            "allowed: partition:broker pairs separated by commas, or *",
        ),
    ],
)
def test_invalid_topic_configs_are_rejected(changes: dict[str, str | None], sentence: str) -> None:
    with pytest.raises(KafkaError) as raised:
        check_topic_changes(changes, {"max.compaction.lag.ms": "5"})
    assert raised.value.code is ErrorCode.invalid_config
    assert sentence in str(raised.value)


def test_valid_topic_configs_are_accepted() -> None:
    check_topic_changes({"cleanup.policy": "compact,delete", "retention.ms": "-1", "remote.storage.enable": "false"})
    check_topic_changes({"gone.with.a.version": None}, {"gone.with.a.version": "1"})
    check_topic_changes({"leader.replication.throttled.replicas": "0:1,2:3"})
    check_topic_changes({"leader.replication.throttled.replicas": "*"})


@pytest.mark.parametrize(
    ("changes", "cluster_wide", "sentence"),
    [
        ({"num.partitions": "3"}, True, "num.partitions is read-only"),
        ({"leader.replication.throttled.rate": "1"}, True, "can only be set for one broker"),
        ({"min.insync.replicas": "2"}, False, "can only be set for all brokers"),
        ({"process.roles": "broker"}, True, "process.roles is read-only"),
        ({"listener.name.x.ssl.keystore.key": "k"}, True, "can only be set for one broker"),
        ({"listener.name.x.ssl.client.auth": "none"}, False, "is read-only"),
        ({"authorizer.class.name": "a.B"}, True, "authorizer.class.name is read-only"),
        ({"max.connections": "-2"}, True, "allowed: a 32-bit integer, at least 0"),
    ],
)
def test_invalid_broker_configs_are_rejected(changes: dict[str, str | None], cluster_wide: bool, sentence: str) -> None:
    with pytest.raises(KafkaError) as raised:
        check_broker_changes(changes, cluster_wide=cluster_wide)
    assert raised.value.code is ErrorCode.invalid_config
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("cleanup.policy", "cleanup.policy is no setting of a broker; did you mean log.cleanup.policy?"),
        ("max.conections", "did you mean max.connections?"),
        ("a.plugin.url", "a.plugin.url is no setting of a broker"),
        ("num.io.threads", "one event loop and a small thread pool serve all requests"),
        ("zookeeper.connect", "there is no ZooKeeper"),
    ],
)
def test_broker_configs_without_effect_are_accepted_with_a_warning(
    name: str, note: str, caplog: pytest.LogCaptureFixture
) -> None:
    check_broker_changes({name: "8"}, cluster_wide=False)
    check_broker_changes({name: None}, cluster_wide=True)
    live = config()
    with caplog.at_level(logging.WARNING):
        live.set_dynamic({}, {name: "8"})
    assert f"dynamic config {name} has no effect: " in caplog.text
    assert note in caplog.text
    entry = entry_named(describe_broker(live), name)
    assert (entry.value, entry.source, entry.is_sensitive, entry.is_read_only) == (None, D, True, True)
    assert describe_cluster_defaults(live) == []
    live.set_dynamic({name: "8"}, {})
    assert [(it.name, it.value, it.source) for it in describe_cluster_defaults(live)] == [(name, None, C)]


def test_levels_of_loggers_are_set_and_described() -> None:
    name = "ottla_broker.tests.levels"
    logging.getLogger(name)
    assert find_level_problems({name: "warn", "root": "INFO"}) == []
    assert len(find_level_problems({name: "LOUD", "root": None, "no.such.logger": "INFO"})) == 3
    set_levels({name: "warn"})
    assert logging.getLogger(name).level == logging.WARNING
    assert entry_named(describe_loggers(), name).value == "WARN"
    set_levels({name: None})
    assert logging.getLogger(name).level == logging.NOTSET
