"""The settings in effect: those changed while the broker runs, over those it was started with.

Precedence, highest first: this broker's dynamic value, the cluster-wide dynamic default, the static
value (file or --set), the table's default. A topic's own value is above all of them for that topic.
"""

import copy
import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike
from typing import TypeVar, cast

from ottla_broker.config import broker_settings, cluster_settings
from ottla_broker.config.addresses import EVERY_INTERFACE, Listener
from ottla_broker.config.ignored_settings import why_ignored
from ottla_broker.config.listener_security import find_security_problems
from ottla_broker.config.server_properties import (
    LISTENER_PREFIX,
    GivenSetting,
    ScopedSetting,
    StaticSettings,
    find_dynamic_listener_setting,
    parse_settings,
    read_file,
    read_mapping,
    read_overrides,
    resolve_references,
)
from ottla_broker.config.setting import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    Setting,
    SettingError,
    UpdateMode,
    describe_unknown_name,
)
from ottla_broker.config.topic_settings import TOPIC_CLEANUP_POLICY
from ottla_broker.log.config import LogConfig

T = TypeVar("T")

logger = logging.getLogger(__name__)

_TOPIC_DEFAULTS = frozenset(default.setting for topic in TOPIC_SETTINGS.values() for default in topic.broker_defaults)
"""Broker settings that are the default of a topic setting."""
_LOG_SETTINGS = {
    field: TOPIC_SETTINGS[name]
    for field in LogConfig.__struct_fields__
    if (name := field.replace("_", ".")) in TOPIC_SETTINGS
}
"""Field of LogConfig → the topic setting of the same name."""

SecretValues = dict[ScopedSetting, object]
"""Values of settings that are given as references to files."""


