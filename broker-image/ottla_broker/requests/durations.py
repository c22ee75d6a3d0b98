"""Durations and times of messages, which kio gives and takes as timedeltas and datetimes."""

import datetime
from typing import Final, cast

from kio.static.primitive import TZAware, i32Timedelta

from ottla_broker.wire.message_schema import EPOCH, MILLISECOND

LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999, the last that a datetime can hold."""


def to_milliseconds(duration: datetime.timedelta) -> int:
    return duration // MILLISECOND


def to_duration(milliseconds: int) -> i32Timedelta:
    return cast(i32Timedelta, milliseconds * MILLISECOND)


def to_timestamp(at_ms: int) -> TZAware:
    """`at_ms`: since 1970. Times after LAST_MS become that."""
    return cast(TZAware, EPOCH + min(at_ms, LAST_MS) * MILLISECOND)


NO_THROTTLE: Final = to_duration(0)
"""The throttle time of a response whose client exceeds no quota."""
