"""Generates the steps of walks from so few names that the steps interact."""

import dataclasses
import typing
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final, cast

from ottla_broker.wire.codec import request_class
from tests.clients.api_session import KEYS, VERSIONS, has_message_class, type_hints
from tests.clients.walks.steps import Reference, ReferenceKind, Step

TOPICS: Final = ("t0", "t1", "t2", "t3")
GROUPS: Final = ("g0", "g1", "g2")
SLOTS: Final = ("m0", "m1", "m2", "m3")
INSTANCES: Final = {"m2": "s0", "m3": "s1"}  # the static members
PRODUCERS: Final = (1_000_001, 1_000_002, 1_000_003)  # beyond the ids that brokers allocate
SESSIONS: Final = ("a", "b")
START_MS: Final = 1_700_000_000_000
DAY_MS: Final = 86_400_000
# The last time is more than a week later, and so in a new segment.
TIMES: Final = (START_MS, START_MS + 1, START_MS + 5, START_MS + 10, START_MS + 8 * DAY_MS)
_VERSIONS: Final = {
    api: [version for version in range(first, last + 1) if has_message_class(api, version)]
    for api, (first, last) in VERSIONS.items()
}


def fields_of_version(cls: type, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields that this version of a request has."""
    hints = type_hints(cls)
    return {name: _value_of_version(hints[name], value) for name, value in fields.items() if name in hints}


def _value_of_version(hint: Any, value: Any) -> Any:
    if isinstance(value, dict | list):
        inner = next((each for each in message_classes(hint)), None)
        if isinstance(value, dict):
            return value if inner is None else fields_of_version(inner, value)
        return value if inner is None else [fields_of_version(inner, each) for each in value]
    return value


def message_classes(hint: Any) -> Iterator[type]:
    """The message classes in a type hint."""
    if dataclasses.is_dataclass(hint):
        yield cast(type, hint)
    for each in typing.get_args(hint):
        yield from message_classes(each)


class StepGenerator:
    """Random steps, and values that several kinds of steps need. `session_ms`: session timeout of
    members.
    """

    def __init__(self, seed: int, highest: dict[str, int], session_ms: int) -> None:
        self.random = Random(seed)
        self.session_ms = session_ms
        self._highest = highest
        # What exists if every step succeeded: topics with their partitions, members by group.
        self.created: dict[str, int] = {}
        self.joined: dict[str, list[str]] = {}
        self.deleted_from: set[str] = set()  # topics with deleted records
        self.applications: dict[str, Any] = {}  # the topology of each streams group

    def step(self, api: str, *, low: int = 0, high: int = 99, source: tuple[str, ...] = (), **fields: Any) -> Step:
        high = min(high, self._highest[api])
        versions = [version for version in _VERSIONS[api] if low <= version <= high]
        version = self.random.choice(versions)
        return Step(api, version, fields_of_version(request_class(KEYS[api], version), fields), source)

    def choose(self, *of: Any) -> Any:
        return self.random.choice(of)

    def chance(self, probability: float = 0.05) -> bool:
        """True with this probability."""
        return self.random.random() < probability

    def topic(self) -> str:
        """An existing topic, usually."""
        if self.created and not self.chance(0.08):
            return self.random.choice(list(self.created))
        return self.random.choice(TOPICS)

    def topics(self) -> list[str]:
        return list(dict.fromkeys(self.topic() for _ in range(self.choose(1, 1, 1, 2))))

    def member(self) -> tuple[str, str]:
        """(group, slot) of a member that has joined, usually."""
        group = self.group()
        if (joined := self.joined.get(group)) and not self.chance(0.08):
            return group, self.random.choice(joined)
        return group, self.choose(*SLOTS)

    def group(self) -> str:
        return self.random.choices(GROUPS, (6, 3, 1))[0]

    def partitions(self, topic: str) -> list[int]:
        """One or two existing partitions, usually."""
        if self.chance(0.03):
            return [self.choose(9, -1)]
        indexes = list(range(self.created.get(topic, 3)))
        return self.random.sample(indexes, min(len(indexes), self.choose(1, 1, 1, 2)))

    def offset(self, topic: str, partition: int) -> int | Reference:
        if self.chance(0.5):
            return Reference("end", (topic, partition), self.random.choices((0, -1, -2, 1), (5, 3, 2, 1))[0])
        return int(self.choose(0, 0, 1, 2, 3, 5, 8, -1, 100))

    def topic_fields(self, topic: str) -> dict[str, Any]:
        """A topic by name and by id, for either kind of version."""
        id_kind: ReferenceKind = "old id" if self.chance() else "id"
        name, topic_id = Reference("name", (topic,)), Reference(id_kind, (topic,))
        return {"name": name, "topic": name, "topic_id": topic_id}


StepKind = Callable[[StepGenerator], Step | list[Step]]
"""Generates a step, or several that belong together."""
