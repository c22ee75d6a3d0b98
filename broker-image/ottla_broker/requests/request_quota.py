"""One request and its client's quotas: what it uses is charged, and while a quota is exceeded its
connection is muted.

The response is sent at once and names the time (KIP-219). The broker reads nothing from the
connection meanwhile, since some clients do not wait by themselves.
"""

import math
from dataclasses import replace
from typing import Any, Final

from kio.static.primitive import i32Timedelta

from ottla_broker.requests.context import ConnectionState, RequestContext
from ottla_broker.requests.durations import to_duration, to_milliseconds
from ottla_broker.security.client_quota_manager import ClientQuotaManager, ClientQuotas, Quota
from ottla_broker.security.client_quotas import CONSUMER_BYTE_RATE
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.message_schema import schema_of

CLOCK_ERROR_S: Final = 1e-4
"""Shorter throttle times are ignored: rounding errors of summed times are about as large."""


class RequestQuota:
    """`throttle_ms`: for how long the connection is muted."""

    __slots__ = ("_connection", "_manager", "_quotas", "throttle_ms")

    def __init__(self, manager: ClientQuotaManager, quotas: ClientQuotas, connection: ConnectionState) -> None:
        self._manager = manager
        self._quotas = quotas
        self._connection = connection
        self.throttle_ms = 0
        if (request := self._quotas.request) is not None:
            # For what the client's earlier requests took: at most one window, as in Kafka.
            self._throttle(request, min(request.throttle_time_s(manager.now_s()), manager.windows.window_s))

    def charge_processing(self, seconds: float) -> None:
        """Charges time of the broker's thread: 1 s in each second is 100 %. The next request is
        throttled for it.
        """
        if (request := self._quotas.request) is not None:
            request.take(seconds * 100, self._manager.now_s())

    def charge_produce(self, size: int) -> int:
        """Charges the bytes of a Produce request. Returns the time in ms for which the client is
        throttled.
        """
        if (produce := self._quotas.produce) is not None:
            now_s = self._manager.now_s()
            produce.take(size, now_s)
            self._throttle(produce, produce.throttle_time_s(now_s))
        return self.throttle_ms

    def max_fetch_bytes(self) -> int | None:
        """Bytes that the consumer's quota leaves now, but at least those of one window. A response
        that is larger than what is left is throttled (`charge_fetch`). None without a quota.
        """
        if (fetch := self._quotas.fetch) is None:
            return None
        windows = self._manager.windows
        return max(int(fetch.tokens(self._manager.now_s())), int(fetch.limit * windows.window_s), 1)

    def charge_fetch(self, size: int) -> bool:
        """Charges the bytes of a Fetch response. False if nothing is charged, and the response must
        be empty.

        A single batch may be larger than all windows of the quota together allow. It is sent to a
        consumer whose quota is unused, because the consumer could never read on otherwise, and the
        consumer is throttled afterwards.
        """
        if self.throttle_ms:
            return False
        if (fetch := self._quotas.fetch) is None or not size:
            return True
        now_s = self._manager.now_s()
        largest = fetch.limit * self._manager.windows.burst_s(CONSUMER_BYTE_RATE)
        wait_s = (min(size, largest) - fetch.tokens(now_s)) / fetch.limit
        if wait_s > CLOCK_ERROR_S:
            self._throttle(fetch, wait_s)
            return False
        fetch.take(size, now_s)
        self._throttle(fetch, fetch.throttle_time_s(now_s))
        return True

    def charge_share_fetch(self, size: int) -> None:
        """Charges the bytes of a ShareFetch response. Its records are locked for the member by now,
        so it is sent whole, and the client is throttled for it afterwards. `max_fetch_bytes` bounds
        it before.
        """
        if (fetch := self._quotas.fetch) is not None and size:
            now_s = self._manager.now_s()
            fetch.take(size, now_s)
            self._throttle(fetch, fetch.throttle_time_s(now_s))

    def with_throttle_time(self, response: Any) -> Any:
        """The response with the throttle time in it. If the controller has put a longer one there,
        that stays, and the connection is muted for it.
        """
        message: type = type(response)
        if "throttle_time" not in {one.name for one in schema_of(message).all_fields}:
            return response
        if (throttle_ms := to_milliseconds(response.throttle_time)) > self.throttle_ms:
            self.throttle_ms = throttle_ms
            self._connection.mute(throttle_ms / 1000)
        return replace(response, throttle_time=throttle_time(self.throttle_ms))

    def _throttle(self, quota: Quota, seconds: float) -> None:
        if (throttle_ms := math.ceil((seconds - CLOCK_ERROR_S) * 1000)) > 0:
            quota.count_throttled(throttle_ms / 1000)
        if throttle_ms > self.throttle_ms:
            self.throttle_ms = throttle_ms
            self._connection.mute(throttle_ms / 1000)


class MutationQuota:
    """Charges a request for the partitions that it creates or deletes (KIP-599). Versions before
    `strict_since` do not know the error THROTTLING_QUOTA_EXCEEDED: such a request is executed, and
    its client is throttled afterwards.
    """

    def __init__(self, ctx: RequestContext, *, strict_since: int) -> None:
        manager: ClientQuotaManager = ctx.broker.client_quotas
        self._now_s = manager.now_s
        self._is_strict = ctx.version >= strict_since
        self._throttle_s = 0.0
        self._mutations = None
        if manager.is_active:
            self._mutations = manager.of_client(ctx.connection.principal.name, ctx.client_id or "").mutations

    def charge(self, partition_count: int) -> None:
        """Raises THROTTLING_QUOTA_EXCEEDED, from `strict_since` on; then nothing is charged."""
        if (quota := self._mutations) is None:
            return
        now_s = self._now_s()
        if self._is_strict and (throttle_s := quota.throttle_time_s(now_s)) > 0:
            self._throttle(throttle_s)
            raise KafkaError(
                ErrorCode.throttling_quota_exceeded,
                f"controller_mutation_rate={quota.limit:g} is exceeded; try again in {throttle_s:.3f} s",
            )
        quota.take(partition_count, now_s)
        if not self._is_strict and (throttle_s := quota.throttle_time_s(now_s)) > 0:
            self._throttle(throttle_s)

    @property
    def throttle_time(self) -> i32Timedelta:
        return throttle_time(math.ceil(self._throttle_s * 1000))

    def _throttle(self, throttle_s: float) -> None:
        assert self._mutations is not None
        self._throttle_s = throttle_s
        self._mutations.count_throttled(throttle_s)


def throttle_time(throttle_ms: int) -> i32Timedelta:
    return to_duration(min(throttle_ms, 2**31 - 1))
