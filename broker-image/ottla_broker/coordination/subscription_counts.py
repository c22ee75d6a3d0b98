"""How many members of a consumer group have each subscription, and ask for each assignor. Large
groups have few different subscriptions, which are found here without going through all members.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

KeyT = TypeVar("KeyT")
TopicSubscription = tuple[tuple[str, ...], str]
"""Names of topics, sorted, and a regular expression or an empty string."""


@dataclass(slots=True)
class SubscriptionCounts:
    """Counts are never 0."""

    by_subscription: Counter[TopicSubscription] = field(default_factory=Counter)
    by_assignor: Counter[str] = field(default_factory=Counter)

    def add(self, subscription: TopicSubscription, assignor: str | None) -> None:
        self.by_subscription[subscription] += 1
        if assignor is not None:
            self.by_assignor[assignor] += 1

    def remove(self, subscription: TopicSubscription, assignor: str | None) -> None:
        _decrement(self.by_subscription, subscription)
        if assignor is not None:
            _decrement(self.by_assignor, assignor)

    @property
    def topic_names(self) -> set[str]:
        return {name for names, _ in self.by_subscription for name in names}

    @property
    def regular_expressions(self) -> set[str]:
        return {expression for _, expression in self.by_subscription if expression}

    def preferred_assignor(self, default: str) -> str:
        """The assignor that most members ask for; `default` if no member asks for one. If equally
        many ask for each, it is uniform, as in Kafka, whichever was asked for first."""
        return max(self.by_assignor, key=lambda name: (self.by_assignor[name], name), default=default)

    def __iter__(self) -> Iterator[TopicSubscription]:
        return iter(self.by_subscription)


def _decrement(counts: Counter[KeyT], key: KeyT) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
