"""Levels of Python's loggers under Kafka's names: the config resource "broker logger" (KIP-412)."""

import logging
from collections.abc import Mapping
from typing import Final

from ottla_broker.config.description import ConfigEntry, ConfigSource, ConfigSynonym
from ottla_broker.config.value_types import ConfigType

ROOT: Final = "root"
# Kafka's levels. Python has no TRACE and no OFF: they are below and above all of its own.
LEVELS: Final = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50, "OFF": 100}


def describe_loggers() -> list[ConfigEntry]:
    """Every logger of this process with its effective level."""
    return [_describe(name) for name in _names()]


def find_level_problems(changes: Mapping[str, str | None]) -> list[str]:
    """The reasons why these levels cannot be set; None removes a level, so that of the parent
    logger applies again.
    """
    logger_names = set(_names())
    problems = []
    for name, level in changes.items():
        if name not in logger_names:
            problems.append(f"there is no logger {name!r}; DescribeConfigs of the broker's loggers lists them")
        elif level is None and name == ROOT:
            problems.append("the root logger must have a level: it has no parent")
        elif level is not None and level.upper() not in LEVELS:
            problems.append(f"the level of {name} cannot be {level!r}; allowed: {', '.join(LEVELS)}")
    return problems


def set_levels(changes: Mapping[str, str | None]) -> None:
    """Sets levels that `find_level_problems` has found valid. They last as long as the process."""
    for name, level in changes.items():
        _logger(name).setLevel(logging.NOTSET if level is None else LEVELS[level.upper()])


def _names() -> list[str]:
    loggers = logging.root.manager.loggerDict
    return [ROOT, *sorted(name for name, logger in loggers.items() if isinstance(logger, logging.Logger))]


def _logger(name: str) -> logging.Logger:
    return logging.root if name == ROOT else logging.getLogger(name)


def _describe(name: str) -> ConfigEntry:
    level, source = _level_name(_logger(name).getEffectiveLevel()), ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
    return ConfigEntry(
        name,
        level,
        source,
        synonyms=(ConfigSynonym(name, level, source),),
        is_read_only=False,
        is_sensitive=False,
        type=ConfigType.STRING,
        doc="Level of a logger.",
    )


def _level_name(level: int) -> str:
    """The nearest of Kafka's levels at or above."""
    return next((name for name, number in LEVELS.items() if level <= number), "OFF")
