"""Validates changes that clients request to the configs of a topic, a broker, a mirror, a group or
a client-metrics subscription.

`changes` maps names to texts, None removes a config; `current` is what is set now. Each check
raises a KafkaError INVALID_CONFIG with a sentence for every problem.
"""

from collections.abc import Iterator, Mapping

from ottla_broker.config.client_metrics_settings import CLIENT_METRICS_INTERVAL_MS
from ottla_broker.config.config import Config
from ottla_broker.config.group_settings import BOUNDS, MAXIMA
from ottla_broker.config.ignored_settings import REFUSED, is_ignored_static
from ottla_broker.config.mirror_settings import MIRROR_BOOTSTRAP_SERVERS, source_security
from ottla_broker.config.server_properties import (
    ALIASES,
    DYNAMIC_OF_LISTENERS,
    find_dynamic_listener_setting,
    find_listener_setting,
)
from ottla_broker.config.setting import (
    BROKER_SETTINGS,
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    MIRROR_SETTINGS,
    TOPIC_SETTINGS,
    Setting,
    SettingError,
    UpdateMode,
    describe_unknown_name,
    value_or_default,
)
from ottla_broker.config.topic_settings import TOPIC_MAX_COMPACTION_LAG_MS, TOPIC_MIN_COMPACTION_LAG_MS
from ottla_broker.wire.errors import ErrorCode, KafkaError


def check_topic_changes(changes: Mapping[str, str | None], current: Mapping[str, str] | None = None) -> None:
    _reject(_find_topic_problems(changes, current or {}))


def check_broker_changes(changes: Mapping[str, str | None], *, cluster_wide: bool) -> None:
    """`cluster_wide`: the default of all brokers changes, otherwise the configs of one."""
    _reject([problem for name, text in changes.items() for problem in _find_broker_problems(name, text, cluster_wide)])


def check_mirror_changes(changes: Mapping[str, str | None], current: Mapping[str, str]) -> None:
    _reject(_find_mirror_problems(changes, current))


def check_group_changes(config: Config, changes: Mapping[str, str | None]) -> None:
    _reject([problem for name, text in changes.items() for problem in _find_group_problems(config, name, text)])


def check_client_metrics_changes(changes: Mapping[str, str | None]) -> None:
    """Raises INVALID_REQUEST for an unknown name and a number out of bounds, as in Kafka."""
    if unknown := [name for name in changes if name not in CLIENT_METRICS_SETTINGS]:
        reason = describe_unknown_name(unknown[0], CLIENT_METRICS_SETTINGS, "setting of a client-metrics subscription")
        raise KafkaError(ErrorCode.invalid_request, reason)
    interval = CLIENT_METRICS_INTERVAL_MS
    text = changes.get(interval.name)
    if text is not None and text.strip().isdigit() and (problems := _find_value_problems(interval, text)):
        raise KafkaError(ErrorCode.invalid_request, problems[0])
    settings = CLIENT_METRICS_SETTINGS
    _reject([problem for name, text in changes.items() for problem in _find_value_problems(settings[name], text)])


def _find_group_problems(config: Config, name: str, text: str | None) -> Iterator[str]:
    if (setting := GROUP_SETTINGS.get(name)) is None:
        yield describe_unknown_name(name, GROUP_SETTINGS, "setting of a group")
    elif problems := _find_value_problems(setting, text):
        yield from problems
    elif text is not None:
        for bounded, (low, high) in BOUNDS.items():
            if bounded.name == name and not config(low) <= bounded.parse(text) <= config(high):
                yield (f"{name} cannot be {text}; allowed: {config(low)} ({low.name}) to {config(high)} ({high.name})")
        for limited, highest in MAXIMA.items():
            if limited.name == name and limited.parse(text) > config(highest):
                yield f"{name} cannot be {text}; allowed: at most {config(highest)} ({highest.name})"


def _find_topic_problems(changes: Mapping[str, str | None], current: Mapping[str, str]) -> list[str]:
    problems: list[str] = []
    for name, text in changes.items():
        setting = TOPIC_SETTINGS.get(name)
        if setting is not None:
            problems += _find_value_problems(setting, text)
        elif text is not None or name not in current:
            problems.append(_unknown_topic_setting(name))
    if not problems:
        after = {name: text for name, text in {**current, **changes}.items() if text is not None}
        minimum, maximum = TOPIC_MIN_COMPACTION_LAG_MS, TOPIC_MAX_COMPACTION_LAG_MS
        if minimum.name in after and maximum.name in after:
            lowest, highest = minimum.parse(after[minimum.name]), maximum.parse(after[maximum.name])
            if lowest > highest:
                problems.append(f"{minimum.name} ({lowest}) must not exceed {maximum.name} ({highest})")
    return problems


def _unknown_topic_setting(name: str) -> str:
    for setting in TOPIC_SETTINGS.values():
        if any(default.setting.name == name for default in setting.broker_defaults):
            return f"{name} is a setting of brokers; for a topic its name is {setting.name}"
    return describe_unknown_name(name, TOPIC_SETTINGS, "setting of a topic")


def _find_broker_problems(name: str, text: str | None, cluster_wide: bool) -> Iterator[str]:
    """Names that Ottla does not know are accepted, as by Kafka: plugins of Kafka's may read
    them.
    """
    setting = BROKER_SETTINGS.get(ALIASES.get(name, name))
    if (of_listener := find_dynamic_listener_setting(name)) is not None:
        if cluster_wide:
            yield f"{name} can only be set for one broker: name it"
        else:
            yield from _find_value_problems(of_listener[1], text)
    elif setting is None:
        if text is not None and name in REFUSED and text.strip() != REFUSED[name][0]:
            yield f"{name} is refused: {REFUSED[name][1]}"
        elif is_ignored_static(name) or find_listener_setting(name) is not None:
            yield f"{name} is read-only: it is read when a broker starts"
    elif setting.name in DYNAMIC_OF_LISTENERS:
        yield f"{name} can be changed for one listener alone: set listener.name.NAME.{name}"
    elif setting.update_mode is UpdateMode.READ_ONLY:
        yield f"{name} is read-only: it is read when a broker starts"
    elif setting.update_mode is UpdateMode.PER_BROKER and cluster_wide:
        yield f"{name} can only be set for one broker: name it"
    elif setting.update_mode is UpdateMode.CLUSTER_WIDE_ONLY and not cluster_wide:
        yield f"{name} can only be set for all brokers: use the default (empty) broker name"
    else:
        yield from _find_value_problems(setting, text)


def _find_mirror_problems(changes: Mapping[str, str | None], current: Mapping[str, str]) -> list[str]:
    problems: list[str] = []
    for name, text in changes.items():
        if (setting := MIRROR_SETTINGS.get(name)) is None:
            problems.append(describe_unknown_name(name, MIRROR_SETTINGS, "setting of a mirror"))
        else:
            problems += _find_value_problems(setting, text)
    after = {name: text for name, text in {**current, **changes}.items() if text is not None}
    required = MIRROR_BOOTSTRAP_SERVERS
    if after and not after.get(required.name):
        problems.append(f"{required.name} is not set; allowed: {required.type.allowed}")
    return problems or source_security(lambda setting: value_or_default(setting, after)).find_problems()


def _find_value_problems(setting: Setting[object], text: str | None) -> tuple[str, ...]:
    try:
        if text is not None:
            setting.parse(text)
    except SettingError as error:
        return error.problems
    return ()


def _reject(problems: list[str]) -> None:
    if problems:
        raise KafkaError(ErrorCode.invalid_config, "; ".join(problems))
