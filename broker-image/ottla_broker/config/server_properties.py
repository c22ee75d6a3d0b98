"""The settings that a broker is started with: files, then --set, later ones over earlier ones."""

import os
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Final, NamedTuple

from ottla_broker.config.ignored_settings import REFUSED, why_ignored
from ottla_broker.config.setting import BROKER_SETTINGS, Setting, SettingError, describe_unknown_name
from ottla_broker.wire import properties
from ottla_broker.wire.client_security import SERVER_MECHANISMS

ALIASES: Final = {"broker.id": "node.id"}
LISTENER_PREFIX: Final = "listener.name."
LIMITS_OF_LISTENERS: Final = ("max.connections", "max.connection.creation.rate")
DYNAMIC_OF_LISTENERS: Final = (
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.key.password",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.certificates",
)
"""Settings that can be changed while a broker runs, for one broker and one of its listeners."""


class ScopedSetting(NamedTuple):
    """A setting for one listener and one of its SASL mechanisms. Empty: for all of them."""

    listener: str
    mechanism: str
    setting: Setting[object]


class GivenSetting(NamedTuple):
    """A setting's text as written, and where: `server.properties:12` or `--set`. `reference`: the
    text that named the file of which `text` is the content; empty: none.
    """

    name: str
    text: str
    place: str
    reference: str = ""


class StaticSettings:
    """The settings that a broker is started with. `values`: the parsed values for all listeners;
    `of_listeners`: those for one listener alone. `references`: settings that were given as
    references to files. `controller_listeners`: upper-case names of listeners that are not opened.
    `notes`: remarks for the user that are not errors.
    """

    def __init__(self) -> None:
        self.values: dict[Setting[object], object] = {}
        self.of_listeners: dict[ScopedSetting, object] = {}
        self.references: dict[ScopedSetting, GivenSetting] = {}
        self.controller_listeners: tuple[str, ...] = ()
        self.notes: list[str] = []


def read_file(path: str | PathLike[str]) -> list[GivenSetting]:
    """The settings of a properties file. Raises SettingError when it cannot be read, has an invalid
    escape, or refers to a variable or file that does not exist.
    """
    text = _read_text(os.fspath(path), str(path))
    try:
        given = [
            GivenSetting(found.key, found.value, f"{path}:{found.line}") for found in properties.parse_properties(text)
        ]
    except properties.InvalidEscape as problem:
        raise SettingError([f"{path}: {problem}"]) from None
    return [resolve_references(item) for item in given if not _is_empty_variable(item.text)]


def read_overrides(pairs: Iterable[str]) -> list[GivenSetting]:
    """Parses `key=value` texts of the command line. Raises SettingError."""
    given = []
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator:
            raise SettingError([f"--set {pair}: expected key=value"])
        given.append(resolve_references(GivenSetting(name.strip(), text.strip(), "--set")))
    return given


def read_mapping(values: Mapping[str, str], place: str) -> list[GivenSetting]:
    return [GivenSetting(name, text, place) for name, text in values.items()]


def parse_settings(given: Sequence[GivenSetting]) -> StaticSettings:
    """A later setting overrides an earlier one of the same name. Raises SettingError with every
    problem, in the order given.
    """
    static, problems = StaticSettings(), []
    for name, item in _last_of_each_name(given, static.notes).items():
        try:
            _parse_setting(name, item, static)
        except SettingError as error:
            problems += [f"{item.place}: {sentence}" for sentence in error.problems]
    if problems:
        raise SettingError(problems)
    return static


def find_setting_problems(name: str, text: str) -> tuple[str, ...]:
    """Returns the reasons for which every broker refuses this setting, regardless of other
    settings. A reference to the environment or to a file can be checked only on the broker and is
    no problem here.
    """
    real_name = ALIASES.get(name, name)
    if has_reference(text) and (real_name in BROKER_SETTINGS or find_listener_setting(real_name) is not None):
        return ()
    try:
        _parse_setting(real_name, GivenSetting(name, text, ""), StaticSettings())
    except SettingError as error:
        return error.problems
    return ()


def has_reference(text: str) -> bool:
    """True if the text has a reference that only the broker can resolve: `${env:…}`,
    `${directory:…}`.
    """
    return "${env:" in text or text.startswith("${directory:")


def _parse_setting(name: str, item: GivenSetting, static: StaticSettings) -> None:
    """`name`: the item's, or what its alias stands for. Raises SettingError."""
    if (setting := BROKER_SETTINGS.get(name)) is not None:
        key = ScopedSetting("", "", setting)
        static.values[setting] = setting.parse(item.text)
        if setting.no_effect:
            static.notes.append(f"{item.place}: {name} has no effect: {setting.no_effect}")
    elif (found := find_listener_setting(name)) is not None:
        key = found
        static.of_listeners[key] = key.setting.parse(item.text)
    else:
        _accept_ignored(item, static)
        return
    if item.reference:
        static.references[key] = item


def _last_of_each_name(given: Sequence[GivenSetting], notes: list[str]) -> dict[str, GivenSetting]:
    """The last setting of each name, where an alias counts as the name that it stands for. Adds to
    `notes` the settings that a later one of the same source replaces, without values of secrets.
    """
    last: dict[str, GivenSetting] = {}
    for item in given:
        name = ALIASES.get(item.name, item.name)
        earlier = last.pop(name, None)
        if earlier and earlier.text != item.text and earlier.place.split(":")[0] == item.place.split(":")[0]:
            notes.append(f"{item.place}: {_shown(item)} replaces {_shown(earlier)} of {earlier.place}")
        last[name] = item
    return last


