"""Histograms of how long requests take, by API and phase, as Kafka's RequestMetrics has them.

- `queue`: from the arrival of the whole request until the broker serves it. A request waits behind
  others of its connection, while the client exceeds a quota, or while the broker starts.
- `local`: the broker's own processing until the response is ready or waits for others.
- `remote`: the wait for replicas, records, group members or the controller, and for earlier
  responses of the same connection.
- `send`: how long a client left a response unread after its socket was full. Other responses are
  not counted in this phase.
- `total`: `queue`, `local` and `remote` together.

Counting allocates nothing: an index into a list and two additions for each phase.
"""

from collections.abc import Callable
from typing import Final

from ottla_broker.duration_histogram import DurationHistogram, bucket_of
from ottla_broker.wire.api_keys import ApiKey

FOLLOWER_FETCH: Final = -1
"""In place of the API key: Fetch requests of followers."""
PHASES: Final = ("queue", "local", "remote", "send", "total")


class ApiTimes:
    """The histograms of one API."""

    __slots__ = PHASES

    def __init__(self) -> None:
        self.queue = DurationHistogram()
        self.local = DurationHistogram()
        self.remote = DurationHistogram()
        self.send = DurationHistogram()
        self.total = DurationHistogram()

    def phases(self) -> list[tuple[str, DurationHistogram]]:
        return [(phase, getattr(self, phase)) for phase in PHASES]


class ServedRequest:
    """A request whose response is not ready when its handler returns. Times are those of
    `RequestTimes.clock`.
    """

    __slots__ = ("api", "began_s", "handled_s", "queue_s")

    def __init__(self, api: int, queue_s: float, began_s: float, handled_s: float) -> None:
        self.api = api
        self.queue_s = queue_s
        self.began_s = began_s
        self.handled_s = handled_s


class RequestTimes:
    """One per broker. `by_api`: by API key, for those that were requested."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.by_api: dict[int, ApiTimes] = {}

    def observe(self, api: int, queue_s: float, local_s: float, times: int = 1) -> None:
        """Counts requests that were answered without a wait."""
        api_times = self.by_api.get(api) or self._add(api)
        api_times.queue.observe(queue_s, times)
        bucket = api_times.local.observe(local_s, times)
        if queue_s:
            bucket = bucket_of(queue_s + local_s)
        api_times.total.counts[bucket] += times
        api_times.total.sum_s += (queue_s + local_s) * times

    def observe_deferred(self, request: ServedRequest) -> None:
        """Counts a request whose response is written now."""
        now_s = self.clock()
        api_times = self.by_api.get(request.api) or self._add(request.api)
        api_times.queue.observe(request.queue_s)
        api_times.local.observe(request.handled_s - request.began_s)
        api_times.remote.observe(now_s - request.handled_s)
        api_times.total.observe(request.queue_s + now_s - request.began_s)

    def observe_send(self, api: int, duration_s: float) -> None:
        (self.by_api.get(api) or self._add(api)).send.observe(duration_s)

    def _add(self, api: int) -> ApiTimes:
        self.by_api[api] = times = ApiTimes()
        return times


def api_title(api: int) -> str:
    """The name that Kafka's metrics give to requests: Fetch has one for consumers and one for
    followers."""
    if api == ApiKey.FETCH:
        return "FetchConsumer"
    return "FetchFollower" if api == FOLLOWER_FETCH else ApiKey(api).title
