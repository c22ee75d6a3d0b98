"""Offsets as command-line arguments: beginning, end, 42, +10, -10, 2026-05-01T12:00, 2h."""

import re
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import typer

from ottla_operator.resources.common import parse_duration_ms

OFFSET_FORMS: Final = (
    "beginning, end, an offset (42), relative (+10, -10), a time (2026-05-01T12:00) or a duration before now (2h)"
)


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """Exactly one field is set.

    `word`: beginning or end. `offset`: absolute. `shift`: relative to the current position.
    `time_ms`: timestamp of a record.
    """

    word: str = ""
    offset: int | None = None
    shift: int | None = None
    time_ms: int | None = None

    def resolve(self, start: int, end: int, current: int | None, at_time: int | None) -> int:
        """The offset in a partition with this log start and log end.

        `current`: position; None means the start. `at_time`: offset of the first record at or after
        `time_ms`; −1 or None if there is none.
        """
        if self.word:
            return start if self.word == "beginning" else end
        if self.time_ms is not None:
            return end if at_time is None or at_time < 0 else at_time
        position = start if current is None else current
        target = self.offset if self.offset is not None else position + (self.shift or 0)
        return min(max(target, start), end)


def parse_offset_spec(text: str, now_ms: int | None = None) -> OffsetSpec:
    """`now_ms`: the time from which durations count; None for the present. Raises
    typer.BadParameter.
    """
    if text in ("beginning", "end"):
        return OffsetSpec(word=text)
    if text.isdecimal():
        return OffsetSpec(offset=int(text))
    if re.fullmatch(r"[+-]\d+", text):
        return OffsetSpec(shift=int(text))
    try:
        return OffsetSpec(time_ms=(time.time_ns() // 1_000_000 if now_ms is None else now_ms) - parse_duration_ms(text))
    except ValueError:
        pass
    try:
        return OffsetSpec(time_ms=int(datetime.fromisoformat(text).timestamp() * 1000))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not an offset; expected {OFFSET_FORMS}") from None
