"""Lengths of time as Pipeline resources write them: 500ms, 30s, 10 minutes."""

from __future__ import annotations

import re
from typing import Final

_DURATION: Final = re.compile(r"^(?P<count>[0-9]+) ?(?P<unit>ms|millisecond|s|second|m|minute|h|hour|d|day)s?$")
_MILLISECONDS: Final = {
    "ms": 1,
    "millisecond": 1,
    "s": 1000,
    "second": 1000,
    "m": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
}


def milliseconds(text: str) -> int:
    """Milliseconds of a duration ("2 hours" is 7,200,000). ValueError when it is none."""
    if not (found := _DURATION.match(text)):
        raise ValueError(f"{text!r} is no duration, such as 500ms, 30s or 10 minutes")
    return int(found["count"]) * _MILLISECONDS[found["unit"]]


def interval(text: str) -> str:
    """The same duration as Spark writes it ("2 hours" is "7200000 milliseconds"). ValueError when it is none."""
    return f"{milliseconds(text)} milliseconds"
