"""How a setting looks to DescribeConfigs: its value, where that came from, and what else would count were it not there."""

from enum import IntEnum
from typing import NamedTuple

from ottla_broker.config.setting import Setting
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
    DYNAMIC_MIRROR_CONFIG = 101  # ours, as the resource is


class ConfigSynonym(NamedTuple):
    """One place a value is found in, under the name it has there."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """`value` is None for a setting without value and for a sensitive one. `synonyms`: every place, the winning one first."""

    name: str
    value: str | None
    source: ConfigSource
    synonyms: tuple[ConfigSynonym, ...]
    read_only: bool
    sensitive: bool
    type: ConfigType
    doc: str


def entry(
    setting: Setting[object], places: list[ConfigSynonym], *, read_only: bool, default: str | None
) -> ConfigEntry:
    """From the places in the order they count; `default` is what holds when there is none."""
    hidden = setting.sensitive
    shown = tuple(ConfigSynonym(place.name, None if hidden else place.value, place.source) for place in places)
    return ConfigEntry(
        name=setting.name,
        value=None if hidden else (places[0].value if places else default),
        source=places[0].source if places else ConfigSource.DEFAULT_CONFIG,
        synonyms=shown,
        read_only=read_only,
        sensitive=setting.sensitive,
        type=setting.kind.code,
        doc=setting.doc,
    )
