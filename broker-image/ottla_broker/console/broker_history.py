"""States of brokers, and when they began. The metadata image has no times, so the beginning is
known only if this broker has observed it.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

from ottla_broker.metadata.image import BrokerRegistration

OBSERVE_INTERVAL_S: Final = 0.5

BrokerState = Literal["unfenced", "shutting down", "stopped", "starting", "fenced"]


@dataclass(frozen=True, slots=True)
class BrokerPhase:
    """`state`: "stopped" after a controlled shutdown; "starting" while the broker has registered
    and is still fenced. `epoch`: of its registration. `since_s`: when the state began, by the clock
    of `observe`; None if it began before the first observation. `has_restarted`: the broker has
    registered again since the first observation.
    """

    state: BrokerState
    epoch: int
    since_s: float | None
    has_restarted: bool = False


UNKNOWN_PHASE: Final = BrokerPhase("fenced", -1, None)


class BrokerHistory:
    """The present phase of each broker. `observe` is called every OBSERVE_INTERVAL_S."""

    def __init__(self) -> None:
        self._phases: dict[int, BrokerPhase] = {}
        self._has_begun = False

    def observe(self, brokers: Collection[BrokerRegistration], now_s: float) -> None:
        self._phases = {one.id: self._next_phase(one, now_s) for one in brokers}
        self._has_begun = self._has_begun or bool(brokers)

    def phase(self, broker: int) -> BrokerPhase:
        return self._phases.get(broker, UNKNOWN_PHASE)

    def _next_phase(self, broker: BrokerRegistration, now_s: float) -> BrokerPhase:
        before = self._phases.get(broker.id)
        if before is None:
            is_new = self._has_begun
            return BrokerPhase(find_state(broker, is_starting=is_new), broker.epoch, now_s if is_new else None)
        has_registered = broker.epoch != before.epoch
        state = find_state(broker, is_starting=has_registered or before.state == "starting")
        if state == before.state and not has_registered:
            return before
        return BrokerPhase(state, broker.epoch, now_s, before.has_restarted or has_registered)


def find_state(broker: BrokerRegistration, *, is_starting: bool) -> BrokerState:
    if not broker.fenced:
        return "shutting down" if broker.shutting_down else "unfenced"
    if broker.shutting_down:
        return "stopped"
    return "starting" if is_starting else "fenced"