def _shown(item: GivenSetting) -> str:
    """The setting as `name=text`; only its name if its value is or may be secret."""
    name = ALIASES.get(item.name, item.name)
    found = find_listener_setting(name)
    setting = BROKER_SETTINGS.get(name) if found is None else found.setting
    return item.name if setting is None or setting.is_sensitive else f"{item.name}={item.text}"


def find_listener_setting(name: str) -> ScopedSetting | None:
    """The setting that `listener.name.NAME.ssl.…`, `listener.name.NAME[.MECHANISM].sasl.…` or a
    limit of connections names. None for another name."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    for limit in LIMITS_OF_LISTENERS:
        if name.endswith(f".{limit}") and (listener := name.removeprefix(LISTENER_PREFIX).removesuffix(f".{limit}")):
            return ScopedSetting(listener.upper(), "", BROKER_SETTINGS[limit])
    for beginning in (".ssl.", ".sasl.", ".connections.max.reauth."):
        listener, found, rest = name.removeprefix(LISTENER_PREFIX).partition(beginning)
        setting = BROKER_SETTINGS.get(f"{beginning[1:]}{rest}") if found else None
        if setting is not None:
            listener, dot, mechanism = listener.upper().rpartition(".")
            if dot and mechanism in SERVER_MECHANISMS and beginning != ".ssl.":
                return ScopedSetting(listener, mechanism, setting)
            return ScopedSetting(f"{listener}.{mechanism}" if dot else mechanism, "", setting)
    return None


def find_dynamic_listener_setting(name: str) -> tuple[str, Setting[object]] | None:
    """Listener and setting of a `listener.name.NAME.ssl.…` that can be changed while a broker
    runs. None for another name.
    """
    found = find_listener_setting(name)
    if found is None or found.setting.name not in DYNAMIC_OF_LISTENERS:
        return None
    return found.listener, found.setting


def _accept_ignored(item: GivenSetting, static: StaticSettings) -> None:
    """Notes a setting of Kafka's that has no effect here. Raises SettingError for other names and
    for refused values.
    """
    if item.name in REFUSED:
        harmless, reason = REFUSED[item.name]
        if item.text.strip() != harmless:
            raise SettingError([f"{item.name}={item.text} is refused: {reason}"])
        return
    reason_ignored = why_ignored(item.name)
    if reason_ignored is None:
        raise SettingError([describe_unknown_name(item.name, BROKER_SETTINGS, "setting of a broker")])
    if item.name == "process.roles" and "broker" not in [role.strip() for role in item.text.split(",")]:
        raise SettingError([f"process.roles={item.text} is refused: there are no controllers that are not brokers"])
    if item.name == "controller.listener.names":
        static.controller_listeners = tuple(name.strip().upper() for name in item.text.split(","))
    static.notes.append(f"{item.place}: {item.name} has no effect: {reason_ignored}")


def resolve_references(item: GivenSetting) -> GivenSetting:
    """Replaces `${env:NAME}` and `${directory:PATH:FILE}` by their values. Raises SettingError."""
    if "${env:" in item.text:
        item = _resolve_environment(item)
    return _resolve_directory(item) if item.text.startswith("${directory:") else item


def _resolve_environment(item: GivenSetting) -> GivenSetting:
    """`${env:NAME}` is the value of an environment variable, as with Kafka's EnvVarConfigProvider
    (KIP-887), which need not be declared. Raises SettingError when the variable is not set."""
    text, *parts = item.text.split("${env:")
    for part in parts:
        name, brace, after = part.partition("}")
        if not brace or name not in os.environ:
            raise SettingError([f"{item.place}: {item.name}={item.text}: there is no environment variable {name!r}"])
        text += os.environ[name] + after
    return item._replace(text=text)


def _resolve_directory(item: GivenSetting) -> GivenSetting:
    """`${directory:PATH:FILE}` is the content of a file, as with Kafka's DirectoryConfigProvider
    (KIP-632), which need not be declared. Raises SettingError when the file cannot be read."""
    path, colon, name = item.text.removeprefix("${directory:").removesuffix("}").rpartition(":")
    setting = f"{item.place}: {item.name}={item.text}"
    if not (colon and item.text.endswith("}")):
        raise SettingError([f"{setting}: allowed: ${{directory:PATH:FILE}}"])
    return item._replace(text=_read_text(f"{path}/{name}", setting), reference=item.reference or item.text)


def _is_empty_variable(text: str) -> bool:
    """True if the text is one environment variable that is set and empty, which counts as not
    given.
    """
    return text.startswith("${env:") and text.endswith("}") and os.environ.get(text[6:-1]) == ""


def _read_text(path: str, source: str) -> str:
    """The content of the file. Raises SettingError, whose sentence begins with `source`."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 (pathlib would be a third of this package's import time)
            return file.read().decode()
    except OSError as problem:
        raise SettingError([f"{source}: {problem.strerror or problem}"]) from None
    except UnicodeDecodeError as problem:
        raise SettingError([f"{source}: byte {problem.start} is not UTF-8"]) from None
