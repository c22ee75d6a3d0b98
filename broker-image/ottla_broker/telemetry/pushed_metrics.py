"""The metrics that clients have pushed, as /metrics exposes them, with bounded cardinality.

A series is one metric of one client instance with one set of attributes. A client has at most
`MAX_SERIES_OF_CLIENT`, all clients of the broker together `MAX_SERIES`; points of further series
are dropped and counted. A client's series are removed three push intervals after its last push.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple
from uuid import UUID

from ottla_broker.metrics import Metric, Sample
from ottla_broker.time_slices import TimeSlices

MAX_SERIES: Final = 10_000
MAX_SERIES_OF_CLIENT: Final = 1_000
INTERVALS_TO_REMOVAL: Final = 3

Labels = tuple[tuple[str, str], ...]
"""Names and values, sorted by name."""


class PushedPoint(NamedTuple):
    """A value of one series. `is_delta`: `value` is added to the series' previous value."""

    name: str
    kind: Literal["counter", "gauge"]
    labels: Labels
    value: float
    is_delta: bool = False


@dataclass(slots=True)
class _Client:
    labels: Labels
    expires_ms: int
    series: dict[tuple[str, Literal["counter", "gauge"], Labels], float] = field(default_factory=dict)


class PushedMetrics:
    """`pushes`: how many were stored. `dropped`: points that were not kept because there were too
    many series.
    """

    def __init__(self) -> None:
        self._clients: dict[UUID, _Client] = {}
        self._series_count = 0
        self.dropped = 0
        self.pushes = 0

    def add(
        self,
        instance_id: UUID,
        labels: Mapping[str, str],
        points: Iterable[PushedPoint],
        *,
        now_ms: int,
        interval_ms: int,
    ) -> None:
        """Stores a client's points. `labels`: those that all series of the client get."""
        self.remove_expired(now_ms)
        self.pushes += 1
        client = self._clients.setdefault(instance_id, _Client(tuple(sorted(labels.items())), 0))
        client.expires_ms = now_ms + INTERVALS_TO_REMOVAL * interval_ms
        for point in points:
            key = point.name, point.kind, point.labels
            if (former := client.series.get(key)) is None:
                if self._series_count >= MAX_SERIES or len(client.series) >= MAX_SERIES_OF_CLIENT:
                    self.dropped += 1
                    continue
                self._series_count += 1
            client.series[key] = point.value + (former or 0) if point.is_delta else point.value
        if not client.series:
            del self._clients[instance_id]

    def remove_expired(self, now_ms: int) -> None:
        for instance_id in [one for one, client in self._clients.items() if client.expires_ms <= now_ms]:
            self._series_count -= len(self._clients.pop(instance_id).series)

    async def families(self, now_ms: int, slices: TimeSlices) -> AsyncIterator[tuple[Metric, Iterable[Sample]]]:
        """Metrics with their samples, sorted by name. A series without one of its metric's labels
        gets the label with an empty value, which Prometheus treats as absent."""
        self.remove_expired(now_ms)
        by_name: dict[str, list[tuple[dict[str, str], float]]] = {}
        kinds: dict[str, Literal["counter", "gauge"]] = {}
        names: dict[str, set[str]] = {}
        for client in list(self._clients.values()):
            async for batch in slices.batches(list(client.series.items())):
                for (name, kind, labels), value in batch:
                    if kinds.setdefault(name, kind) == kind:  # one name has one type in Prometheus
                        values = dict(client.labels + labels)
                        by_name.setdefault(name, []).append((values, value))
                        names.setdefault(name, set()).update(values)
        for name, series in sorted(by_name.items()):
            metric = Metric(name, kinds[name], "Pushed by clients (KIP-714).", tuple(sorted(names[name])))
            yield metric, _samples(metric.labels, series)


def _samples(labels: tuple[str, ...], series: list[tuple[dict[str, str], float]]) -> Iterator[Sample]:
    for values, value in series:
        yield Sample(tuple([values.get(label, "") for label in labels]), value)
