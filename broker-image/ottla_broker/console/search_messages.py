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
    """Begins a search. `key`: the key to find; None: any. `export_format`: found records become a
    file of that format; None: they are shown on a page in `form`, with at most `max_shown`
    characters of a value. `has_registry`: keys and values are decoded by schemas.
    """

    expression: str
    key: bytes | None
    form: DisplayForm
    export_format: ExportFormat | None = None
    has_registry: bool = False
    max_shown: int = MAX_SHOWN


class ScanRecords(msgspec.Struct, tag="scan"):
    """Searches whole batches of a partition, `records`. Records before offset `first` and from
    offset `end` on are left out; `end` −1: no end. At most `limit` are found. `searches`: number of
    searches on the broker now.
    """

    partition: int
    records: bytes
    first: int
    end: int
    limit: int
    searches: int = 1


class AddSchemas(msgspec.Struct, tag="schemas"):
    """Schemas by id. None: the registry has none, or the user may not read it."""

    sources: dict[int, SchemaSource | None]


class FinishExport(msgspec.Struct, tag="finish"):
    """Asks for the end of an exported file."""


SearchRequest = StartSearch | ScanRecords | AddSchemas | FinishExport


class SearchResponse(msgspec.Struct):
    """`found`: the records that were found, for a page. `exported`: the next part of the file.
    `scanned`: number of records that were read, and `next_offset`: the offset after the last of
    them. `failed`: number of records for which the expression has no result; `failure`: why, for
    the first of them. `error`: why the search cannot go on. `unknown_ids`: nothing was scanned,
    because these schemas are needed first.
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
