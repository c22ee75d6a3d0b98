"""The last report of a rolling restart, in the memory of the active controller."""

from ottla_broker.telemetry.pipeline_reports import REPORT_EXPIRY_MS, age_s, decode_report
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.roll_report import RollReport, StoredRoll


class RollReports:
    """Each broker has one such object; that of a broker that is not the controller is empty or out
    of date.
    """

    def __init__(self) -> None:
        self._last: tuple[int, RollReport] | None = None

    def replace(self, report: RollReport | None, now_ms: int) -> None:
        """Replaces the report. None: the roll has ended."""
        self._last = None if report is None else (now_ms, report)

    def current(self, now_ms: int) -> StoredRoll | None:
        """None if nobody has reported a roll for REPORT_EXPIRY_MS."""
        if self._last is None or now_ms - self._last[0] > REPORT_EXPIRY_MS:
            return None
        at_ms, report = self._last
        return StoredRoll(age_s(at_ms, now_ms), report)


def parse_roll(name: str, text: str) -> RollReport:
    """The report of a roll, whose resource has an empty name. Raises INVALID_REQUEST."""
    if name:
        raise KafkaError(ErrorCode.invalid_request, f"a cluster has one roll, which has no name such as {name!r}")
    return decode_report(text, RollReport, "a roll")
