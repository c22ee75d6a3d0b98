"""Who was heard, and when: a broker's session at the active controller.

Times are the controller's own monotonic clock. A session counts only time in which the controller could have heard: when its own turns come late
(it was stopped, its machine was busy) every session is prolonged by as much, so that a pause of the controller fences nobody.
"""

from dataclasses import dataclass

from ottla_broker.config import BROKER_SESSION_TIMEOUT_MS, REGISTER_LEASE_MS, Config

CHECKS_PER_SESSION = 10


def leadership_timeout_s(config: Config) -> float:
    """How long a controller that hears no majority goes on being believed, by itself too: others wait for a lease before they follow it."""
    return min(config(BROKER_SESSION_TIMEOUT_MS), config(REGISTER_LEASE_MS)) / 1000


@dataclass(slots=True)
class Session:
    """`heard_at`: seconds on the controller's clock. `offset`: the last metadata record that the broker said to have."""

    epoch: int
    last_heartbeat_s: float
    metadata_offset: int


class HeartbeatTracker:
    def __init__(self, timeout_s: float, now: float) -> None:
        self.timeout_s = timeout_s
        self.check_interval_s = timeout_s / CHECKS_PER_SESSION
        self._last_check_s = now
        self._sessions: dict[int, Session] = {}

    def record_heartbeat(self, broker: int, epoch: int, offset: int, now: float) -> None:
        self._sessions[broker] = Session(epoch, now, offset)

    def remove(self, broker: int, epoch: int) -> None:
        """Unless it is the session of a later registration."""
        session = self._sessions.get(broker)
        if session is not None and session.epoch <= epoch:
            del self._sessions[broker]

    def is_alive(self, broker: int, epoch: int, now: float) -> bool:
        session = self._sessions.get(broker)
        return session is not None and session.epoch == epoch and now - session.last_heartbeat_s < self.timeout_s

    def metadata_offset(self, broker: int) -> int:
        """The last metadata record that the broker said to have; −1 when it said nothing yet."""
        session = self._sessions.get(broker)
        return -1 if session is None else session.metadata_offset

    def expire_sessions(self, now: float) -> list[tuple[int, int]]:
        """Called every `turn_s`: the brokers (with their epochs) that were silent for too long. They stay until they are forgotten."""
        late = now - self._last_check_s - self.check_interval_s
        self._last_check_s = now
        if late > self.check_interval_s:
            for session in self._sessions.values():
                session.last_heartbeat_s += late
        return [
            (broker, session.epoch)
            for broker, session in self._sessions.items()
            if now - session.last_heartbeat_s >= self.timeout_s
        ]
