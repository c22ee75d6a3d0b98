"""What settings must be to each other. Each check returns its problems as sentences."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from ottla_broker.config import groups, identity, mirrors, network, replication, sources, topics
from ottla_broker.config.addresses import EVERY_INTERFACE
from ottla_broker.config.ignored_settings import why_ignored
from ottla_broker.config.problems import SettingError, conflict, parse_value, unknown_name
from ottla_broker.config.server_properties import ALIASES, OF_LISTENER, Static
from ottla_broker.config.setting import BROKER_SETTINGS, MIRROR_SETTINGS, TOPIC_SETTINGS, Scope, Setting

if TYPE_CHECKING:
    from ottla_broker.config.config import Config

T = TypeVar("T")

SERVED_PROTOCOLS = ("PLAINTEXT", "SSL")

_IN_ORDER: tuple[tuple[Setting[int], Setting[int]], ...] = (
    (groups.GROUP_MIN_SESSION_TIMEOUT_MS, groups.GROUP_MAX_SESSION_TIMEOUT_MS),
    (replication.REPLICA_FETCH_WAIT_MAX_MS, replication.REPLICA_LAG_TIME_MAX_MS),
    (replication.REPLICA_FETCH_WAIT_MAX_MS, replication.REPLICA_SOCKET_TIMEOUT_MS),
    (replication.BROKER_HEARTBEAT_INTERVAL_MS, replication.BROKER_SESSION_TIMEOUT_MS),
)


def values(config: "Config") -> list[str]:
    """The start's: orders of numbers, and what must be given."""
    problems = []
    for lower, higher in _IN_ORDER:
        problems += conflict({s.name: config(s) for s in (lower, higher)}, lower.name, higher.name)
    queued, request = config(network.QUEUED_MAX_REQUEST_BYTES), config(network.SOCKET_REQUEST_MAX_BYTES)
    if queued != -1 and queued < request:
        problems.append(
            f"{network.QUEUED_MAX_REQUEST_BYTES.name} ({queued}) must not be less than "
            f"{network.SOCKET_REQUEST_MAX_BYTES.name} ({request}); allowed: -1 for no limit, or more"
        )
    if not config.log_dirs:
        problems.append(f"{identity.LOG_DIRS.name} is not given; allowed: {identity.LOG_DIRS.kind.allowed}")
    if len(set(config.log_dirs)) < len(config.log_dirs):
        problems.append(f"{identity.LOG_DIRS.name} names a folder twice")
    return problems


def listeners(config: "Config", static: Static) -> list[str]:
    """The start's: names, ports and protocols of listeners."""
    problems = []
    name = network.LISTENERS.name
    if not config.listeners:
        return [f"{name} has only listeners of controllers; a broker needs one for clients"]
    ports = [(listener.host, listener.port) for listener in config.listeners if listener.port]
    problems += [f"{name} has {address[1]} twice" for address in sorted(set(ports)) if ports.count(address) > 1]
    protocols = config(network.LISTENER_SECURITY_PROTOCOL_MAP)
    for listener in config.listeners:
        protocol = protocols.get(listener.name)
        if protocol is None:
            problems.append(
                f"{name} has {listener.name}, which {network.LISTENER_SECURITY_PROTOCOL_MAP.name} does not give a protocol"
            )
        elif protocol not in SERVED_PROTOCOLS:
            problems.append(
                f"{name} has {listener}, whose protocol is {protocol}; allowed: {' and '.join(SERVED_PROTOCOLS)}, until SASL is there"
            )
    if problems:
        return problems
    names = {listener.name for listener in config.listeners}
    advertised = network.ADVERTISED_LISTENERS.name
    for listener in config(network.ADVERTISED_LISTENERS):
        if listener.name not in names | set(static.controller_listeners):
            problems.append(f"{advertised} has {listener.name}; allowed: {', '.join(sorted(names))}, as in {name}")
        elif listener.host and listener.host in EVERY_INTERFACE:
            problems.append(
                f"{advertised} has {listener.host}, which no client can reach; allowed: a name or address of this machine"
            )
        elif not listener.host:
            problems.append(f"{advertised} has {listener} without a host; allowed: a name or address of this machine")
    if config.inter_broker_listener not in names:
        problems.append(
            f"{network.INTER_BROKER_LISTENER_NAME.name} is {config.inter_broker_listener}; allowed: {', '.join(sorted(names))}, as in {name}"
        )
    elif (protocol := config.security_protocol(config.inter_broker_listener)) != "PLAINTEXT":
        problems.append(
            f"brokers would speak to each other on {config.inter_broker_listener}, whose protocol is {protocol}; allowed: PLAINTEXT, so far: give {name} another "
            f"listener for them, which only brokers reach, and name it in {network.INTER_BROKER_LISTENER_NAME.name}"
        )
    of_listeners = {listener for listener, _ in static.of_listeners} - names
    problems += [f"{OF_LISTENER}{one.lower()} is the name of no listener in {name}" for one in sorted(of_listeners)]
    return problems


