"""One setting, declared once: what Kafka calls it, what it may be, what it is when nobody says, and what it does.

Validation, DescribeConfigs, docs/settings.md and the tests all read these declarations.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final, Generic, Literal, NamedTuple, TypeVar

from ottla_broker.config.value_types import ValueType

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
    MIRROR = "while running, per mirror"


class Setting(Generic[T_co]):
    """`default`: the parsed value. `differs`: why the default is not Kafka 4.1's; empty when it is. `not_yet`: why it has no
    effect so far. `from_broker`: for a topic
    setting, the broker settings that stand behind it, the first that is set wins. Never changed once made; compared by identity."""

    __slots__ = (
        "default",
        "differs",
        "doc",
        "from_broker",
        "importance",
        "kind",
        "name",
        "not_yet",
        "ours",
        "scope",
        "sensitive",
        "theme",
    )

    def __init__(
        self,
        name: str,
        kind: ValueType[T_co],
        default: T_co,
        doc: str,
        *,
        scope: Scope,
        theme: str,
        importance: Importance = "medium",
        differs: str = "",
        sensitive: bool = False,
        ours: bool = False,
        not_yet: str = "",
        from_broker: "tuple[Default, ...]" = (),
    ) -> None:
        self.name: Final = name
        self.kind: Final = kind
        self.default: Final = default
        self.doc: Final = doc
        self.scope: Final = scope
        self.theme: Final = theme
        self.importance: Final = importance
        self.differs: Final = differs
        self.sensitive: Final = sensitive
        self.ours: Final = ours
        self.not_yet: Final = not_yet
        self.from_broker: Final = from_broker

    @property
    def default_text(self) -> str | None:
        return None if self.default is None else self.kind.text(self.default)

    def __repr__(self) -> str:
        return f"<setting {self.name}>"


class Default(NamedTuple):
    """A broker setting that gives a topic setting its value where the topic says nothing: `value × factor`, and -1 (no limit) for
    anything negative when there is a factor."""

    setting: Setting[object]
    factor: int = 1


BROKER_SETTINGS: dict[str, Setting[object]] = {}
TOPIC_SETTINGS: dict[str, Setting[object]] = {}
MIRROR_SETTINGS: dict[str, Setting[object]] = {}


class Theme(NamedTuple):
    """Declares settings that belong together; the title is a heading of docs/settings.md."""

    title: str
    scope: Scope = Scope.STATIC

    def broker(
        self,
        name: str,
        kind: ValueType[T],
        default: T,
        doc: str,
        *,
        importance: Importance = "medium",
        scope: Scope | None = None,
        differs: str = "",
        sensitive: bool = False,
        ours: bool = False,
        not_yet: str = "",
    ) -> Setting[T]:
        made = Setting(
            name,
            kind,
            default,
            doc,
            scope=scope or self.scope,
            theme=self.title,
            importance=importance,
            differs=differs,
            sensitive=sensitive,
            ours=ours,
            not_yet=not_yet,
        )
        BROKER_SETTINGS[name] = made
        return made

    def topic(
        self,
        name: str,
        kind: ValueType[T],
        default: T,
        doc: str,
        *from_broker: Setting[object] | Default,
        differs: str = "",
    ) -> Setting[T]:
        made = Setting(
            name,
            kind,
            default,
            doc,
            scope=Scope.TOPIC,
            theme=self.title,
            differs=differs,
            from_broker=_defaults(from_broker),
        )
        TOPIC_SETTINGS[name] = made
        return made

    def mirror(self, name: str, kind: ValueType[T], default: T, doc: str, *, sensitive: bool = False) -> Setting[T]:
        made = Setting(name, kind, default, doc, scope=Scope.MIRROR, theme=self.title, ours=True, sensitive=sensitive)
        MIRROR_SETTINGS[name] = made
        return made


def _defaults(settings: Sequence[Setting[object] | Default]) -> tuple[Default, ...]:
    return tuple(setting if isinstance(setting, Default) else Default(setting) for setting in settings)
