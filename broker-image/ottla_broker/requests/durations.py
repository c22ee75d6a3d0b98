"""Durations of messages, which kio gives and takes as timedeltas."""

import datetime
from typing import Final

from kio.static.primitive import i32Timedelta

from ottla_broker.wire.message_schema import MILLISECOND

NO_THROTTLE: Final = i32Timedelta.parse(datetime.timedelta(0))
"""The throttle time of a response whose client exceeds no quota."""


def to_milliseconds(duration: datetime.timedelta) -> int:
    return duration // MILLISECOND
