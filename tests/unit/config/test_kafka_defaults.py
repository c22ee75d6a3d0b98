"""Compares the settings with what Apache Kafka 4.1.1 returned for DescribeConfigs (the JSON
file).
"""

import ast
import inspect
import json
from pathlib import Path

import pytest

import ottla_broker.config.mirror_settings
from ottla_broker.config import (
    BROKER_SETTINGS,
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    MIRROR_SETTINGS,
    TOPIC_SETTINGS,
    Config,
    Setting,
    UpdateMode,
)
from ottla_broker.config.ignored_settings import (
    IGNORED_DYNAMIC,
    IGNORED_STATIC,
    REFUSED,
    is_ignored_static,
    why_ignored,
)
from ottla_broker.config.server_properties import ALIASES
from ottla_broker.coordination.group_config import GroupCoordinatorConfig
from ottla_broker.log.config import LogConfig

# name → [type, default, "dynamic" or "read-only"]
KAFKA: dict[str, dict[str, tuple[str, str | None, str]]] = json.loads(
    (Path(__file__).parent / "kafka-4.1-defaults.json").read_text()
)


def test_every_broker_setting_of_kafka_is_known() -> None:
    unknown = [
        name
        for name in KAFKA["broker"]
        if not (name in BROKER_SETTINGS or name in ALIASES or name in REFUSED or why_ignored(name))
    ]
    assert unknown == []


def test_topics_have_all_settings_of_kafka_and_others_only_if_they_are_marked() -> None:
    ours = {name for name, setting in TOPIC_SETTINGS.items() if setting.is_ottla_only or setting.since_kafka}
    assert sorted(TOPIC_SETTINGS.keys() - ours) == sorted(KAFKA["topic"]) and not ours & KAFKA["topic"].keys()


def test_settings_that_kafka_lacks_are_marked() -> None:
    # Kafka describes dynamic throttles only where they are set.
    throttles = {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
    of_the_authorizer = {"super.users", "allow.everyone.if.no.acl.found"}  # StandardAuthorizer reads them itself
    internal = {  # Kafka reads them and describes them nowhere
        "group.consumer.regex.refresh.interval.ms",
        "share.coordinator.state.topic.prune.interval.ms",
    }
    newer = {"controller.quorum.auto.join.enable", "group.streams.initial.rebalance.delay.ms"}  # since Kafka 4.2
    newer |= {  # since Kafka 4.3
        f"group.{protocol}.{bound}assignment.interval.ms"
        for protocol in ("consumer", "share", "streams")
        for bound in ("", "min.", "max.")
    }
    newer |= {  # since Kafka 4.3, too
        f"group.share.{bound}.{limit}"
        for bound in ("min", "max")
        for limit in ("delivery.count.limit", "partition.max.record.locks")
    }
    newer |= {  # since Kafka 4.4
        "errors.deadletterqueue.topic.name.prefix",
        "errors.deadletterqueue.auto.create.topics.enable",
    }
    ours = {name for name, setting in BROKER_SETTINGS.items() if setting.is_ottla_only}
    assert ours == BROKER_SETTINGS.keys() - KAFKA["broker"].keys() - throttles - of_the_authorizer - internal - newer


@pytest.mark.parametrize("kind", ["broker", "topic"])
def test_defaults_and_types_are_those_of_kafka_or_the_difference_is_documented(kind: str) -> None:
    table = {"broker": BROKER_SETTINGS, "topic": TOPIC_SETTINGS}[kind]
    for name, setting in table.items():
        if name not in KAFKA[kind]:
            continue
        type_name, default, _ = KAFKA[kind][name]
        if not setting.differs:
            assert (setting.default_text or None) == (default or None), name
        else:
            assert (setting.default_text or None) != (default or None), f"{name} does not differ"
        structured = name == "log.dirs"  # a string to Kafka, a list by its meaning
        assert structured or setting.type.code.name == type_name, name


def test_dynamic_settings_are_those_of_kafka_with_few_exceptions() -> None:
    read_only = {"listeners", "listener.security.protocol.map"}  # sockets are bound once, when the broker starts
    read_only |= {name for name in BROKER_SETTINGS if name.startswith("ssl.")}  # only the named files are read again
    read_only.add("sasl.mechanism.inter.broker.protocol")  # brokers keep the mechanism with which they started
    for name, setting in BROKER_SETTINGS.items():
        if name in KAFKA["broker"] and name not in read_only:
            dynamic = KAFKA["broker"][name][2] == "dynamic"
            assert dynamic is (setting.update_mode is not UpdateMode.READ_ONLY), name


def test_ignored_settings_are_dynamic_if_kafkas_are() -> None:
    for name, (_, _, update_mode) in KAFKA["broker"].items():
        if why_ignored(name) and name not in REFUSED and name not in BROKER_SETTINGS:
            assert is_ignored_static(name) is (update_mode != "dynamic"), name


def test_every_default_is_a_valid_value() -> None:
    for setting in [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()]:
        text = setting.default_text
        if text:
            assert setting.type.parse(text) == setting.default, setting


def test_topic_without_overrides_has_the_defaults_of_kafka() -> None:
    assert Config.of({"log.dirs": "/data"}).log_config({}) == LogConfig()


def test_no_name_is_both_a_setting_and_ignored() -> None:
    assert not BROKER_SETTINGS.keys() & (IGNORED_STATIC.keys() | IGNORED_DYNAMIC.keys() | REFUSED.keys())


def test_a_setting_has_an_effect_or_says_that_it_has_none() -> None:
    """Code reads a setting by its constant, or as a field of LogConfig or of the coordinator's
    config.
    """
    package = Path(ottla_broker.config.__file__).parents[1]
    modules = [path for path in package.rglob("*.py") if path.parent.name != "config"]
    config = package / "config"
    named = {
        name.id if isinstance(name, ast.Name) else name.attr
        for path in [*modules, *(config / f"{it}.py" for it in ("config", "listener_security", "certificate_changes"))]
        for name in ast.walk(ast.parse(path.read_text()))
        if isinstance(name, ast.Name | ast.Attribute)
    }
    source_security = inspect.getsource(ottla_broker.config.mirror_settings.source_security)
    named |= {name.id for name in ast.walk(ast.parse(source_security)) if isinstance(name, ast.Name)}
    settings = [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values(), *MIRROR_SETTINGS.values()]
    settings += [*GROUP_SETTINGS.values(), *CLIENT_METRICS_SETTINGS.values()]
    constants = {value: name for name, value in vars(ottla_broker.config).items() if isinstance(value, Setting)}
    behind = {
        default.setting
        for setting in (*TOPIC_SETTINGS.values(), *GROUP_SETTINGS.values())
        for default in setting.broker_defaults
    }
    behind |= {bound for bounds in ottla_broker.config.BOUNDS.values() for bound in bounds}
    fields = {TOPIC_SETTINGS.get(field.replace("_", ".")) for field in LogConfig.__struct_fields__}
    fields |= {BROKER_SETTINGS.get(it.replace("_", ".")) for it in GroupCoordinatorConfig.__struct_fields__}
    assert constants.keys() <= set(settings)
    for setting in settings:
        fixed = setting.type.allowed.endswith(" only")
        used = constants.get(setting) in named or setting in behind or setting in fields
        assert fixed or used is not bool(setting.no_effect), setting
