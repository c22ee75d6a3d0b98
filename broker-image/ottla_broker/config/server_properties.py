"""The settings a broker is started with: files, then --set, each later one over the earlier."""

import os
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import NamedTuple

from ottla_broker.config.ignored_settings import REFUSED, why_ignored
from ottla_broker.config.problems import SettingError, parse_value, unknown_name
from ottla_broker.config.setting import BROKER_SETTINGS, Setting
from ottla_broker.wire import properties

ALIASES = {"broker.id": "node.id"}
OF_LISTENER = "listener.name."


class Given(NamedTuple):
    """A setting's text as somebody wrote it, and where: `server.properties:12` or `--set`."""

    name: str
    text: str
    place: str


class Static:
    """What was given, by setting, and what there is to say about it that is no error."""

    def __init__(self) -> None:
        self.values: dict[Setting[object], object] = {}
        self.of_listeners: dict[
            tuple[str, Setting[object]], object
        ] = {}  # by the listener's name, those that count for it alone
        self.notes: list[str] = []
        self.controller_listeners: tuple[str, ...] = ()


def read_file(path: str | PathLike[str]) -> list[Given]:
    """SettingError when the file cannot be read or has a bad escape."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 (pathlib would be a third of this package's import time)
            text = file.read().decode()
    except OSError as problem:
        raise SettingError([f"{path}: {problem.strerror or problem}"]) from None
    except UnicodeDecodeError as problem:
        raise SettingError([f"{path}: byte {problem.start} is not UTF-8"]) from None
    try:
        given = [Given(found.key, found.value, f"{path}:{found.line}") for found in properties.parse_properties(text)]
    except properties.InvalidEscape as problem:
        raise SettingError([f"{path}: {problem}"]) from None
    return [_filled_in(item) for item in given if not _is_left_out(item.text)]


def _filled_in(item: Given) -> Given:
    if "${env:" in item.text:
        item = from_environment(item)
    return from_directory(item) if item.text.startswith("${directory:") else item


def from_directory(item: Given) -> Given:
    """`${directory:PATH:FILE}` becomes what is in a file, as with Kafka's DirectoryConfigProvider (KIP-632), which need not be declared here. SettingError
    when it cannot be read."""
    path, colon, name = item.text.removeprefix("${directory:").removesuffix("}").rpartition(":")
    said = f"{item.place}: {item.name}={item.text}"
    if not (colon and item.text.endswith("}")):
        raise SettingError([f"{said}: allowed: ${{directory:PATH:FILE}}"])
    try:
        with open(f"{path}/{name}", "rb") as file:  # noqa: PTH123 (as above)
            return item._replace(text=file.read().decode())
    except OSError as problem:
        raise SettingError([f"{said}: {problem.strerror or problem}"]) from None
    except UnicodeDecodeError as problem:
        raise SettingError([f"{said}: byte {problem.start} is not UTF-8"]) from None


def from_environment(item: Given) -> Given:
    """`${env:NAME}` becomes the value of an environment variable, as with Kafka's EnvVarConfigProvider (KIP-887), which need not be declared here.
    SettingError when there is no such variable."""
    text, *parts = item.text.split("${env:")
    for part in parts:
        name, brace, after = part.partition("}")
        if not brace or name not in os.environ:
            raise SettingError([f"{item.place}: {item.name}={item.text}: there is no environment variable {name!r}"])
        text += os.environ[name] + after
    return item._replace(text=text)


def _is_left_out(text: str) -> bool:
    """Whether it is nothing but a variable that is there and empty: what stands in the environment has no value for this setting."""
    return text.startswith("${env:") and text.endswith("}") and os.environ.get(text[6:-1]) == ""


def from_command_line(pairs: Iterable[str]) -> list[Given]:
    """`key=value` texts."""
    given = []
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator:
            raise SettingError([f"--set {pair}: expected key=value"])
        given.append(Given(name.strip(), text.strip(), "--set"))
    return given


def from_mapping(values: Mapping[str, str], place: str) -> list[Given]:
    return [Given(name, text, place) for name, text in values.items()]


def settle(given: Sequence[Given]) -> Static:
    """Parses every setting; a later one of the same name wins. SettingError lists all that is wrong, in the order it was given."""
    static, problems = Static(), []
    last: dict[str, Given] = {}
    for item in given:
        name = ALIASES.get(item.name, item.name)
        earlier = last.pop(name, None)
        if (
            earlier is not None
            and earlier.place.split(":")[0] == item.place.split(":")[0]
            and earlier.text != item.text
        ):
            static.notes.append(
                f"{item.place}: {item.name}={item.text} replaces {earlier.name}={earlier.text} of {earlier.place}"
            )
        last[name] = item
    for name, item in last.items():
        setting = BROKER_SETTINGS.get(name)
        try:
            if setting is not None:
                static.values[setting] = parse_value(setting, item.text)
                if setting.not_yet:
                    static.notes.append(f"{item.place}: {name} has no effect yet: {setting.not_yet}")
            elif (of := of_one_listener(name)) is not None:
                static.of_listeners[of] = parse_value(of[1], item.text)
            else:
                _foreign(item, static)
        except SettingError as problem:
            problems += [f"{item.place}: {sentence}" for sentence in problem.problems]
    if problems:
        raise SettingError(problems)
    return static


def of_one_listener(name: str) -> tuple[str, Setting[object]] | None:
    """The listener and the setting that `listener.name.NAME.ssl.…` is; None for other names."""
    if not name.startswith(OF_LISTENER):
        return None
    listener, dot, rest = name.removeprefix(OF_LISTENER).partition(".ssl.")
    setting = BROKER_SETTINGS.get(f"ssl.{rest}") if dot else None
    return None if setting is None else (listener.upper(), setting)


def _foreign(item: Given, static: Static) -> None:
    if item.name in REFUSED:
        harmless, reason = REFUSED[item.name]
        if item.text.strip() != harmless:
            raise SettingError([f"{item.name}={item.text} is refused: {reason}"])
        return
    reason_ignored = why_ignored(item.name)
    if reason_ignored is None:
        raise SettingError([unknown_name(item.name, BROKER_SETTINGS, "setting of a broker")])
    if item.name == "process.roles" and "broker" not in [role.strip() for role in item.text.split(",")]:
        raise SettingError([f"process.roles={item.text} is refused: there are no controllers that are not brokers"])
    if item.name == "controller.listener.names":
        static.controller_listeners = tuple(name.strip().upper() for name in item.text.split(","))
    static.notes.append(f"{item.place}: {item.name} has no effect: {reason_ignored}")
