"""Functions that damage a record batch, by the name of the fault."""

import struct
from collections.abc import Callable
from typing import Final

from tests.clients.producer_cases import CRC_AT, MAGIC_AT, update_crc

FAULTS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "crc": lambda batch: batch[:CRC_AT] + b"\0\0\0\0" + batch[CRC_AT + 4 :],
    "magic 1": lambda batch: batch[:MAGIC_AT] + b"\1" + batch[MAGIC_AT + 1 :],
    "magic 3": lambda batch: batch[:MAGIC_AT] + b"\3" + batch[MAGIC_AT + 1 :],
    "cut": lambda batch: batch[:-3],
    "base offset 7": lambda batch: struct.pack(">q", 7) + batch[8:],
    "no records": lambda batch: update_crc(batch[:57] + struct.pack(">i", 0) + batch[61:]),
}
