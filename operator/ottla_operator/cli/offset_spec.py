"""A place in a topic as people write it: beginning, end, 42, +10, -10, 2026-05-01T12:00, 2h."""

import re
import time
from dataclasses import dataclass
from datetime import datetime

import typer

from ottla_operator.resources.common import parse_duration_ms


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """Exactly one of these, or `word` (beginning, end). `shift`: records from where one is. `time_ms`: since the epoch."""

    word: str = ""
    exact: int | None = None
    shift: int | None = None
    time_ms: int | None = None

    def offset(self, start: int, end: int, now: int | None, at_time: int | None) -> int:
        """The offset in a partition from `start` to `end`. `now`: where one is (None: nowhere, so at the start). `at_time`: of the first record
        at or after the time, -1 or None when there is none."""
        if self.word:
            return start if self.word == "beginning" else end
        if self.time_ms is not None:
            return end if at_time is None or at_time < 0 else at_time
        wanted = self.exact if self.exact is not None else (start if now is None else now) + (self.shift or 0)
        return min(max(wanted, start), end)


def parse_offset_spec(text: str, now_ms: int | None = None) -> OffsetSpec:
    """Reads a place. typer.BadParameter when it is none."""
    if text in ("beginning", "end"):
        return OffsetSpec(word=text)
    if text.isdecimal():
        return OffsetSpec(exact=int(text))
    if re.fullmatch(r"[+-]\d+", text):
        return OffsetSpec(shift=int(text))
    try:
        return OffsetSpec(time_ms=(time.time_ns() // 1_000_000 if now_ms is None else now_ms) - parse_duration_ms(text))
    except ValueError:
        pass
    try:
        return OffsetSpec(time_ms=int(datetime.fromisoformat(text).timestamp() * 1000))
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no place in a topic; write beginning, end, an offset (42), +10 or -10, a time (2026-05-01T12:00) or how long ago (2h)"
        ) from None
