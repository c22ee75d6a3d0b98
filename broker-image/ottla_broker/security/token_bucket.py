"""A token bucket, which limits the rate of a client and allows bursts after idle times.

It begins full, with the tokens of `burst_s` seconds. A client may use more tokens than there are,
and then waits until the debt is paid. That is as long as Kafka throttles: (observed − limit) /
limit × window. But Kafka measures the observed rate over windows and drops the oldest one as a
whole, including its excess. The resulting rate is off by up to 6 % over a minute.
"""


class TokenBucket:
    __slots__ = ("_at_s", "_burst_s", "_tokens")

    def __init__(self, burst_s: float) -> None:
        self._burst_s = burst_s
        self._tokens: float | None = None  # full, at any limit
        self._at_s = 0.0

    def take(self, value: float, limit: float, now_s: float) -> None:
        """Takes `value` tokens; fewer than 0 may be left. `limit`: tokens that are added per
        second.
        """
        self._tokens = self.tokens(limit, now_s) - value

    def throttle_time_s(self, limit: float, now_s: float) -> float:
        """Seconds until there is no debt; 0 without one."""
        return max(-self.tokens(limit, now_s) / limit, 0.0)

    def is_full(self, limit: float, now_s: float) -> bool:
        """True if the bucket equals a new one."""
        return self.tokens(limit, now_s) >= self._burst_s * limit

    def tokens(self, limit: float, now_s: float) -> float:
        """The tokens that are left; below 0: a debt."""
        burst = self._burst_s * limit
        tokens = burst if self._tokens is None else min(burst, self._tokens + (now_s - self._at_s) * limit)
        self._tokens, self._at_s = tokens, now_s
        return tokens
