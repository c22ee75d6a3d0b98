"""Levels of Python's loggers under Kafka's names, as resource type "broker logger" shows and sets them (KIP-412)."""

import logging
from collections.abc import Mapping

from ottla_broker.config.entries import ConfigEntry, ConfigSource, ConfigSynonym
from ottla_broker.config.value_types import ConfigType

ROOT = "root"
# Kafka's levels; Python has no TRACE and no OFF, so these stand beyond its ends.
LEVELS = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50, "OFF": 100}


def describe() -> list[ConfigEntry]:
    """Every logger of this process with the level that counts for it."""
    return [_entry(name) for name in _names()]


def problems(changes: Mapping[str, str | None]) -> list[str]:
    """What speaks against setting these levels (None: the level of the logger above again)."""
    known = set(_names())
    found = []
    for name, level in changes.items():
        if name not in known:
            found.append(f"there is no logger {name!r}; DescribeConfigs of the broker's loggers lists them")
        elif level is None and name == ROOT:
            found.append("the root logger must have a level: there is none above it")
        elif level is not None and level.upper() not in LEVELS:
            found.append(f"the level of {name} cannot be {level!r}; allowed: {', '.join(LEVELS)}")
    return found


def apply(changes: Mapping[str, str | None]) -> None:
    """Sets levels that `problems` found nothing against. They last as long as the process."""
    for name, level in changes.items():
        _logger(name).setLevel(logging.NOTSET if level is None else LEVELS[level.upper()])


def _names() -> list[str]:
    loggers = logging.root.manager.loggerDict
    return [ROOT, *sorted(name for name, logger in loggers.items() if isinstance(logger, logging.Logger))]


def _logger(name: str) -> logging.Logger:
    return logging.root if name == ROOT else logging.getLogger(name)


def _entry(name: str) -> ConfigEntry:
    level = _level_name(_logger(name).getEffectiveLevel())
    source = ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
    return ConfigEntry(
        name,
        level,
        source,
        (ConfigSynonym(name, level, source),),
        False,
        False,
        ConfigType.STRING,
        "The level of a logger.",
    )


def _level_name(level: int) -> str:
    """The nearest of Kafka's levels at or above."""
    return next((name for name, number in LEVELS.items() if level <= number), "OFF")
