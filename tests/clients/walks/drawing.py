"""The small world that all walks draw from, so that their steps meet each other."""

import dataclasses
import typing
from collections.abc import Iterator
from random import Random
from typing import Any, Final, cast

from ottla_broker.wire.codec import request_class
from tests.clients.asking import KEYS, VERSIONS, hints_of
from tests.clients.test_same_answers import exists
from tests.clients.walks.steps import Kind, Ref, Step

TOPICS: Final = ("t0", "t1", "t2", "t3")
GROUPS: Final = ("g0", "g1", "g2")
SLOTS: Final = ("m0", "m1", "m2", "m3")
INSTANCES: Final = {"m2": "s0", "m3": "s1"}  # the static members
PRODUCERS: Final = (1_000_001, 1_000_002, 1_000_003)  # brokers give out small ones
SESSIONS: Final = ("a", "b")
START_MS: Final = 1_700_000_000_000
DAY_MS: Final = 86_400_000
TIMES: Final = (
    START_MS,
    START_MS + 1,
    START_MS + 5,
    START_MS + 10,
    START_MS + 8 * DAY_MS,
)  # a week makes a new segment
_VERSIONS: Final = {
    api: [version for version in range(first, last + 1) if exists(api, version)]
    for api, (first, last) in VERSIONS.items()
}


def spoken(cls: type, fields: dict[str, Any]) -> dict[str, Any]:
    """Only those fields that this version of a request has."""
    hints = hints_of(cls)
    return {name: _spoken(hints[name], value) for name, value in fields.items() if name in hints}


def _spoken(hint: Any, value: Any) -> Any:
    if isinstance(value, dict | list):
        inner = next((each for each in structures(hint)), None)
        if isinstance(value, dict):
            return value if inner is None else spoken(inner, value)
        return value if inner is None else [spoken(inner, each) for each in value]
    return value


def structures(hint: Any) -> Iterator[type]:
    """The classes of messages that a type holds."""
    if dataclasses.is_dataclass(hint):
        yield cast(type, hint)
    for each in typing.get_args(hint):
        yield from structures(each)


class Draw:
    """Chance, with the shapes that several kinds of step need. `session_ms`: of the members."""

    def __init__(self, seed: int, highest: dict[str, int], session_ms: int) -> None:
        self.chance = Random(seed)
        self.session_ms = session_ms
        self._highest = highest
        # What is there if all went well: topics with their partitions, members by group.
        self.made: dict[str, int] = {}
        self.joined: dict[str, list[str]] = {}
        self.cut: set[str] = set()  # topics of which records were deleted

    def step(self, api: str, *, low: int = 0, high: int = 99, learns: tuple[str, ...] = (), **fields: Any) -> Step:
        high = min(high, self._highest[api])
        versions = [version for version in _VERSIONS[api] if low <= version <= high]
        version = self.chance.choice(versions)
        return Step(api, version, spoken(request_class(KEYS[api], version), fields), learns)

    def one(self, *of: Any) -> Any:
        return self.chance.choice(of)

    def rarely(self, share: float = 0.05) -> bool:
        return self.chance.random() < share

    def topic(self) -> str:
        """One that is there, as a rule."""
        if self.made and not self.rarely(0.08):
            return self.chance.choice(list(self.made))
        return self.chance.choice(TOPICS)

    def topics(self) -> list[str]:
        return list(dict.fromkeys(self.topic() for _ in range(self.one(1, 1, 1, 2))))

    def member(self) -> tuple[str, str]:
        """(group, slot) of one that has joined, as a rule."""
        group = self.group()
        if (joined := self.joined.get(group)) and not self.rarely(0.08):
            return group, self.chance.choice(joined)
        return group, self.one(*SLOTS)

    def group(self) -> str:
        return self.chance.choices(GROUPS, (6, 3, 1))[0]

    def partitions(self, topic: str) -> list[int]:
        """One or two that are there, as a rule."""
        if self.rarely(0.03):
            return [self.one(9, -1)]
        there = list(range(self.made.get(topic, 3)))
        return self.chance.sample(there, min(len(there), self.one(1, 1, 1, 2)))

    def offset(self, topic: str, partition: int) -> int | Ref:
        if self.rarely(0.5):
            return Ref("end", (topic, partition), self.chance.choices((0, -1, -2, 1), (5, 3, 2, 1))[0])
        return int(self.one(0, 0, 1, 2, 3, 5, 8, -1, 100))

    def named(self, topic: str) -> dict[str, Any]:
        """As both kinds of version name a topic."""
        wanted: Kind = "old id" if self.rarely() else "id"
        name, known = Ref("name", (topic,)), Ref(wanted, (topic,))
        return {"name": name, "topic": name, "topic_id": known}
