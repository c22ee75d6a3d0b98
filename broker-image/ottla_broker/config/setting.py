"""One setting is one row of a table: Kafka's name, type, default, text, and how it differs from
Kafka.

Validation, DescribeConfigs, docs/settings.md and the tests all read these rows. A row that code
reads by name is bound to a constant; a row without one is read through its table (LogConfig's
fields).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, NamedTuple, TypedDict, TypeVar, Unpack

import msgspec

from ottla_broker.config.value_types import ValueType

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class UpdateMode(Enum):
    """Kafka's "dynamic update mode": whether a setting can change while brokers run, and for which
    brokers.
    """

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "per-broker or cluster-wide"
    CLUSTER_WIDE_ONLY = "cluster-wide"
    PER_TOPIC = "per-topic"
    PER_MIRROR = "per-mirror"
    PER_GROUP = "per-group"
    PER_CLIENT_METRICS_SUBSCRIPTION = "per-subscription"


class SettingError(ValueError):
    """One or more invalid settings. `problems`: one sentence for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class BrokerDefault(NamedTuple):
    """A broker setting from which a topic or group setting takes its default: `value × factor`.
    With a factor other than 1, every negative value becomes −1 (no limit)."""

    setting: "Setting[object]"
    factor: int = 1

    def scale(self, value: object) -> object:
        if self.factor == 1:
            return value
        assert isinstance(value, int)
        return -1 if value < 0 else value * self.factor


@dataclass(frozen=True, slots=True, eq=False)
class Setting(Generic[T_co]):
    """A row of a table. `default`: the parsed value. `differs`: why the default is not Kafka 4.1's.
    `no_effect`: why the value is accepted and changes nothing. `broker_defaults`: for a topic or
    group setting, the broker settings that are its default; the first that is set applies.
    `since_kafka`: for a topic setting, the first version of Kafka that has it if that is newer than
    4.3; DescribeConfigs lists it only where it is set."""

    name: str
    type: ValueType[T_co]
    default: T_co
    doc: str
    section: str
    update_mode: UpdateMode
    differs: str = ""
    no_effect: str = ""
    is_sensitive: bool = False
    is_ottla_only: bool = False
    since_kafka: str = ""
    broker_defaults: tuple[BrokerDefault, ...] = ()

    @property
    def default_text(self) -> str | None:
        return None if self.default is None else self.type.text(self.default)

    def parse(self, text: str) -> T_co:
        """Raises SettingError, which names the allowed values."""
        try:
            return self.type.parse(text)
        except ValueError as problem:
            reason = str(problem)
            # Python's own messages ("could not convert string to float") add nothing to `allowed`.
            reason = (
                f" ({reason})" if reason and not reason.startswith(("could not convert", "invalid literal")) else ""
            )
            shown = "a value that is kept secret" if self.is_sensitive else repr(text)
            sentence = f"{self.name} cannot be {shown}{reason}; allowed: {self.type.allowed}"
            raise SettingError([sentence]) from None

    def __repr__(self) -> str:
        return f"<setting {self.name}>"


BROKER_SETTINGS: dict[str, Setting[object]] = {}
TOPIC_SETTINGS: dict[str, Setting[object]] = {}
MIRROR_SETTINGS: dict[str, Setting[object]] = {}
GROUP_SETTINGS: dict[str, Setting[object]] = {}
CLIENT_METRICS_SETTINGS: dict[str, Setting[object]] = {}


class OptionalColumns(TypedDict, total=False):
    """Columns that few rows have; see `Setting`."""

    differs: str
    no_effect: str
    is_sensitive: bool
    is_ottla_only: bool
    since_kafka: str
    broker_defaults: tuple[BrokerDefault, ...]


class Section(msgspec.Struct, frozen=True):
    """Rows that belong together: a heading of docs/settings.md."""

    title: str
    table: dict[str, Setting[object]]
    update_mode: UpdateMode = UpdateMode.READ_ONLY

    def row(
        self,
        name: str,
        type: ValueType[T],
        default: T | str,
        doc: str,
        mode: UpdateMode | None = None,
        **more: Unpack[OptionalColumns],
    ) -> Setting[T]:
        """`default`: a value, or its text; None: not set. `mode` None: the section's."""
        value = type.parse(default) if isinstance(default, str) else default
        setting = Setting(name, type, value, doc, self.title, mode or self.update_mode, **more)
        self.table[name] = setting
        return setting


def value_or_default(setting: Setting[T], given: Mapping[str, str]) -> T:
    """The value of the setting among the `given` texts by name. The default if it is not given, or
    if another version wrote a value that this one does not allow.
    """
    text = given.get(setting.name)
    try:
        return setting.default if text is None else setting.parse(text)
    except SettingError:
        return setting.default


def describe_unknown_name(name: str, known: Iterable[str], what: str) -> str:
    """Says that there is no such setting, and which of the `known` names is similar. `what`:
    "setting of a broker" and the like.
    """
    from difflib import get_close_matches  # only where something is wrong: start-up does not pay for it

    close = get_close_matches(name, list(known), n=1, cutoff=0.75)
    return f"{name} is no {what}{f'; did you mean {close[0]}?' if close else ''}"