class Config:
    """The settings of one broker: `config(NUM_PARTITIONS)` is the value in effect. Created by
    `load` or, from a mapping, by `of`.
    """

    def __init__(self, static: StaticSettings) -> None:
        self.static = static
        self.cluster_dynamic: Mapping[str, str] = {}
        self.broker_dynamic: Mapping[str, str] = {}
        self._values: dict[Setting[object], object] = {s: s.default for s in BROKER_SETTINGS.values()} | static.values
        self._log_configs: dict[tuple[tuple[str, str], ...], LogConfig] = {}
        self._dynamic_of_listeners: dict[tuple[str, Setting[object]], object] = {}
        self._certificate_subscribers: list[Callable[[], None]] = []
        self._subscribers: dict[Setting[object], list[Callable[[object], None]]] = {}
        self.notes: tuple[str, ...] = tuple(static.notes)
        self.listeners: tuple[Listener, ...] = tuple(
            listener for listener in self(broker_settings.LISTENERS) if listener.name not in static.controller_listeners
        )

    @classmethod
    def load(cls, files: Iterable[str | PathLike[str]] = (), overrides: Iterable[str] = ()) -> "Config":
        """Reads a configuration from files, of which later ones override earlier ones, and from
        `key=value` texts, which override all files. Raises SettingError, which names file, line,
        setting, value and allowed values.
        """
        node = GivenSetting(
            broker_settings.BROKER_NODE.name, os.environ.get("BROKER_NODE") or socket.gethostname(), "host"
        )
        given = [node, *(item for path in files for item in read_file(path))]
        return cls._validated(parse_settings(given + read_overrides(overrides)))

    @classmethod
    def of(cls, values: Mapping[str, str], place: str = "settings") -> "Config":
        """Creates a configuration from a mapping, validated like a file. References are not
        resolved. Raises SettingError.
        """
        return cls._validated(parse_settings(read_mapping(values, place)))

    @classmethod
    def _validated(cls, static: StaticSettings) -> "Config":
        config = cls(static)
        if problems := [*_find_value_problems(config), *_find_listener_problems(config)]:
            raise SettingError(problems)
        return config

    def __call__(self, setting: Setting[T]) -> T:
        return cast(T, self._values[setting])

    def is_set(self, setting: Setting[object]) -> bool:
        """True if the value is set in a file, on the command line or dynamically, as opposed to the
        default.
        """
        layers = (self.cluster_dynamic, self.broker_dynamic)
        return setting in self.static.values or any(setting.name in layer for layer in layers)

    # Values derived from several settings

    @property
    def node_id(self) -> int:
        return self(broker_settings.NODE_ID)

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The log directories as configured, at least one."""
        several, one = self(broker_settings.LOG_DIRS), self(broker_settings.LOG_DIR)
        return several or ((one,) if one else ())

    @property
    def quorum_bootstrap_servers(self) -> tuple[tuple[str, int], ...]:
        """The brokers to ask for the quorum's leader. Leaves out this broker's controller
        listeners, which Kafka's own server.properties names and Ottla does not open.
        """
        listeners = (*self(broker_settings.LISTENERS), *self(broker_settings.ADVERTISED_LISTENERS))
        unopened = {(one.host, one.port) for one in listeners if one.name in self.static.controller_listeners}
        servers = self(broker_settings.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS)
        return tuple(server for server in servers if server not in unopened)

    def security_protocol(self, listener: str) -> str:
        return self(broker_settings.LISTENER_SECURITY_PROTOCOL_MAP)[listener]

    def listener_value(self, listener: str, setting: Setting[T], mechanism: str = "") -> T:
        """The value for a listener and one of its SASL mechanisms: its own, or that of all
        listeners.
        """
        if (listener, setting) in self._dynamic_of_listeners:
            return cast(T, self._dynamic_of_listeners[listener, setting])
        of_listeners = self.static.of_listeners
        of_all_mechanisms = of_listeners.get(ScopedSetting(listener, "", setting), self(setting))
        return cast(T, of_listeners.get(ScopedSetting(listener, mechanism, setting), of_all_mechanisms))

    def listener_override(self, listener: str, setting: Setting[T]) -> T | None:
        """The static value for this listener alone; None without one."""
        return cast("T | None", self.static.of_listeners.get(ScopedSetting(listener, "", setting)))

    @property
    def advertised_listeners(self) -> tuple[Listener, ...]:
        """One for each listener, as advertised or else as listened on. Host "" (every interface)
        and port 0 (any) are left for the server, which knows the bound address."""
        advertised = {listener.name: listener for listener in self(broker_settings.ADVERTISED_LISTENERS)}
        return tuple(
            advertised.get(one.name, one._replace(host="") if one.host in EVERY_INTERFACE else one)
            for one in self.listeners
        )

    @property
    def inter_broker_listener(self) -> str:
        """Name of the listener that brokers use among themselves."""
        if name := self(broker_settings.INTER_BROKER_LISTENER_NAME):
            return name.upper()
        protocol = self(broker_settings.SECURITY_INTER_BROKER_PROTOCOL)
        matching = (one.name for one in self.listeners if self.security_protocol(one.name) == protocol)
        return next(matching, self.listeners[0].name)

    # Files that settings name

    def reread_secrets(self, prefix: str) -> SecretValues:
        """Reads again the settings with this prefix that are given as `${directory:PATH:FILE}`, and
        returns their present values. Raises SettingError.
        """
        return {
            key: key.setting.parse(resolve_references(item._replace(text=item.reference)).text)
            for key, item in self.static.references.items()
            if key.setting.name.startswith(prefix)
        }

    def current_secrets(self, prefix: str) -> SecretValues:
        """The values of the settings with this prefix that are given as `${directory:PATH:FILE}`,
        as they were read last.
        """
        return {
            key: self.static.of_listeners[key] if key.listener else self.static.values[key.setting]
            for key in self.static.references
            if key.setting.name.startswith(prefix)
        }

    def replace_secrets(self, values: SecretValues) -> None:
        """Puts these values in effect, without calling subscribers."""
        for key, value in values.items():
            if key.listener:
                self.static.of_listeners[key] = value
            else:
                self.static.values[key.setting] = value
                self._values[key.setting] = self._current(key.setting)

    # Dynamic changes

    def set_dynamic(self, cluster: Mapping[str, str], broker: Mapping[str, str]) -> None:
        """Replaces both dynamic layers (the configs of resource broker "" and of this broker in the
        metadata) and calls the subscribers of values that changed. Logs settings without effect:
        read-only ones, those of Kafka and its plugins that Ottla does not have, and those of
        another version of Ottla.
        """
        changed = {
            name
            for old, new in ((self.cluster_dynamic, cluster), (self.broker_dynamic, broker))
            for name in old.keys() | new.keys()
            if old.get(name) != new.get(name)
        }
        self.cluster_dynamic, self.broker_dynamic = dict(cluster), dict(broker)
        updated = []
        if any(find_dynamic_listener_setting(name) for name in changed):
            self._dynamic_of_listeners = _parse_listener_settings(self.broker_dynamic)
            for notify in tuple(self._certificate_subscribers):
                notify()
        for name in sorted(changed):
            setting = BROKER_SETTINGS.get(name)
            if setting is None and find_dynamic_listener_setting(name) is not None:
                continue
            if setting is None:
                reason = why_ignored(name) or describe_unknown_name(name, BROKER_SETTINGS, "setting of a broker")
                logger.warning("dynamic config %s has no effect: %s", name, reason)
                continue
            if setting.update_mode is UpdateMode.READ_ONLY:
                logger.warning("ignoring dynamic config %s: it is read when a broker starts", name)
                continue
            value = self._current(setting)
            if value != self._values[setting]:
                self._values[setting] = value
                updated.append(setting)
        if _TOPIC_DEFAULTS.intersection(updated):
            self._log_configs.clear()
        for setting in updated:
            for callback in tuple(self._subscribers.get(setting, ())):
                callback(self._values[setting])

    def subscribe(self, setting: Setting[T], callback: Callable[[T], None]) -> Callable[[], None]:
        """Calls `callback` with the new value whenever it changes. Returns a function that ends the
        subscription.
        """
        callbacks = self._subscribers.setdefault(setting, [])
        untyped = cast(Callable[[object], None], callback)
        callbacks.append(untyped)
        return lambda: callbacks.remove(untyped)

    def subscribe_to_certificates(self, callback: Callable[[], None]) -> None:
        """Calls `callback` whenever dynamic configs change certificates of listeners."""
        self._certificate_subscribers.append(callback)

    def with_broker_changes(self, changes: Mapping[str, str | None]) -> "Config":
        """A copy in which this broker's dynamic certificates of listeners are as they would be
        after these changes of its dynamic configs. None removes a config.
        """
        after = {name: text for name, text in {**self.broker_dynamic, **changes}.items() if text is not None}
        changed = copy.copy(self)
        changed._dynamic_of_listeners = _parse_listener_settings(after)
        return changed

    def _current(self, setting: Setting[T]) -> T:
        for layer in (self.broker_dynamic, self.cluster_dynamic):
            text = layer.get(setting.name)
            if text is not None:
                try:
                    return setting.parse(text)
                except SettingError as problem:
                    logger.warning("ignoring dynamic config: %s", problem)
        return cast(T, self.static.values.get(setting, setting.default))

    # Topics

    def topic_value(self, setting: Setting[T], overrides: Mapping[str, str]) -> T:
        """The value of a topic setting for a topic with these overrides."""
        text = overrides.get(setting.name)
        if text is not None:
            try:
                return setting.parse(text)
            except SettingError as problem:
                logger.warning("ignoring topic config: %s", problem)
        for default in setting.broker_defaults:
            value = self._values[default.setting]
            if value is not None:
                return cast(T, default.scale(value))
        return setting.default

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """The settings of a topic's logs. Topics with equal overrides share one object."""
        key = tuple(sorted(overrides.items()))
        made = self._log_configs.get(key)
        if made is None:
            values = {field: self.topic_value(setting, overrides) for field, setting in _LOG_SETTINGS.items()}
            policy = self.topic_value(TOPIC_CLEANUP_POLICY, overrides)
            cleanup = {"cleanup_delete": "delete" in policy, "cleanup_compact": "compact" in policy}
            made = self._log_configs[key] = LogConfig(**cleanup, **values)  # type: ignore[arg-type]  # by field name
        return made


