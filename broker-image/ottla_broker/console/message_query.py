"""The query parameters of a page of messages."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Final, Literal, cast

from ottla_broker.console.partition_reader import START_KINDS, Start, StartKind
from ottla_broker.console.record_display import DISPLAY_FORMS, DisplayForm
from ottla_broker.console.requests import PageError, PageRequest
from ottla_broker.console.search_messages import EXPORT_FORMATS, ExportFormat

DEFAULT_LIMIT: Final = 50
MAX_LIMIT: Final = 500
MODES: Final = ("browse", "search", "follow")
DEFAULT_START: Final[Mapping[str, StartKind]] = {"browse": "newest", "search": "oldest", "follow": "newest"}

QueryMode = Literal["browse", "search", "follow"]


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """`partition`: None for all. `start_text`, `at`: as the user wrote them; empty for the default.
    `limit`: records on a page, or to find. `expression`: a CEL filter, or empty. `key`: the key to
    find, or empty. `positions`: where a search is resumed, next offsets by partition.
    """

    mode: QueryMode
    partition: int | None
    start: Start
    start_text: str
    at: str
    limit: int
    form: DisplayForm
    expression: str
    key: str
    positions: Mapping[int, int]
    export_format: ExportFormat


def parse_query(page: PageRequest) -> MessageQuery:
    """Parses the query. The mode `browse` becomes `search` for a query with a filter or a key.
    Raises PageError.
    """
    expression, key = page.text("filter"), page.text("key")
    mode = _read_choice(page, "mode", MODES, "browse")
    if mode == "browse" and (expression or key):
        mode = "search"
    kind = cast(StartKind, _read_choice(page, "start", START_KINDS, DEFAULT_START[mode]))
    at = page.text("at")
    partition = None if page.text("partition") == "" else page.integer("partition", 0)
    return MessageQuery(
        cast(QueryMode, mode),
        partition,
        parse_start(kind, at),
        page.text("start"),
        at,
        page.integer("limit", DEFAULT_LIMIT, at_least=1, at_most=MAX_LIMIT),
        cast(DisplayForm, _read_choice(page, "form", DISPLAY_FORMS, "auto")),
        expression,
        key,
        parse_positions(page.text("positions")),
        cast(ExportFormat, _read_choice(page, "format", EXPORT_FORMATS, "jsonl")),
    )


def available_formats() -> tuple[ExportFormat, ...]:
    """The formats of exports whose libraries are installed."""
    has_parquet = find_spec("arro3") is not None
    return tuple(it for it in EXPORT_FORMATS if has_parquet or it != "parquet")


def check_format(export_format: ExportFormat) -> None:
    """Raises PageError for a format whose library is not installed."""
    if export_format not in available_formats():
        raise PageError(400, "an export as Parquet needs arro3-io on the broker: pip install 'ottla[parquet]'")


def parse_start(kind: StartKind, at: str) -> Start:
    """`at`: an offset or a time, by the kind. Raises PageError."""
    if kind in ("newest", "oldest"):
        return Start(kind)
    if kind == "offset":
        if not at.isdecimal() or len(at) > 19:
            raise PageError(400, f"at={at!r}: expected an offset, 0 or more")
        return Start(kind, int(at))
    return Start(kind, parse_time_ms(at))


def parse_time_ms(text: str) -> int:
    """Milliseconds since 1970. `text`: such a number, or an ISO 8601 time, which is in UTC unless
    it names another zone. Raises PageError.
    """
    if text.isdecimal() and 4 < len(text) <= 15:
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise PageError(
            400, f"at={text!r}: expected a time such as 2026-01-31T12:00, or milliseconds since 1970"
        ) from None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return max(0, int(at.timestamp() * 1000))


def parse_record_position(page: PageRequest) -> tuple[int, int]:
    """The partition and the offset in a path whose pattern allows only digits there."""
    partition, offset = (int(page.http.match_info[name]) for name in ("partition", "offset"))
    return partition, offset


def parse_positions(text: str) -> dict[int, int]:
    """Next offsets by partition, from `0:120,1:98`. Raises PageError."""
    found = {}
    for part in filter(None, text.split(",")):
        partition, colon, offset = part.partition(":")
        if not (colon and partition.isdecimal() and offset.isdecimal() and len(offset) <= 19):
            raise PageError(400, f"positions={text!r}: expected partition:offset pairs separated by commas")
        found[int(partition)] = int(offset)
    return found


def _read_choice(page: PageRequest, name: str, allowed: tuple[str, ...], default: str) -> str:
    """A parameter of the query that must be one of `allowed`. Raises PageError."""
    text = page.text(name) or default
    if text not in allowed:
        raise PageError(400, f"{name}={text!r}: expected {', '.join(allowed)}")
    return text
