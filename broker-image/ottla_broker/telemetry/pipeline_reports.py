"""The last report of each pipeline, in the memory of the active controller."""

from typing import Final, TypeVar

import msgspec

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.pipeline_report import MAX_REPORT_BYTES, PipelineReport, StoredReport

MAX_PIPELINES: Final = 1000
REPORT_EXPIRY_MS: Final = 3600 * 1000
"""How long a report is kept that no later one replaces."""
MAX_NAME: Final = 253

R = TypeVar("R")


class PipelineReports:
    """The reports by the pipeline's name. Each broker has one such object; that of a broker that is
    not the controller is empty or out of date.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, tuple[int, PipelineReport]] = {}

    def add(self, name: str, report: PipelineReport, now_ms: int) -> None:
        """Replaces the pipeline's report. Raises INVALID_REQUEST for a new pipeline above
        MAX_PIPELINES.
        """
        self._remove_old(now_ms)
        if name not in self._by_name and len(self._by_name) >= MAX_PIPELINES:
            raise KafkaError(ErrorCode.invalid_request, f"{MAX_PIPELINES} pipelines are reported already")
        self._by_name[name] = now_ms, report

    def remove(self, name: str) -> None:
        self._by_name.pop(name, None)

    def current(self, now_ms: int) -> dict[str, StoredReport]:
        """The last report of each pipeline within REPORT_EXPIRY_MS, by name, sorted."""
        self._remove_old(now_ms)
        return {
            name: StoredReport(age_s(at_ms, now_ms), report) for name, (at_ms, report) in sorted(self._by_name.items())
        }

    def _remove_old(self, now_ms: int) -> None:
        for name in [name for name, (at_ms, _) in self._by_name.items() if now_ms - at_ms > REPORT_EXPIRY_MS]:
            del self._by_name[name]


def parse_report(name: str, text: str) -> PipelineReport:
    """The report of the pipeline of this name. Raises INVALID_REQUEST."""
    if not 0 < len(name) <= MAX_NAME:
        raise KafkaError(ErrorCode.invalid_request, f"a pipeline's name has 1 to {MAX_NAME} characters")
    return decode_report(text, PipelineReport, "a pipeline")


def decode_report(text: str, kind: type[R], what: str) -> R:
    """A report from its JSON. `what`: "a pipeline" and the like, for the error. Raises
    INVALID_REQUEST.
    """
    if len(text.encode()) > MAX_REPORT_BYTES:
        raise KafkaError(ErrorCode.invalid_request, f"a report has at most {MAX_REPORT_BYTES} bytes")
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as reason:
        raise KafkaError(ErrorCode.invalid_request, f"not a report of {what}: {reason}") from None


def age_s(at_ms: int, now_ms: int) -> float:
    return round(max(0, now_ms - at_ms) / 1000, 3)
