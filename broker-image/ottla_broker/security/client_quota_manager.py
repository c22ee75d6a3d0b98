"""The quotas in effect on a broker, and what clients have used of them (KIP-13, KIP-55, KIP-124,
KIP-599, KIP-612).

Every broker measures and limits by itself, as in Kafka. Nothing is measured for clients without a
quota.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from ottla_broker.security.client_quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
)
from ottla_broker.security.quota_precedence import find_client_quota, find_ip_quota
from ottla_broker.security.token_bucket import TokenBucket

MAX_IDLE: Final = 10_000
"""Number of buckets, and of clients, up to which idle ones are not removed."""
MAX_REPORTED: Final = 1_000
"""Number of `Usage` keys with throttle metrics of their own. Throttling of further ones counts for
OTHERS.
"""
OTHERS: Final = "(others)"

Usage = tuple[str, str, str]
"""(quota key, user or address, client id): clients for which these are the same share a bucket."""


class QuotaWindows(msgspec.Struct, frozen=True):
    """A rate is measured over `samples` windows of `window_s` seconds (`quota.window.num`,
    `quota.window.size.seconds`), `controller_mutation_rate` over those of `controller_…`.
    """

    samples: int = 11
    window_s: float = 1.0
    controller_samples: int = 11
    controller_window_s: float = 1.0

    def burst_s(self, key: str) -> float:
        """A client that was idle may use the quota of this many seconds at once, as in Kafka."""
        if key == CONTROLLER_MUTATION_RATE:
            return self.controller_samples * self.controller_window_s
        return max(self.samples - 1, 1) * self.window_s


@dataclass(slots=True)
class ThrottleTotals:
    """Number of requests or connections that a quota has throttled, and the sum of their throttle
    times."""

    count: int = 0
    seconds: float = 0.0


class ThrottledUsage(NamedTuple):
    """`limit`: 0 if the bucket was removed. `throttle_time_s`: seconds until the use is within the
    limit.
    """

    usage: Usage
    totals: ThrottleTotals
    limit: float
    throttle_time_s: float


@dataclass(slots=True, eq=False)
class Quota:
    """A limit per second, and what is left to the clients that share it."""

    limit: float
    _bucket: TokenBucket
    _throttled: ThrottleTotals

    def take(self, value: float, now_s: float) -> None:
        self._bucket.take(value, self.limit, now_s)

    def tokens(self, now_s: float) -> float:
        return self._bucket.tokens(self.limit, now_s)

    def is_unused(self, now_s: float) -> bool:
        return self._bucket.is_full(self.limit, now_s)

    def throttle_time_s(self, now_s: float) -> float:
        return self._bucket.throttle_time_s(self.limit, now_s)

    def count_throttled(self, seconds: float) -> None:
        self._throttled.count += 1
        self._throttled.seconds += seconds


@dataclass(slots=True, eq=False)
class ClientQuotas:
    """The quotas of one user with one client id; None: no limit."""

    produce: Quota | None
    fetch: Quota | None
    request: Quota | None
    mutations: Quota | None

    @property
    def is_unlimited(self) -> bool:
        return self.produce is None and self.fetch is None and self.request is None and self.mutations is None


@dataclass(eq=False, repr=False)
class ClientQuotaManager:
    """`now_s`: the loop's clock. `is_active`: False while no entity has a quota, so that callers
    need no other call. `throttled`: how often and how long clients were throttled, also of buckets
    that were removed.
    """

    windows: QuotaWindows
    now_s: Callable[[], float]
    is_active: bool = False
    throttled: dict[Usage, ThrottleTotals] = field(default_factory=dict)
    _quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    _clients: dict[tuple[str, str], ClientQuotas] = field(default_factory=dict)  # by user, client id
    _used: dict[Usage, Quota] = field(default_factory=dict)
    _purge_above: int = MAX_IDLE

    def update(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Sets the quotas of the metadata. The use of clients so far still counts, unless no quota
        is left.
        """
        self._quotas = quotas
        self.is_active = bool(quotas)
        self._clients.clear()
        if not self.is_active:
            self._used.clear()

    def of_client(self, user: str, client_id: str) -> ClientQuotas:
        """The quotas that apply to a user with a client id."""
        if (known := self._clients.get((user, client_id))) is not None:
            return known
        if len(self._clients) >= MAX_IDLE:
            self._clients.clear()

        def find(key: str) -> Quota | None:
            found = find_client_quota(self._quotas, key, user, client_id)
            return None if found is None else self._quota((key, found.user, found.client_id), found.limit)

        made = self._clients[user, client_id] = ClientQuotas(
            find(PRODUCER_BYTE_RATE),
            find(CONSUMER_BYTE_RATE),
            find(REQUEST_PERCENTAGE),
            find(CONTROLLER_MUTATION_RATE),
        )
        return made

    def count_connection(self, address: str) -> float:
        """Counts a new connection from this address and returns 0, or returns the seconds after
        which the address may connect again; the connection is then not counted.
        """
        limit = find_ip_quota(self._quotas, CONNECTION_CREATION_RATE, address)
        if limit is None:
            return 0.0
        quota, now_s = self._quota((CONNECTION_CREATION_RATE, address, ""), limit), self.now_s()
        largest = limit * self.windows.burst_s(CONNECTION_CREATION_RATE)
        wait_s = (min(1.0, largest) - quota.tokens(now_s)) / limit
        if wait_s > 0:
            quota.count_throttled(wait_s)
            return wait_s
        quota.take(1, now_s)
        return 0.0

    def describe_throttled(self) -> Iterator[ThrottledUsage]:
        """The quotas that have throttled clients since the broker started."""
        now_s = self.now_s()
        for usage, totals in self.throttled.items():
            if totals.count:
                quota = self._used.get(usage)
                limit_and_time = (0.0, 0.0) if quota is None else (quota.limit, quota.throttle_time_s(now_s))
                yield ThrottledUsage(usage, totals, *limit_and_time)

    def _quota(self, usage: Usage, limit: float) -> Quota:
        if (quota := self._used.get(usage)) is None:
            self._purge()
            bucket = TokenBucket(self.windows.burst_s(usage[0]))
            quota = self._used[usage] = Quota(limit, bucket, self._throttled(usage))
        quota.limit = limit
        return quota

    def _throttled(self, usage: Usage) -> ThrottleTotals:
        if usage not in self.throttled and len(self.throttled) >= MAX_REPORTED:
            usage = usage[0], OTHERS, ""
        return self.throttled.setdefault(usage, ThrottleTotals())

    def _purge(self) -> None:
        """Drops the quotas of idle clients: clients choose their ids, so their number has no
        bound."""
        if len(self._used) >= self._purge_above:
            now_s = self.now_s()
            self._clients.clear()
            self._used = {usage: quota for usage, quota in self._used.items() if not quota.is_unused(now_s)}
            self._purge_above = 2 * len(self._used) + MAX_IDLE
