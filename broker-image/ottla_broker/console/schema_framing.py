"""Keys and values that serialisers of a schema registry wrote: a zero byte, the id of a schema in 4
bytes, and the data (Confluent's wire format).
"""

import struct
from typing import Any, Final, NamedTuple

FRAME: Final = struct.Struct(">bI")
MAGIC: Final = 0


class DecodedBytes(NamedTuple):
    """A key or value that a schema has decoded. `value`: dicts, lists, strings, numbers, booleans,
    bytes, UTC datetimes and None.
    """

    schema_type: str
    schema_id: int
    value: Any


class DecodedRecord(NamedTuple):
    """The key and value of a record. None: not decoded by a schema."""

    key: DecodedBytes | None = None
    value: DecodedBytes | None = None


NOT_DECODED: Final = DecodedRecord()


def schema_id_of(data: bytes | None) -> int | None:
    """The schema id in a frame; None without a frame. Other data can look like a frame by
    chance.
    """
    if data is None or len(data) < FRAME.size or data[0] != MAGIC:
        return None
    found: int = FRAME.unpack_from(data)[1]
    return found
