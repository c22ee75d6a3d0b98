"""The settings that count now: what the broker was started with, below what was changed while it runs.

From the strongest to the weakest: this broker's dynamic value, the dynamic default of all brokers, the static value (file or --set), the
table's default. A topic's own value stands above all of them for that topic.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from typing import TypeVar, cast

from ottla_broker.config import identity, network, tls, topics, validation
from ottla_broker.config.addresses import EVERY_INTERFACE, Listener
from ottla_broker.config.entries import ConfigEntry, ConfigSource, ConfigSynonym, entry
from ottla_broker.config.problems import SettingError, parse_value
from ottla_broker.config.server_properties import Static, from_command_line, from_mapping, read_file, settle
from ottla_broker.config.setting import (
    BROKER_SETTINGS,
    MIRROR_SETTINGS,
    TOPIC_SETTINGS,
    Scope,
    Setting,
)
from ottla_broker.log.config import LogConfig
from ottla_broker.wire.listener_tls import ListenerTls

T = TypeVar("T")

log = logging.getLogger(__name__)

_BEHIND_TOPICS = frozenset(behind.setting for setting in TOPIC_SETTINGS.values() for behind in setting.from_broker)


class Config:
    """`config(NUM_PARTITIONS)` is the value that counts now. Made by `load` or, in tests, by `of`."""

    def __init__(self, static: Static) -> None:
        self._static = static
        self._cluster: dict[str, str] = {}
        self._broker: dict[str, str] = {}
        self._now: dict[Setting[object], object] = {s: s.default for s in BROKER_SETTINGS.values()} | static.values
        self._log_configs: dict[tuple[tuple[str, str], ...], LogConfig] = {}
        self._subscribers: dict[Setting[object], list[Callable[[object], None]]] = {}
        self.notes: tuple[str, ...] = tuple(static.notes)
        self.listeners: tuple[Listener, ...] = tuple(
            listener for listener in self(network.LISTENERS) if listener.name not in static.controller_listeners
        )

    @classmethod
    def load(cls, files: Iterable[str | PathLike[str]] = (), overrides: Iterable[str] = ()) -> "Config":
        """`files`: in order, later ones over earlier ones; `overrides`: `key=value` texts over all files. Raises SettingError, whose
        `problems` name file, line, setting, value and what is allowed."""
        given = [item for path in files for item in read_file(path)]
        return cls._checked(settle(given + from_command_line(overrides)))

    @classmethod
    def of(cls, values: Mapping[str, str], place: str = "settings") -> "Config":
        """From a mapping, checked like a file."""
        return cls._checked(settle(from_mapping(values, place)))

    @classmethod
    def _checked(cls, static: Static) -> "Config":
        config = cls(static)
        if problems := [*validation.values(config), *validation.listeners(config, static)]:
            raise SettingError(problems)
        return config

    def __call__(self, setting: Setting[T]) -> T:
        return cast(T, self._now[setting])

    def is_set(self, setting: Setting[object]) -> bool:
        """Whether somebody has set it, in a file, on the command line or while running; else its default counts."""
        return setting in self._static.values or setting.name in self._cluster or setting.name in self._broker

    # Values that follow from several settings

    @property
    def node_id(self) -> int:
        return self(identity.NODE_ID)

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """At least one folder, as it was written."""
        several, one = self(identity.LOG_DIRS), self(identity.LOG_DIR)
        return several or ((one,) if one else ())

    @property
    def register(self) -> str:
        """`store:where`; a file in the first data folder when nothing is given."""
        return self(identity.REGISTER) or f"file:{self.log_dirs[0]}/register.json"

    def security_protocol(self, listener: str) -> str:
        """The security protocol of a listener, by its name."""
        return self(network.LISTENER_SECURITY_PROTOCOL_MAP)[listener]

    def tls(self, listener: str) -> ListenerTls:
        """How a listener, by its name, secures connections: its own settings over those of all listeners."""

        def of(setting: Setting[T]) -> T:
            return cast(T, self._static.of_listeners.get((listener, setting), self(setting)))

        return ListenerTls(
            of(tls.SSL_KEYSTORE_LOCATION) or "",
            of(tls.SSL_KEYSTORE_CERTIFICATE_CHAIN) or "",
            of(tls.SSL_KEYSTORE_KEY) or "",
            of(tls.SSL_KEY_PASSWORD) or "",
            of(tls.SSL_TRUSTSTORE_LOCATION) or "",
            of(tls.SSL_TRUSTSTORE_CERTIFICATES) or "",
            of(tls.SSL_CLIENT_AUTH),
            of(tls.SSL_ENABLED_PROTOCOLS),
        )

    @property
    def advertised_listeners(self) -> tuple[Listener, ...]:
        """One for each listener, as advertised or else as listened on. Host "" (every interface) and port 0 (any) are to be filled in by
        whoever binds."""
        advertised = {listener.name: listener for listener in self(network.ADVERTISED_LISTENERS)}
        return tuple(
            advertised.get(one.name, one._replace(host="") if one.host in EVERY_INTERFACE else one)
            for one in self.listeners
        )

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener brokers use among themselves."""
        if name := self(network.INTER_BROKER_LISTENER_NAME):
            return name.upper()
        protocol = self(network.SECURITY_INTER_BROKER_PROTOCOL)
        return next(
            (one.name for one in self.listeners if self.security_protocol(one.name) == protocol), self.listeners[0].name
        )

    # Changes while running

    def set_dynamic(self, cluster: Mapping[str, str], broker: Mapping[str, str]) -> None:
        """Replaces both dynamic layers (the configs of resource broker "" and of this broker in the metadata) and tells subscribers of
        the values that are different now. What this version does not know or allow is logged and left out: it was written by another."""
        changed = {
            name
            for old, new in ((self._cluster, cluster), (self._broker, broker))
            for name in old.keys() | new.keys()
            if old.get(name) != new.get(name)
        }
        self._cluster, self._broker = dict(cluster), dict(broker)
        different = []
        for name in sorted(changed):
            setting = BROKER_SETTINGS.get(name)
            if setting is None or setting.scope is Scope.STATIC:
                log.warning(
                    "the cluster's metadata set %s, which cannot be changed while running; it is left out", name
                )
                continue
            value = self._current(setting)
            if value != self._now[setting]:
                self._now[setting] = value
                different.append(setting)
        if _BEHIND_TOPICS.intersection(different):
            self._log_configs.clear()
        for setting in different:
            for told in tuple(self._subscribers.get(setting, ())):
                told(self._now[setting])

    def subscribe(self, setting: Setting[T], callback: Callable[[T], None]) -> Callable[[], None]:
        """Calls back with the new value when it changes, from the protocol thread. Returns what ends that."""
        callbacks = self._subscribers.setdefault(setting, [])
        wanted = cast(Callable[[object], None], callback)
        callbacks.append(wanted)
        return lambda: callbacks.remove(wanted)

    def _current(self, setting: Setting[T]) -> T:
        for layer in (self._broker, self._cluster):
            text = layer.get(setting.name)
            if text is not None:
                try:
                    return parse_value(setting, text)
                except SettingError as problem:
                    log.warning("the cluster's metadata: %s; it is left out", problem)
        return cast(T, self._static.values.get(setting, setting.default))

    # Topics

    def topic(self, setting: Setting[T], overrides: Mapping[str, str]) -> T:
        """A topic setting's value for a topic with these overrides."""
        text = overrides.get(setting.name)
        if text is not None:
            try:
                return parse_value(setting, text)
            except SettingError as problem:
                log.warning("a topic's configs: %s; it is left out", problem)
        for behind in setting.from_broker:
            value = self._now[behind.setting]
            if value is not None:
                return cast(T, value if behind.factor == 1 else _times(value, behind.factor))
        return setting.default

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """The settings of a topic's logs. Topics with equal overrides share one object."""
        key = tuple(sorted(overrides.items()))
        made = self._log_configs.get(key)
        if made is None:
            made = self._log_configs[key] = self._make_log_config(overrides)
        return made

    def _make_log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        def of(setting: Setting[T]) -> T:
            return self.topic(setting, overrides)

        policy = of(topics.TOPIC_CLEANUP_POLICY)
        return LogConfig(
            segment_bytes=of(topics.TOPIC_SEGMENT_BYTES),
            segment_ms=of(topics.TOPIC_SEGMENT_MS),
            segment_jitter_ms=of(topics.TOPIC_SEGMENT_JITTER_MS),
            segment_index_bytes=of(topics.TOPIC_SEGMENT_INDEX_BYTES),
            index_interval_bytes=of(topics.TOPIC_INDEX_INTERVAL_BYTES),
            retention_ms=of(topics.TOPIC_RETENTION_MS),
            retention_bytes=of(topics.TOPIC_RETENTION_BYTES),
            file_delete_delay_ms=of(topics.TOPIC_FILE_DELETE_DELAY_MS),
            flush_messages=of(topics.TOPIC_FLUSH_MESSAGES),
            flush_ms=of(topics.TOPIC_FLUSH_MS),
            cleanup_delete="delete" in policy,
            cleanup_compact="compact" in policy,
            delete_retention_ms=of(topics.TOPIC_DELETE_RETENTION_MS),
            min_compaction_lag_ms=of(topics.TOPIC_MIN_COMPACTION_LAG_MS),
            max_compaction_lag_ms=of(topics.TOPIC_MAX_COMPACTION_LAG_MS),
            min_cleanable_dirty_ratio=of(topics.TOPIC_MIN_CLEANABLE_DIRTY_RATIO),
            compression_type=of(topics.TOPIC_COMPRESSION_TYPE),
            compression_gzip_level=of(topics.TOPIC_COMPRESSION_GZIP_LEVEL),
            compression_lz4_level=of(topics.TOPIC_COMPRESSION_LZ4_LEVEL),
            compression_zstd_level=of(topics.TOPIC_COMPRESSION_ZSTD_LEVEL),
            message_timestamp_type=of(topics.TOPIC_MESSAGE_TIMESTAMP_TYPE),
            message_timestamp_before_max_ms=of(topics.TOPIC_MESSAGE_TIMESTAMP_BEFORE_MAX_MS),
            message_timestamp_after_max_ms=of(topics.TOPIC_MESSAGE_TIMESTAMP_AFTER_MAX_MS),
            max_message_bytes=of(topics.TOPIC_MAX_MESSAGE_BYTES),
            min_insync_replicas=of(topics.TOPIC_MIN_INSYNC_REPLICAS),
            unclean_leader_election_enable=of(topics.TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE),
            preallocate=of(topics.TOPIC_PREALLOCATE),
            leader_replication_throttled_replicas=of(topics.TOPIC_LEADER_REPLICATION_THROTTLED_REPLICAS),
            follower_replication_throttled_replicas=of(topics.TOPIC_FOLLOWER_REPLICATION_THROTTLED_REPLICAS),
        )

    # Checks of changes that a client wants

    def check_topic(self, changes: Mapping[str, str | None], current: Mapping[str, str] | None = None) -> None:
        """Whether a topic may have these configs (None removes one) over its current ones. INVALID_CONFIG says why not."""
        _refuse(validation.topic_changes(changes, current or {}))

    def check_mirror(self, changes: Mapping[str, str | None], current: Mapping[str, str]) -> None:
        """Whether a mirror may have these settings (None removes one) over its current ones. INVALID_CONFIG says why not."""
        _refuse(validation.mirror_changes(changes, current))

    def check_broker(self, changes: Mapping[str, str | None], *, everywhere: bool) -> None:
        """Whether these may change while brokers run, for all of them (`everywhere`) or for one. INVALID_CONFIG says why not."""
        _refuse(validation.broker_changes(changes, everywhere=everywhere))

    # What DescribeConfigs shows

    def describe_topic(self, overrides: Mapping[str, str]) -> list[ConfigEntry]:
        """All topic settings in the order of their names."""
        return [
            self._entry(setting, overrides, ConfigSource.DYNAMIC_TOPIC_CONFIG)
            for _, setting in sorted(TOPIC_SETTINGS.items())
        ]

    def describe_mirror(self, settings: Mapping[str, str]) -> list[ConfigEntry]:
        """All settings of a mirror in the order of their names."""
        return [
            entry(
                setting,
                [ConfigSynonym(name, settings[name], ConfigSource.DYNAMIC_MIRROR_CONFIG)] if name in settings else [],
                read_only=False,
                default=setting.default_text,
            )
            for name, setting in sorted(MIRROR_SETTINGS.items())
        ]

    def describe_broker(self) -> list[ConfigEntry]:
        """All settings of this broker in the order of their names."""
        return [
            entry(
                setting,
                self._places(setting),
                read_only=setting.scope is Scope.STATIC,
                default=setting.default_text,
            )
            for _, setting in sorted(BROKER_SETTINGS.items())
        ]

    def describe_broker_default(self) -> list[ConfigEntry]:
        """The dynamic defaults of all brokers (resource broker with the empty name): only what was set."""
        return [
            entry(
                setting,
                [ConfigSynonym(name, text, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)],
                read_only=False,
                default=None,
            )
            for name, text in sorted(self._cluster.items())
            if (setting := BROKER_SETTINGS.get(name)) is not None
        ]

    def _entry(self, setting: Setting[object], overrides: Mapping[str, str], own: ConfigSource) -> ConfigEntry:
        places = [ConfigSynonym(setting.name, overrides[setting.name], own)] if setting.name in overrides else []
        for behind in setting.from_broker:
            found = self._places(behind.setting)
            if not places and found and behind.factor != 1:
                # log.retention.hours stands behind retention.ms: the value shown is the topic's, in milliseconds.
                value = setting.kind.text(_times(self._now[behind.setting], behind.factor))
                places.append(ConfigSynonym(setting.name, value, found[0].source))
            places += found
        return entry(setting, places, read_only=False, default=setting.default_text)

    def _places(self, setting: Setting[object]) -> list[ConfigSynonym]:
        places = [
            ConfigSynonym(setting.name, layer[setting.name], source)
            for layer, source in (
                (self._broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
                (self._cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            )
            if setting.name in layer and setting.scope is not Scope.STATIC
        ]
        if setting in self._static.values:
            text = setting.kind.text(self._static.values[setting])
            places.append(ConfigSynonym(setting.name, text, ConfigSource.STATIC_BROKER_CONFIG))
        if setting.default is not None and setting.default != ():
            places.append(ConfigSynonym(setting.name, setting.default_text, ConfigSource.DEFAULT_CONFIG))
        return places


def _refuse(problems: list[str]) -> None:
    if problems:
        from ottla_broker.wire.errors import ErrorCode, KafkaError  # the protocol's errors: not for a light import

        raise KafkaError(ErrorCode.invalid_config, "; ".join(problems))


def _times(value: object, factor: int) -> int:
    assert isinstance(value, int)
    return -1 if value < 0 else value * factor
