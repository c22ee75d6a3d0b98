"""Durations as kio gives them, as whole milliseconds."""

import datetime

_MILLISECOND = datetime.timedelta(milliseconds=1)


def milliseconds(duration: datetime.timedelta) -> int:
    return duration // _MILLISECOND
