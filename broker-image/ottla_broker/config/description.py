"""Descriptions of settings for DescribeConfigs: the value, its source, and the values that it
overrides.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from ottla_broker.config.config import Config
from ottla_broker.config.server_properties import find_dynamic_listener_setting
from ottla_broker.config.setting import (
    BROKER_SETTINGS,
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    MIRROR_SETTINGS,
    TOPIC_SETTINGS,
    Setting,
    UpdateMode,
)
from ottla_broker.config.value_types import ConfigType


class ConfigSource(IntEnum):
    """The codes of DescribeConfigs' `config_source`."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8
    # Ottla's own, with the numbers of their resource types (`requests.config_resources`):
    DYNAMIC_MIRROR_CONFIG = 101
    PIPELINE_REPORT = 104
    ROLL_REPORT = 105


class ConfigSynonym(NamedTuple):
    """One value of a setting, the name under which it was set, and its source."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """A setting as DescribeConfigs returns it. `value` is None if there is none or it is sensitive.
    `synonyms`: every value, the one in effect first.
    """

    name: str
    value: str | None
    source: ConfigSource
    synonyms: tuple[ConfigSynonym, ...]
    is_read_only: bool
    is_sensitive: bool
    type: ConfigType
    doc: str | None


def describe_topic(config: Config, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """The settings of a topic, by name. Ottla's own, and those of newer versions of Kafka, only
    where the topic has a value.
    """
    entries = []
    for name, setting in sorted(TOPIC_SETTINGS.items()):
        if (setting.is_ottla_only or setting.since_kafka) and name not in overrides:
            continue
        own = [ConfigSynonym(name, overrides[name], ConfigSource.DYNAMIC_TOPIC_CONFIG)] if name in overrides else []
        entries.append(_entry(setting, own + _broker_synonyms(config, setting, is_overridden=bool(own))))
    return entries


def describe_group(config: Config, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """All settings of a group, by name."""
    entries = []
    for name, setting in sorted(GROUP_SETTINGS.items()):
        own = [ConfigSynonym(name, overrides[name], ConfigSource.GROUP_CONFIG)] if name in overrides else []
        entries.append(_entry(setting, own + _broker_synonyms(config, setting, is_overridden=bool(own))))
    return entries


def describe_client_metrics(settings: Mapping[str, str]) -> list[ConfigEntry]:
    """All settings of a subscription to clients' metrics, by name."""
    source = ConfigSource.CLIENT_METRICS_CONFIG
    entries = []
    for name, setting in sorted(CLIENT_METRICS_SETTINGS.items()):
        own = [ConfigSynonym(name, settings[name], source)] if name in settings else []
        entries.append(_entry(setting, [*own, ConfigSynonym(name, setting.default_text, ConfigSource.DEFAULT_CONFIG)]))
    return entries


def describe_mirror(settings: Mapping[str, str]) -> list[ConfigEntry]:
    """All settings of a mirror, by name."""
    source = ConfigSource.DYNAMIC_MIRROR_CONFIG
    return [
        _entry(setting, [ConfigSynonym(name, settings[name], source)] if name in settings else [])
        for name, setting in sorted(MIRROR_SETTINGS.items())
    ]


def describe_broker(config: Config) -> list[ConfigEntry]:
    """All settings of this broker, by name, and all names that are set dynamically."""
    names = BROKER_SETTINGS.keys() | config.broker_dynamic.keys() | config.cluster_dynamic.keys()
    return [_broker_entry(config, name) for name in sorted(names)]


def _broker_entry(config: Config, name: str) -> ConfigEntry:
    """The synonyms of a setting of one listener include the values for all listeners, as in
    Kafka.
    """
    synonyms = _synonyms(config, name)
    if (found := find_dynamic_listener_setting(name)) is None:
        return _entry_of_name(name, synonyms)
    listener, setting = found
    if (own := config.listener_override(listener, setting)) is not None:
        synonyms.append(ConfigSynonym(name, setting.type.text(own), ConfigSource.STATIC_BROKER_CONFIG))
    entry = _entry(setting, synonyms + _synonyms(config, setting.name))
    return entry._replace(name=name, is_read_only=False)


def describe_cluster_defaults(config: Config) -> list[ConfigEntry]:
    """The cluster-wide dynamic defaults (resource broker with the empty name): only those that are
    set.
    """
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return [
        _entry_of_name(name, [ConfigSynonym(name, text, source)])
        for name, text in sorted(config.cluster_dynamic.items())
    ]


def _entry_of_name(name: str, synonyms: list[ConfigSynonym]) -> ConfigEntry:
    """A name that is no known setting, such as one of a plugin, is described as read-only with a
    sensitive value, as in Kafka.
    """
    if (setting := BROKER_SETTINGS.get(name)) is not None:
        return _entry(setting, synonyms)
    hidden = tuple(synonym._replace(value=None) for synonym in synonyms)
    return ConfigEntry(name, None, hidden[0].source, hidden, True, True, ConfigType.UNKNOWN, None)


def _entry(setting: Setting[object], synonyms: list[ConfigSynonym]) -> ConfigEntry:
    """`synonyms`: the setting's values in order of precedence. The default is in effect if there is
    none.
    """
    if setting.is_sensitive:
        synonyms = [synonym._replace(value=None) for synonym in synonyms]
    default = None if setting.is_sensitive else setting.default_text
    return ConfigEntry(
        name=setting.name,
        value=synonyms[0].value if synonyms else default,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        synonyms=tuple(synonyms),
        is_read_only=setting.update_mode is UpdateMode.READ_ONLY,
        is_sensitive=setting.is_sensitive,
        type=setting.type.code,
        doc=setting.doc,
    )


def _broker_synonyms(config: Config, setting: Setting[object], *, is_overridden: bool) -> list[ConfigSynonym]:
    """The values of the broker settings from which a topic or group setting takes its default."""
    synonyms: list[ConfigSynonym] = []
    for default in setting.broker_defaults:
        broker_synonyms = _synonyms(config, default.setting.name)
        if broker_synonyms and default.factor != 1 and not (synonyms or is_overridden):
            # The value in effect is shown in the topic's unit: log.retention.hours as retention.ms.
            value = setting.type.text(default.scale(config(default.setting)))
            synonyms.append(ConfigSynonym(setting.name, value, broker_synonyms[0].source))
        synonyms += broker_synonyms
    return synonyms


def _synonyms(config: Config, name: str) -> list[ConfigSynonym]:
    """The values of a broker setting, the one in effect first."""
    setting = BROKER_SETTINGS.get(name)
    synonyms = [
        ConfigSynonym(name, layer[name], source)
        for layer, source in (
            (config.broker_dynamic, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (config.cluster_dynamic, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        )
        if name in layer and (setting is None or setting.update_mode is not UpdateMode.READ_ONLY)
    ]
    if setting is None:
        return synonyms
    if setting in config.static.values:
        text = setting.type.text(config.static.values[setting])
        synonyms.append(ConfigSynonym(name, text, ConfigSource.STATIC_BROKER_CONFIG))
    if setting.default is not None and setting.default != ():
        synonyms.append(ConfigSynonym(name, setting.default_text, ConfigSource.DEFAULT_CONFIG))
    return synonyms
