"""Messages between a broker and the worker process of a search: msgpack, each preceded by its
length in 4 bytes.

The broker imports these types without the worker, whose library for CEL takes 14 MiB of memory.
"""

import struct
from typing import Final, Literal

import msgspec

from ottla_broker.console.record_display import MAX_SHOWN, DisplayedRecord, DisplayForm
from ottla_broker.registry.schema import SchemaSource

ExportFormat = Literal["jsonl", "csv", "parquet"]
EXPORT_FORMATS: Final[tuple[ExportFormat, ...]] = ("jsonl", "csv", "parquet")
LENGTH: Final = struct.Struct(">I")


class StartSearch(msgspec.Struct, tag="start"):
    """`export_format`: found records become a file; None: what pages show, in `form`, with at most
    `shown` characters of a value. `has_registry`: keys and values are decoded by schemas.
    """

    expression: str
    key: bytes | None
    form: DisplayForm
    export_format: ExportFormat | None = None
    has_registry: bool = False
    shown: int = MAX_SHOWN


class ScanRecords(msgspec.Struct, tag="scan"):
    """Whole batches of a partition. Records before `first` and from `end` on are left out; `end`
    −1: none. At most `limit` are found. `searches`: number of searches on the broker now.
    """

    partition: int
    records: bytes
    first: int
    end: int
    limit: int
    searches: int = 1


class AddSchemas(msgspec.Struct, tag="schemas"):
    """By id; None: there is none."""

    sources: dict[int, SchemaSource | None]


class FinishExport(msgspec.Struct, tag="finish"):
    """Asks for the end of the file."""


SearchRequest = StartSearch | ScanRecords | AddSchemas | FinishExport


class SearchResponse(msgspec.Struct):
    """`exported`: the next part of the file. `scanned`: records that were read. `next_offset`:
    after the last of them. `failed`: records for which the expression has no result; `failure`:
    why, for the first of them. `error`: the search cannot go on. `unknown_ids`: nothing was
    scanned, because these schemas are needed first.
    """

    found: list[DisplayedRecord] = []
    exported: bytes = b""
    found_count: int = 0
    scanned: int = 0
    next_offset: int = -1
    failed: int = 0
    failure: str = ""
    error: str = ""
    unknown_ids: list[int] = []
