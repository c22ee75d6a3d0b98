"""The sessions of brokers at the active controller.

Times are the controller's own monotonic clock. A session counts only time in which the controller
could have received a heartbeat: when its own check runs late, because the process was stopped or
the machine was busy, every session is extended by the delay. So a pause of the controller fences no
broker.
"""

from dataclasses import dataclass

CHECKS_PER_SESSION = 10


@dataclass(slots=True)
class BrokerSession:
    """`metadata_offset`: the last metadata record that the broker has applied; −1 before its first
    heartbeat.
    """

    epoch: int
    last_heartbeat_s: float
    metadata_offset: int


class HeartbeatTracker:
    """`timeout_s`: how long a session lasts without a heartbeat. `now_s`: the present time."""

    def __init__(self, timeout_s: float, now_s: float) -> None:
        self.timeout_s = timeout_s
        self.check_interval_s = timeout_s / CHECKS_PER_SESSION
        self._last_check_s = now_s
        self._sessions: dict[int, BrokerSession] = {}

    def record_heartbeat(self, broker: int, epoch: int, metadata_offset: int, now_s: float) -> None:
        self._sessions[broker] = BrokerSession(epoch, now_s, metadata_offset)

    def remove(self, broker: int, epoch: int) -> None:
        """Removes a session, unless it belongs to a later registration."""
        session = self._sessions.get(broker)
        if session is not None and session.epoch <= epoch:
            del self._sessions[broker]

    def is_alive(self, broker: int, epoch: int, now_s: float) -> bool:
        session = self._sessions.get(broker)
        return session is not None and session.epoch == epoch and now_s - session.last_heartbeat_s < self.timeout_s

    def metadata_offset(self, broker: int) -> int:
        """The last metadata record that the broker has applied; −1 before its first heartbeat."""
        session = self._sessions.get(broker)
        return -1 if session is None else session.metadata_offset

    def find_expired_sessions(self, now_s: float) -> list[tuple[int, int]]:
        """Returns (broker, epoch) of expired sessions, which stay until removed. Called every
        `check_interval_s`; if a call is late by more than that, all sessions are extended first.
        """
        delay_s = now_s - self._last_check_s - self.check_interval_s
        self._last_check_s = now_s
        if delay_s > self.check_interval_s:
            for session in self._sessions.values():
                session.last_heartbeat_s += delay_s
        return [
            (broker, session.epoch)
            for broker, session in self._sessions.items()
            if now_s - session.last_heartbeat_s >= self.timeout_s
        ]
