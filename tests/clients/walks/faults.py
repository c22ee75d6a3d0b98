"""What is wrong with a batch, on purpose."""

import struct
from collections.abc import Callable
from typing import Final

from tests.clients.record_questions import CRC_AT, MAGIC_AT, sealed

FAULTS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "crc": lambda made: made[:CRC_AT] + b"\0\0\0\0" + made[CRC_AT + 4 :],
    "magic 1": lambda made: made[:MAGIC_AT] + b"\1" + made[MAGIC_AT + 1 :],
    "magic 3": lambda made: made[:MAGIC_AT] + b"\3" + made[MAGIC_AT + 1 :],
    "cut": lambda made: made[:-3],
    "base offset 7": lambda made: struct.pack(">q", 7) + made[8:],
    "no records": lambda made: sealed(made[:57] + struct.pack(">i", 0) + made[61:]),
}
