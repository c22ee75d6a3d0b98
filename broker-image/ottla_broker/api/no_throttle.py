"""The throttle time of an answer that no quota delays."""

import datetime
from typing import Final

from kio.static.primitive import i32Timedelta

NO_THROTTLE: Final = i32Timedelta.parse(datetime.timedelta(0))