def _parse_listener_settings(dynamic: Mapping[str, str]) -> dict[tuple[str, Setting[object]], object]:
    """Certificates of listeners among a broker's dynamic configs, by listener and setting."""
    parsed: dict[tuple[str, Setting[object]], object] = {}
    for name, text in dynamic.items():
        if (found := find_dynamic_listener_setting(name)) is not None:
            try:
                parsed[found] = found[1].parse(text)
            except SettingError as problem:
                logger.warning("ignoring dynamic config %s: %s", name, problem)
    return parsed


# Validation of the settings that a broker is started with

_IN_ORDER = (
    (cluster_settings.GROUP_MIN_SESSION_TIMEOUT_MS, cluster_settings.GROUP_MAX_SESSION_TIMEOUT_MS),
    (cluster_settings.REPLICA_FETCH_WAIT_MAX_MS, cluster_settings.REPLICA_LAG_TIME_MAX_MS),
    (cluster_settings.REPLICA_FETCH_WAIT_MAX_MS, cluster_settings.REPLICA_SOCKET_TIMEOUT_MS),
    (cluster_settings.BROKER_HEARTBEAT_INTERVAL_MS, cluster_settings.BROKER_SESSION_TIMEOUT_MS),
)


def _find_value_problems(config: Config) -> Iterator[str]:
    for lower, higher in _IN_ORDER:
        if config(lower) > config(higher):
            yield f"{lower.name} ({config(lower)}) must not exceed {higher.name} ({config(higher)})"
    queued, request = config(broker_settings.QUEUED_MAX_REQUEST_BYTES), config(broker_settings.SOCKET_REQUEST_MAX_BYTES)
    if queued != -1 and queued < request:
        yield (
            f"{broker_settings.QUEUED_MAX_REQUEST_BYTES.name} ({queued}) must not be less than "
            f"{broker_settings.SOCKET_REQUEST_MAX_BYTES.name} ({request}); allowed: -1 for no limit, or more"
        )
    if not config.log_dirs:
        yield f"log.dirs is not set; allowed: {broker_settings.LOG_DIRS.type.allowed}"
    if len(set(config.log_dirs)) < len(config.log_dirs):
        yield "log.dirs names a directory twice"


