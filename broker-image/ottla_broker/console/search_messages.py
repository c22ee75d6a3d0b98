"""Messages between a broker and the worker process of a search: msgpack, each preceded by its
length in 4 bytes.

The broker imports these types without the worker, whose library for CEL takes 14 MiB of memory.
"""

import struct
from typing import Final

import msgspec

from ottla_broker.console.record_display import DisplayedRecord, Form

LENGTH: Final = struct.Struct(">I")


class StartSearch(msgspec.Struct, tag="start"):
    """`is_export`: found records become lines of JSON, else what pages show, in `form`."""

    expression: str
    key: bytes | None
    form: Form
    is_export: bool


class ScanRecords(msgspec.Struct, tag="scan"):
    """Whole batches of a partition. Records before `first` and from `end` on are left out; `end`
    −1: none. At most `limit` are found.
    """

    partition: int
    records: bytes
    first: int
    end: int
    limit: int


Request = StartSearch | ScanRecords


class Response(msgspec.Struct):
    """`scanned`: records that were read. `next_offset`: after the last of them. `failed`: records
    for which the expression has no result; `failure`: why, for the first of them. `error`: the
    search cannot go on.
    """

    found: list[DisplayedRecord] = []
    lines: bytes = b""
    found_count: int = 0
    scanned: int = 0
    next_offset: int = -1
    failed: int = 0
    failure: str = ""
    error: str = ""