def topic_changes(changes: Mapping[str, str | None], current: Mapping[str, str]) -> list[str]:
    """What speaks against giving a topic these configs (None removes one), over those it has."""
    problems: list[str] = []
    for name, text in changes.items():
        setting = TOPIC_SETTINGS.get(name)
        if setting is not None:
            problems += _problems(setting, text)
        elif text is not None or name not in current:
            problems.append(_not_of_a_topic(name))
    if not problems:
        after = {**current, **changes}
        lags = {
            setting.name: parse_value(setting, text)
            for setting in (topics.TOPIC_MIN_COMPACTION_LAG_MS, topics.TOPIC_MAX_COMPACTION_LAG_MS)
            if (text := after.get(setting.name)) is not None
        }
        if len(lags) == 2:
            problems += conflict(lags, topics.TOPIC_MIN_COMPACTION_LAG_MS.name, topics.TOPIC_MAX_COMPACTION_LAG_MS.name)
    return problems


def broker_changes(changes: Mapping[str, str | None], *, everywhere: bool) -> list[str]:
    """What speaks against changing these while brokers run: the default of all (`everywhere`) or one broker's."""
    problems: list[str] = []
    for name, text in changes.items():
        setting = BROKER_SETTINGS.get(ALIASES.get(name, name))
        if setting is None:
            reason = why_ignored(name)
            problems.append(
                f"{name} has no effect: {reason}"
                if reason
                else unknown_name(name, BROKER_SETTINGS, "setting of a broker")
            )
        elif setting.scope is Scope.STATIC:
            problems.append(f"{name} cannot be changed while brokers run: it is read when one starts")
        elif setting.scope is Scope.BROKER and everywhere:
            problems.append(f"{name} can only be set for one broker: name it")
        elif setting.scope is Scope.CLUSTER_ONLY and not everywhere:
            problems.append(f"{name} can only be set for all brokers: use the default (empty) broker name")
        else:
            problems += _problems(setting, text)
    return problems


def mirror_changes(changes: Mapping[str, str | None], current: Mapping[str, str]) -> list[str]:
    """What speaks against giving a mirror these settings (None removes one), over those it has."""
    problems: list[str] = []
    for name, text in changes.items():
        if (setting := MIRROR_SETTINGS.get(name)) is None:
            problems.append(unknown_name(name, MIRROR_SETTINGS, "setting of a mirror"))
        else:
            problems += _problems(setting, text)
    after = {name: text for name, text in {**current, **changes}.items() if text is not None}
    if after and not after.get(mirrors.MIRROR_BOOTSTRAP_SERVERS.name):
        problems.append(
            f"{mirrors.MIRROR_BOOTSTRAP_SERVERS.name} is not given; allowed: {mirrors.MIRROR_BOOTSTRAP_SERVERS.kind.allowed}"
        )
    if not problems:
        problems += sources.source_security(lambda setting: _parsed(setting, after)).find_problems()
    return problems


def _parsed(setting: Setting[T], given: Mapping[str, str]) -> T:
    """A setting's value among those that were given; its default where none was, or another version's."""
    text = given.get(setting.name)
    try:
        return setting.default if text is None else parse_value(setting, text)
    except SettingError:
        return setting.default


def _problems(setting: Setting[object], text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    try:
        parse_value(setting, text)
    except SettingError as problem:
        return problem.problems
    return ()


def _not_of_a_topic(name: str) -> str:
    for setting in TOPIC_SETTINGS.values():
        if any(behind.setting.name == name for behind in setting.from_broker):
            return f"{name} is a setting of brokers; for a topic its name is {setting.name}"
    return unknown_name(name, TOPIC_SETTINGS, "setting of a topic")
