"""Balances preferred leaders over brokers by reordering replicas, without copying.

Invariant: afterwards no order of the same replicas has a smaller maximum of partitions led by one
broker, or a greater minimum, and each topic's leaders are balanced as far as that allows.
Leaderships move along paths, each from a broker to one that leads at least two fewer; the brokers
along a path keep their number. First within each topic; then over all topics by steps that keep
each topic balanced; then by any steps.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Sequence

Step = tuple[int, int]
"""A partition's index, and the broker that becomes its first replica."""


def balance_preferred_leaders(
    replicas: Sequence[list[int]], topics: Sequence[str], changeable: Collection[int], brokers: Collection[int]
) -> None:
    """Reorders replicas in place. `topics`: topic of each partition. `changeable`: indexes of the
    partitions that may be reordered. `brokers`: the brokers to balance.
    """
    by_topic: dict[str, list[int]] = defaultdict(list)
    for index, topic in enumerate(topics):
        by_topic[topic].append(index)
    for indexes in by_topic.values():
        _Leaders(replicas, topics, changeable, brokers, indexes).balance()
    if len(by_topic) > 1:
        _Leaders(replicas, topics, changeable, brokers, range(len(topics)), keep_topics=True).balance()
        _Leaders(replicas, topics, changeable, brokers, range(len(topics))).balance()


class _Leaders:
    """The leaders of some partitions while they are balanced. `counted`: indexes of these
    partitions. `keep_topics`: only steps that do not unbalance a topic.
    """

    def __init__(
        self,
        replicas: Sequence[list[int]],
        topics: Sequence[str],
        changeable: Collection[int],
        brokers: Collection[int],
        counted: Iterable[int],
        *,
        keep_topics: bool = False,
    ) -> None:
        self._replicas, self._topics, self._keep_topics = replicas, topics, keep_topics
        self._led: Counter[int] = Counter(dict.fromkeys(sorted(brokers), 0))
        self._led_of_topic: Counter[tuple[int, str]] = Counter()
        # from → to → indexes of partitions that `from` leads and `to` could lead instead
        self._edges: dict[int, dict[int, dict[int, None]]] = {it: {} for it in self._led}
        self._changeable = set(changeable)
        for index in counted:
            if replicas[index] and replicas[index][0] in self._led:
                self._count(index, 1)

    def balance(self) -> None:
        while path := self._find_path():
            for index, broker in path:
                self._make_leader(index, broker)

    def _find_path(self) -> list[Step]:
        """A path from a broker to one that leads at least two fewer; those that lead most are tried
        first. Empty if there is none.
        """
        for start in sorted(self._led, key=lambda it: (-self._led[it], it)):
            if self._led[start] - min(self._led.values()) < 2:
                break
            if found := self._search(start):
                return found
        return []

    def _search(self, start: int) -> list[Step]:
        came_from: dict[int, int] = {start: start}
        queue = deque([start])
        while queue:
            broker = queue.popleft()
            if self._led[broker] <= self._led[start] - 2:
                return list(self._steps(came_from, broker))
            for to in sorted(self._edges[broker], key=lambda it: (self._led[it], it)):
                if to not in came_from and self._may_step(broker, to):
                    came_from[to] = broker
                    queue.append(to)
        return []

    def _may_step(self, before: int, to: int) -> bool:
        found = self._edges[before][to]
        return any(self._excess(it, before, to) > 0 for it in found) if self._keep_topics else bool(found)

    def _steps(self, came_from: dict[int, int], broker: int) -> Iterator[Step]:
        while (before := came_from[broker]) != broker:
            excess = {index: self._excess(index, before, broker) for index in self._edges[before][broker]}
            yield max(excess, key=lambda it: (excess[it], -it)), broker
            broker = before

    def _excess(self, index: int, one: int, other: int) -> int:
        """Number of partitions of the same topic that `one` leads beyond those of `other`."""
        topic = self._topics[index]
        return self._led_of_topic[one, topic] - self._led_of_topic[other, topic]

    def _make_leader(self, index: int, broker: int) -> None:
        self._count(index, -1)
        self._replicas[index].remove(broker)
        self._replicas[index].insert(0, broker)
        self._count(index, 1)

    def _count(self, index: int, change: int) -> None:
        leader, *others = self._replicas[index]
        self._led[leader] += change
        self._led_of_topic[leader, self._topics[index]] += change
        if index not in self._changeable:
            return
        for broker in others:
            if broker in self._led:
                edge = self._edges[leader].setdefault(broker, {})
                if change > 0:
                    edge[index] = None
                else:
                    edge.pop(index, None)