def _find_listener_problems(config: Config) -> list[str]:
    if not config.listeners:
        return ["listeners has only listeners of controllers; a broker needs one for clients"]
    problems = [*_find_address_problems(config)]
    if not problems:
        problems = [*_find_advertised_problems(config), *_find_listener_name_problems(config)]
    return problems or [*find_security_problems(config)]


def _find_address_problems(config: Config) -> Iterator[str]:
    ports = [(listener.host, listener.port) for listener in config.listeners if listener.port]
    yield from (f"listeners has port {address[1]} twice" for address in sorted(set(ports)) if ports.count(address) > 1)
    protocols = config(broker_settings.LISTENER_SECURITY_PROTOCOL_MAP)
    for listener in config.listeners:
        protocol = protocols.get(listener.name)
        if protocol is None:
            yield f"listeners has {listener.name}, to which listener.security.protocol.map assigns no protocol"


def _find_advertised_problems(config: Config) -> Iterator[str]:
    names = {listener.name for listener in config.listeners}
    for listener in config(broker_settings.ADVERTISED_LISTENERS):
        if listener.name not in names | set(config.static.controller_listeners):
            yield f"advertised.listeners has {listener.name}; allowed: {', '.join(sorted(names))}, as in listeners"
        elif not listener.host:
            yield f"advertised.listeners has {listener} without a host; allowed: a name or address of this machine"
        elif listener.host in EVERY_INTERFACE:
            yield (
                f"advertised.listeners has {listener.host}, which no client can reach; "
                "allowed: a name or address of this machine"
            )


def _find_listener_name_problems(config: Config) -> Iterator[str]:
    names, inter_broker = {listener.name for listener in config.listeners}, config.inter_broker_listener
    if inter_broker not in names:
        yield f"inter.broker.listener.name is {inter_broker}; allowed: {', '.join(sorted(names))}, as in listeners"
    for name in sorted({listener for listener, _, _ in config.static.of_listeners} - names):
        yield f"{LISTENER_PREFIX}{name.lower()} is the name of no listener in listeners"
