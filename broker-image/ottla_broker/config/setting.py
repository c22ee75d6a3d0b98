"""One setting, declared once: what Kafka calls it, what it may be, what it is when nobody says, and what it does.

Validation, DescribeConfigs, docs/settings.md and the tests all read these declarations.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, Literal, TypeVar

from ottla_broker.config.kinds import Kind

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Importance = Literal["high", "medium", "low"]


class Scope(Enum):
    """Who may change a setting while brokers run."""

    STATIC = "at start only"
    BROKER = "while running, per broker"
    CLUSTER = "while running, per broker or for all"
    CLUSTER_ONLY = "while running, for all brokers"
    TOPIC = "while running, per topic"
    GROUP = "while running, per group"


@dataclass(frozen=True, slots=True)
class Default:
    """A broker setting that gives a topic setting its value where the topic says nothing: `value × factor`, and -1 (no limit) for
    anything negative when there is a factor."""

    setting: "Setting[object]"
    factor: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Setting(Generic[T_co]):
    """`default`: the parsed value. `differs`: why the default is not Kafka 4.1's; empty when it is. `from_broker`: for a topic
    setting, the broker settings that stand behind it, the first that is set wins."""

    name: str
    kind: Kind[T_co]
    default: T_co
    doc: str
    scope: Scope
    theme: str
    importance: Importance = "medium"
    differs: str = ""
    sensitive: bool = False
    ours: bool = False
    from_broker: tuple[Default, ...] = ()

    @property
    def default_text(self) -> str | None:
        return None if self.default is None else self.kind.text(self.default)

    def __repr__(self) -> str:
        return f"<setting {self.name}>"


BROKER_SETTINGS: dict[str, Setting[object]] = {}
TOPIC_SETTINGS: dict[str, Setting[object]] = {}
GROUP_SETTINGS: dict[str, Setting[object]] = {}


@dataclass(frozen=True, slots=True)
class Theme:
    """Declares settings that belong together; the title is a heading of docs/settings.md."""

    title: str
    scope: Scope = field(default=Scope.STATIC)

    def broker(
        self,
        name: str,
        kind: Kind[T],
        default: T,
        doc: str,
        *,
        importance: Importance = "medium",
        scope: Scope | None = None,
        differs: str = "",
        sensitive: bool = False,
        ours: bool = False,
    ) -> Setting[T]:
        made = Setting(name, kind, default, doc, scope or self.scope, self.title, importance, differs, sensitive, ours)
        BROKER_SETTINGS[name] = made
        return made

    def topic(
        self,
        name: str,
        kind: Kind[T],
        default: T,
        doc: str,
        *from_broker: "Setting[object] | Default",
        differs: str = "",
    ) -> Setting[T]:
        made = Setting(
            name, kind, default, doc, Scope.TOPIC, self.title, differs=differs, from_broker=_defaults(from_broker)
        )
        TOPIC_SETTINGS[name] = made
        return made

    def group(self, name: str, kind: Kind[T], default: T, doc: str, *from_broker: "Setting[object]") -> Setting[T]:
        made = Setting(name, kind, default, doc, Scope.GROUP, self.title, from_broker=_defaults(from_broker))
        GROUP_SETTINGS[name] = made
        return made


def _defaults(settings: "Sequence[Setting[object] | Default]") -> tuple[Default, ...]:
    return tuple(setting if isinstance(setting, Default) else Default(setting) for setting in settings)
